//! From a leg to the program that is executed: always an absolute path, a copy wherever the file is the user's own.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{Stage, StageError, StagedFile, mount_of, sha256_file};
use crate::legfile::{LegSpec, Work, builtin_prompt};

/// What a leg executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Arguments; the first is an absolute path.
    pub argv: Vec<String>,
    /// SHA-256 of the program file.
    pub sha256: Option<String>,
    /// Folder of the leg's copies.
    pub dir: PathBuf,
}

/// Stages one leg. `exe` is the staged copy of this executable, `base` the folder that relative paths start from, `path`
/// the `PATH` that the leg will see.
///
/// # Errors
/// When a file cannot be found, copied or verified.
pub fn stage_leg(
    stage: &mut Stage,
    leg: &LegSpec,
    exe: &Path,
    base: &Path,
    path: &str,
) -> Result<Program, StageError> {
    let dir = stage.path().join("legs").join(&leg.name);
    std::fs::create_dir_all(&dir).map_err(StageError::io("making folder", &dir))?;
    for extra in &leg.stage {
        let source = base.join(extra);
        let target = dir.join(inside(extra));
        stage.add("extra", &source, &target, None)?;
    }
    let (argv, sha256) = match &leg.work {
        Work::Engine(keys) => {
            let mut keys = keys.clone();
            if let Some(prompt) = &keys.prompt_file {
                let target = dir.join("prompt.txt");
                match builtin_prompt(prompt) {
                    Some(text) => stage.add_text("prompt", prompt, text, &target)?,
                    None => {
                        stage.add("prompt", Path::new(prompt), &target, Some(0o600))?;
                    }
                }
                keys.prompt_file = Some(target.to_string_lossy().into_owned());
            }
            let mut argv = vec![
                exe.to_string_lossy().into_owned(),
                "engine".to_owned(),
                "generate".to_owned(),
            ];
            argv.extend(keys.argv());
            let own = stage
                .files
                .iter()
                .find(|f| f.role == "executable")
                .map(|f| f.sha256.clone());
            (argv, own)
        }
        Work::Command(words) => {
            let (program, sha256) = stage_command(
                stage,
                words.first().map_or("", String::as_str),
                &dir,
                base,
                path,
            )?;
            let mut argv = vec![program];
            argv.extend(words.iter().skip(1).cloned());
            (argv, Some(sha256))
        }
        Work::Script { path: script, args } => {
            let source = base.join(script);
            let target = dir.join(file_name(&source));
            let staged = stage.add("script", &source, &target, Some(0o700))?;
            let sha256 = staged.sha256.clone();
            let mut argv = interpreter(&target)?;
            argv.push(target.to_string_lossy().into_owned());
            argv.extend(args.iter().cloned());
            (argv, Some(sha256))
        }
    };
    Ok(Program { argv, sha256, dir })
}

/// A program with a slash is the user's own file and is copied; a bare name is looked up in `PATH` and run where it
/// is, unless that is on a network.
fn stage_command(
    stage: &mut Stage,
    name: &str,
    dir: &Path,
    base: &Path,
    path: &str,
) -> Result<(String, String), StageError> {
    let own = name.contains('/');
    let source = if own {
        base.join(name)
    } else {
        find_in_path(name, path).ok_or_else(|| StageError::NoProgram {
            name: name.to_owned(),
            path: path.to_owned(),
        })?
    };
    let copied = own && !system_program(&source) || mount_of(&source).is_some_and(|m| m.network());
    if copied {
        let target = dir.join(file_name(&source));
        let staged: &StagedFile = stage.add("command", &source, &target, Some(0o700))?;
        return Ok((
            staged.path.to_string_lossy().into_owned(),
            staged.sha256.clone(),
        ));
    }
    let (sha256, bytes) = sha256_file(&source).map_err(StageError::io("reading", &source))?;
    let mode = std::fs::metadata(&source).map_or(0, |m| m.permissions().mode() & 0o7777);
    stage.files.push(StagedFile {
        role: "system".to_owned(),
        source: source.clone(),
        path: source.clone(),
        sha256: sha256.clone(),
        bytes,
        mode,
    });
    Ok((source.to_string_lossy().into_owned(), sha256))
}

/// Programs of the distribution stay where they are: copying `/bin/sh` would gain nothing, and some look beside
/// themselves for their parts.
fn system_program(path: &Path) -> bool {
    [
        "/bin", "/sbin", "/usr", "/lib", "/lib64", "/opt", "/nix", "/snap",
    ]
    .iter()
    .any(|root| path.starts_with(root))
        && !mount_of(path).is_some_and(|m| m.network())
}

/// The first executable file of that name in a `PATH`.
#[must_use]
pub fn find_in_path(name: &str, path: &str) -> Option<PathBuf> {
    path.split(':')
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| Path::new(dir).join(name))
        .find(|file| {
            std::fs::metadata(file)
                .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
}

/// A script with a `#!` line is started by the kernel; one without gets the shell that a login shell would have used.
fn interpreter(script: &Path) -> Result<Vec<String>, StageError> {
    let mut head = [0u8; 256];
    let mut file = std::fs::File::open(script).map_err(StageError::io("reading", script))?;
    let n = file
        .read(&mut head)
        .map_err(StageError::io("reading", script))?;
    let head = &head[..n];
    if head.starts_with(b"\x7fELF") {
        return Ok(Vec::new());
    }
    if !head.starts_with(b"#!") {
        let bash = Path::new("/bin/bash");
        let shell = if bash.exists() {
            "/bin/bash"
        } else {
            "/bin/sh"
        };
        return Ok(vec![shell.to_owned()]);
    }
    let first = head[2..].split(|&b| b == b'\n').next().unwrap_or_default();
    if first.ends_with(b"\r") {
        let interpreter = String::from_utf8_lossy(first).trim().to_owned();
        return Err(StageError::WindowsLineEnds {
            path: script.to_owned(),
            interpreter,
        });
    }
    Ok(Vec::new())
}

fn file_name(path: &Path) -> PathBuf {
    path.file_name().unwrap_or(OsStr::new("program")).into()
}

/// A relative path without `..` keeps its folders; anything else its name alone.
fn inside(path: &str) -> PathBuf {
    let path = Path::new(path);
    let plain = path.components().all(|c| {
        matches!(
            c,
            std::path::Component::Normal(_) | std::path::Component::CurDir
        )
    });
    if plain {
        path.to_owned()
    } else {
        file_name(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(text: &str) -> LegSpec {
        let text = format!("name: t\nlegs:\n  - {{name: a, {text}}}\n");
        crate::legfile::parse(Path::new("t"), Path::new("/"), &text)
            .unwrap()
            .legs
            .remove(0)
    }

    fn stage_one(text: &str, base: &Path) -> Result<(Program, Stage), StageError> {
        let mut stage = Stage::create_in(&[base.to_owned()])?;
        let program = stage_leg(
            &mut stage,
            &leg(text),
            Path::new("/exe"),
            base,
            "/usr/bin:/bin",
        )?;
        Ok((program, stage))
    }

    #[test]
    fn a_script_runs_from_its_copy_even_without_the_execute_bit() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("job.sh"), "#!/bin/sh\nexit 0\n").unwrap();
        std::fs::write(base.path().join("plain.sh"), "exit 0\n").unwrap();
        let (program, stage) = stage_one("script: job.sh, args: [x]", base.path()).unwrap();
        assert!(
            program.argv[0].starts_with(stage.path().to_str().unwrap()),
            "{:?}",
            program.argv
        );
        assert_eq!(program.argv[1], "x");
        let mode = std::fs::metadata(&program.argv[0])
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        let (program, _stage) = stage_one("script: plain.sh", base.path()).unwrap();
        assert!(["/bin/bash", "/bin/sh"].contains(&program.argv[0].as_str()));
    }

    #[test]
    fn a_bare_name_is_looked_up_and_an_unknown_one_is_named() {
        let base = tempfile::tempdir().unwrap();
        let (program, _stage) = stage_one("command: [true]", base.path()).unwrap();
        assert!(program.argv[0].ends_with("/true") && program.sha256.is_some());
        let error = stage_one("command: [no-such-program-here]", base.path()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("no program `no-such-program-here`"),
            "{error}"
        );
    }

    #[test]
    fn windows_line_ends_are_named_before_the_kernel_trips_over_them() {
        let base = tempfile::tempdir().unwrap();
        std::fs::write(base.path().join("job.sh"), "#!/bin/sh\r\nexit 0\r\n").unwrap();
        let error = stage_one("script: job.sh", base.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("Windows line ends"), "{error}");
    }

    #[test]
    fn extra_files_keep_their_folders_but_never_leave_the_stage() {
        assert_eq!(inside("lib/a.so"), Path::new("lib/a.so"));
        assert_eq!(inside("../../etc/a"), Path::new("a"));
        assert_eq!(inside("/etc/a"), Path::new("a"));
    }
}

//! Code objects: those compiled into this binary, or a folder that replaces them (`--kernels DIR`).
//!
//! A folder holds `PART.ARCH.co` (AMD) or `PART.ARCH.cubin` / `.ptx` (NVIDIA) files, as the build writes them, and
//! optionally `build.txt`, whose first line is printed as the pack's identity.

use super::error::GpuError;
use std::borrow::Cow;
use std::path::Path;

/// Resource figures of a kernel, read from the compiler's metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelFigures {
    /// Name.
    pub name: &'static str,
    /// Vector registers.
    pub vgpr: u32,
    /// Scalar registers.
    pub sgpr: u32,
    /// Bytes of shared memory.
    pub lds: u32,
    /// Bytes of private memory per thread.
    pub scratch: u32,
    /// Vector registers spilled.
    pub vgpr_spills: u32,
    /// Scalar registers spilled.
    pub sgpr_spills: u32,
    /// Bytes of arguments.
    pub kernarg: u32,
}

/// A code object of this binary, with its build's identity.
#[derive(Debug, Clone, Copy)]
pub struct CodeObject {
    /// Instruction set.
    pub arch: &'static str,
    /// Source file's stem.
    pub part: &'static str,
    /// The ELF.
    pub bytes: &'static [u8],
    /// Its sha256.
    pub sha256: &'static str,
    /// The compiler's version line.
    pub compiler: &'static str,
    /// The compiler's flags.
    pub flags: &'static str,
    /// Kernels with their figures; empty for NVIDIA.
    pub kernels: &'static [KernelFigures],
}

include!(concat!(env!("OUT_DIR"), "/packs.rs"));

/// The code objects for one device.
#[derive(Debug)]
pub struct Pack {
    /// Part name and image.
    pub parts: Vec<(String, Cow<'static, [u8]>)>,
    /// Where it came from: for the log and the run's identity.
    pub identity: String,
}

/// Finds the code objects for `arch`.
///
/// # Errors
/// The folder cannot be read or has none for it; or none is embedded, with the build's reason.
pub fn find(arch: &str, folder: Option<&Path>) -> Result<Pack, GpuError> {
    match folder {
        Some(folder) => from_folder(arch, folder),
        None => embedded(arch),
    }
}

fn embedded(arch: &str) -> Result<Pack, GpuError> {
    let found: Vec<&CodeObject> = EMBEDDED.iter().filter(|c| c.arch == arch).collect();
    let Some(first) = found.first() else {
        let why = ABSENT
            .iter()
            .find(|(a, _)| *a == arch)
            .map_or("this binary knows no such target", |(_, why)| why);
        return Err(GpuError::NoKernel {
            kernel: "code objects".to_owned(),
            target: arch.to_owned(),
            reason: format!("{why}; build them (kernels/README.md) and pass --kernels DIR"),
        });
    };
    let identity = format!(
        "embedded {arch}, {}, {}",
        first.compiler,
        found
            .iter()
            .map(|c| c.sha256.get(..12).unwrap_or(""))
            .collect::<Vec<_>>()
            .join(" ")
    );
    Ok(Pack {
        parts: found
            .iter()
            .map(|c| (c.part.to_owned(), Cow::Borrowed(c.bytes)))
            .collect(),
        identity,
    })
}

fn from_folder(arch: &str, folder: &Path) -> Result<Pack, GpuError> {
    let failed = |path: &Path, source| GpuError::File {
        path: path.to_path_buf(),
        source,
    };
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(|e| failed(folder, e))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| {
            let name = path
                .file_name()
                .and_then(|n| n.to_str())
                .unwrap_or_default();
            [".co", ".cubin", ".ptx"]
                .iter()
                .any(|ext| name.ends_with(&format!(".{arch}{ext}")))
        })
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(GpuError::NoKernel {
            kernel: "code objects".to_owned(),
            target: arch.to_owned(),
            reason: format!(
                "{} holds no file that ends in .{arch}.co, .{arch}.cubin or .{arch}.ptx",
                folder.display()
            ),
        });
    }
    let mut parts = Vec::new();
    for file in files {
        let mut bytes = std::fs::read(&file).map_err(|e| failed(&file, e))?;
        if file.extension().is_some_and(|e| e == "ptx") {
            bytes.push(0); // the driver wants PTX as a C string
        }
        parts.push((
            file.file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            Cow::Owned(bytes),
        ));
    }
    let build = std::fs::read_to_string(folder.join("build.txt")).unwrap_or_default();
    let identity = format!(
        "{} {arch}, {}",
        folder.display(),
        build.lines().next().unwrap_or("build unknown")
    );
    Ok(Pack { parts, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_target_says_why() {
        let text = find("gfx906", None).unwrap_err().to_string();
        assert!(
            text.contains("gfx906") && text.contains("--kernels DIR"),
            "{text}"
        );
        for (arch, why) in ABSENT {
            if !EMBEDDED.iter().any(|c| c.arch == *arch) {
                assert!(find(arch, None).unwrap_err().to_string().contains(why));
            }
        }
    }

    #[test]
    fn a_folder_replaces_the_embedded_objects() {
        let folder = std::env::temp_dir().join(format!("legwork-pack-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("dense.gfx1151.co"), b"elf").unwrap();
        std::fs::write(folder.join("dense.gfx1100.co"), b"other").unwrap();
        std::fs::write(folder.join("build.txt"), "AMD clang 22\n").unwrap();
        let pack = find("gfx1151", Some(&folder)).unwrap();
        let text = find("gfx1201", Some(&folder)).unwrap_err().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(pack.parts.len(), 1);
        assert_eq!(&*pack.parts[0].1, b"elf");
        assert!(pack.identity.contains("AMD clang 22"));
        assert!(text.contains(".gfx1201.co"), "{text}");
    }

    /// Every embedded kernel's figures were read, and none spills.
    #[test]
    fn embedded_figures_are_complete() {
        for object in EMBEDDED.iter().filter(|c| c.arch.starts_with("gfx")) {
            assert!(
                !object.kernels.is_empty(),
                "{} {}",
                object.arch,
                object.part
            );
            for k in object.kernels {
                assert!(!k.name.is_empty() && k.vgpr > 0 && k.kernarg > 0, "{k:?}");
                assert_eq!(k.vgpr_spills, 0, "{k:?}");
                assert!(k.lds <= 65536, "{k:?}");
            }
        }
    }
}

//! What a leg needs of shares, and whether those answer: asked before an attempt, and after one that failed.

use std::path::{Path, PathBuf};

use crate::legfile::{Cwd, LegSpec, Work};
use crate::stage::{Answer, mount_of, probe, question};
use crate::triage::context::LostShare;

/// The first file of the leg's model, if it lies on a share.
fn model(leg: &LegSpec) -> Option<PathBuf> {
    let Work::Engine(keys) = &leg.work else {
        return None;
    };
    keys.model
        .as_deref()
        .filter(|m| !m.starts_with("builtin:"))
        .map(PathBuf::from)
}

fn state(path: &Path) -> Option<LostShare> {
    let mount = mount_of(path).filter(crate::stage::Mount::network)?;
    let (state, error) = match probe(path, question()) {
        Answer::Fine => return None,
        Answer::Gone(e) => ("gone", Some(e)),
        Answer::Hangs => ("hangs", None),
    };
    Some(LostShare {
        path: path.display().to_string(),
        fs: mount.fs_type,
        state: state.to_owned(),
        error,
    })
}

/// Shares of the leg that do not answer now: those of its model, of its folder, and those named in its command line.
pub(super) fn ask(leg: &LegSpec, start_dir: &Path) -> Vec<LostShare> {
    let mut paths: Vec<PathBuf> = model(leg).into_iter().collect();
    match &leg.cwd {
        Cwd::Start => paths.push(start_dir.to_owned()),
        Cwd::Path(p) => paths.push(p.clone()),
        Cwd::Attempt | Cwd::Stage => {}
    }
    let words: &[String] = match &leg.work {
        Work::Command(argv) => argv,
        Work::Script { args, .. } => args,
        Work::Engine(_) => &[],
    };
    // `/share/data`, and `--model=/share/data`; in a shell line every word of it.
    paths.extend(
        words
            .iter()
            .flat_map(|w| w.split([' ', '=', '"', '\'', ';', '<', '>']))
            .filter(|w| w.starts_with('/') && w.len() > 1)
            .take(64)
            .map(PathBuf::from),
    );
    let mut lost: Vec<LostShare> = Vec::new();
    let mut points: Vec<PathBuf> = Vec::new();
    for path in paths {
        // One question per mount.
        let Some(mount) = mount_of(&path).filter(crate::stage::Mount::network) else {
            continue;
        };
        if !points.contains(&mount.point) {
            points.push(mount.point);
            lost.extend(state(&path));
        }
    }
    lost
}

/// Why the leg cannot be run now: the share with its model does not answer.
pub(super) fn lost(leg: &LegSpec) -> Option<String> {
    let share = state(&model(leg)?)?;
    Some(format!(
        "the share with the model does not answer: {} ({}): {}",
        share.path,
        share.fs,
        share
            .error
            .unwrap_or_else(|| format!("timed out after {} s", question().as_secs()))
    ))
}

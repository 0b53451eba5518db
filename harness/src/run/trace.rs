//! The engine's recording of its last GPU launches (`VT_KERNEL_TRACE=1`), which survives the process: what was in
//! flight when it fell.

use std::path::Path;

use legwork_kernels::gpu::trace::{self, State};

use crate::legfile::{LegSpec, Work};
use crate::triage::context::InFlight;

/// Name of the recording in an attempt's folder.
pub(super) const FILE: &str = "kernel-trace.bin";
const VARIABLE: &str = "LEGWORK_KERNEL_TRACE";

/// Sends the recording of an engine leg that makes one into the attempt's folder, unless the leg sends it elsewhere.
pub(super) fn variable(
    leg: &LegSpec,
    env: &[(String, String)],
    dir: &Path,
) -> Option<(String, String)> {
    let on = |k: &str, v: Option<&str>| env.iter().any(|(n, x)| n == k && v.is_none_or(|v| v == x));
    let wanted = matches!(leg.work, Work::Engine(_))
        && on("VT_KERNEL_TRACE", Some("1"))
        && !on(VARIABLE, None);
    wanted.then(|| {
        (
            VARIABLE.to_owned(),
            dir.join(FILE).to_string_lossy().into_owned(),
        )
    })
}

/// The first launch that was not known to be over: launches of a stream end in order, so it is the suspect.
pub(super) fn in_flight(dir: &Path) -> Option<InFlight> {
    let records = trace::read(&dir.join(FILE)).ok()?;
    let open: Vec<_> = records.iter().filter(|r| r.state != State::Done).collect();
    let first = open.first()?;
    Some(InFlight {
        kernel: first.kernel.clone(),
        seq: first.seq,
        grid: first.grid,
        threads: first.threads,
        state: match first.state {
            State::Starting => "starting",
            State::Failed => "failed",
            State::Issued | State::Done => "issued",
        }
        .to_owned(),
        open: open.len(),
        recorded: records.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use legwork_kernels::gpu::Launch;

    fn leg(text: &str) -> LegSpec {
        let text = format!("name: t\nlegs:\n  - {{name: a, {text}}}\n");
        crate::legfile::parse(Path::new("t"), Path::new("/"), &text)
            .unwrap()
            .legs
            .remove(0)
    }

    #[test]
    fn only_an_engine_that_records_is_sent_somewhere() {
        let on = vec![("VT_KERNEL_TRACE".to_owned(), "1".to_owned())];
        let engine = leg("engine: {model: 'builtin:mini', prompt: x, max_tokens: 1}");
        let to = variable(&engine, &on, Path::new("/a")).unwrap();
        assert_eq!(to.1, "/a/kernel-trace.bin");
        assert_eq!(variable(&engine, &[], Path::new("/a")), None);
        assert_eq!(
            variable(&leg("command: [/bin/true]"), &on, Path::new("/a")),
            None
        );
        let own = [on, vec![(VARIABLE.to_owned(), "/b".to_owned())]].concat();
        assert_eq!(variable(&engine, &own, Path::new("/a")), None);
    }

    #[test]
    fn the_first_launch_that_is_not_over_is_named() {
        let d = tempfile::tempdir().unwrap();
        assert_eq!(in_flight(d.path()), None);
        let mut t = trace::Trace::create(&d.path().join(FILE)).unwrap();
        let launch = |kernel| Launch {
            kernel,
            grid: [3, 2, 1],
            threads: 128,
            args: &[],
        };
        let a = t.begin(&launch("rms_norm"));
        t.issued(a, true);
        t.begin(&launch("mla_attention"));
        let f = in_flight(d.path()).unwrap();
        assert_eq!((f.kernel.as_str(), f.seq, f.open), ("rms_norm", 1, 2));
        assert_eq!(
            (f.state.as_str(), f.threads, f.recorded),
            ("issued", 128, 2)
        );
    }
}

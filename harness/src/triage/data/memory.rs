//! Killed for memory: the kernel's OOM killer, cgroup limits, user-space killers.

use super::sources::{OOM, OOMD};
use super::{Row, row};
use crate::triage::finding::{Finding, OomScope, Proc};
use crate::triage::pattern::{Caps, leading_decimal};

/// `Killed process 82743 (llama-server) total-vm:…`
fn killed(c: &Caps<'_>, scope: OomScope) -> Option<Finding> {
    let pid = c.num("pid")?;
    Some(Finding::OomKill {
        scope,
        process: Some(Proc {
            comm: c.text("comm"),
            pid: Some(pid),
            ..Proc::default()
        }),
        unit: String::new(),
    })
}

/// `oom-kill:constraint=CONSTRAINT_NONE,…,task_memcg=/x,task=llama-server,pid=82743,uid=1000`
fn summary(c: &Caps<'_>) -> Option<Finding> {
    let text = c.text("rest");
    let full = String::from_utf8_lossy(c.bytes("rest")).into_owned();
    let field = |key: &str| {
        full.split(',')
            .find_map(|kv| kv.trim().strip_prefix(key).map(str::to_owned))
    };
    let pid = field("pid=").and_then(|v| leading_decimal(v.as_bytes()));
    let scope = if full.contains("CONSTRAINT_MEMCG") {
        OomScope::Cgroup
    } else {
        OomScope::Global
    };
    let _ = text;
    pid.map(|pid| Finding::OomKill {
        scope,
        process: Some(Proc {
            comm: field("task=").unwrap_or_default(),
            pid: Some(pid),
            ..Proc::default()
        }),
        unit: field("task_memcg=").unwrap_or_default(),
    })
}

fn unit(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::OomKill {
        scope: OomScope::UserSpace,
        process: None,
        unit: c.text("unit"),
    })
}

fn daemon_kill(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::OomKill {
        scope: OomScope::UserSpace,
        process: Some(Proc {
            comm: c.text("comm").trim_matches('"').to_owned(),
            pid: c.num("pid"),
            ..Proc::default()
        }),
        unit: String::new(),
    })
}

/// Kernel lines, matched on the whole message.
pub const UNTAGGED: &[Row] = &[
    row(
        "Out of memory: Killed process {pid} ({comm}) {rest}",
        |c| killed(c, OomScope::Global),
        OOM,
    ),
    row(
        "Out of memory: Kill process {pid} ({comm}) {rest}",
        |c| killed(c, OomScope::Global),
        OOM,
    ),
    row(
        "Out of memory (oom_kill_allocating_task): Killed process {pid} ({comm}){rest}",
        |c| killed(c, OomScope::Global),
        OOM,
    ),
    row(
        "Memory cgroup out of memory: Killed process {pid} ({comm}) {rest}",
        |c| killed(c, OomScope::Cgroup),
        OOM,
    ),
    row(
        "Memory cgroup out of memory: Kill process {pid} ({comm}) {rest}",
        |c| killed(c, OomScope::Cgroup),
        OOM,
    ),
    row(
        "Killed process {pid} ({comm}) total-vm:{rest}",
        |c| killed(c, OomScope::Global),
        OOM,
    ),
    row("oom-kill:{rest}", summary, OOM),
    row(
        "{comm} invoked oom-killer: {rest}",
        |_| {
            Some(Finding::Hint {
                what: "memory ran out; the line that names the victim follows",
            })
        },
        OOM,
    ),
];

/// The same on messages that carry a tag.
pub const TAGGED: &[Row] = UNTAGGED;

/// systemd-oomd, systemd and earlyoom.
pub const DAEMONS: &[Row] = &[
    row("Killed {unit} due to memory pressure for {x}", unit, OOMD),
    row("Killed {unit} due to memory used {x}", unit, OOMD),
    row(
        "{unit}: systemd-oomd killed {n} process(es) in this unit",
        unit,
        OOMD,
    ),
    row(
        "{unit}: A process of this unit has been killed by the OOM killer",
        |_| {
            Some(Finding::Hint {
                what: "the unit lost a process to the OOM killer",
            })
        },
        OOMD,
    ),
    row("{unit}: Failed with result 'oom-kill'", unit, OOMD),
    row(
        "{unit}: Main process exited, code=killed, status=9/KILL",
        |_| {
            Some(Finding::Hint {
                what: "the unit's main process was killed",
            })
        },
        OOMD,
    ),
    row(
        "sending SIGTERM to process {pid} uid {uid} {comm}:{rest}",
        daemon_kill,
        OOMD,
    ),
    row(
        "sending SIGKILL to process {pid} uid {uid} {comm}:{rest}",
        daemon_kill,
        OOMD,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    #[test]
    fn victims_and_scopes() {
        let f = find(UNTAGGED, b"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/leg,task_memcg=/leg,task=legwork,pid=77,uid=0").unwrap().0;
        assert_eq!(
            f,
            Finding::OomKill {
                scope: OomScope::Cgroup,
                process: Some(Proc {
                    comm: "legwork".into(),
                    pid: Some(77),
                    ..Proc::default()
                }),
                unit: "/leg".into()
            }
        );
        assert!(matches!(
            find(
                UNTAGGED,
                b"Out of memory: Killed process 5 (a b) total-vm:1kB"
            )
            .unwrap()
            .0,
            Finding::OomKill {
                scope: OomScope::Global,
                ..
            }
        ));
        assert!(matches!(
            find(
                DAEMONS,
                b"Killed /system.slice/leg.service due to memory pressure for /system.slice"
            )
            .unwrap()
            .0,
            Finding::OomKill {
                scope: OomScope::UserSpace,
                ..
            }
        ));
        assert!(find(UNTAGGED, b"oom_reaper: reaped process 5 (a)").is_none());
    }
}

//! Incidents: GPU findings that belong to one event, from its first line to the end of its reset.

use crate::triage::finding::{Event, Finding, ResetStep};
use crate::triage::scope::{Owner, may_be_gpu_path};

use super::decision::Evidence;

/// Seconds after a finished reset during which its echoes still belong to it.
const ECHO_S: f64 = 10.0;
/// Seconds that may lie between two lines of one event that has no reset yet.
const QUIET_S: f64 = 120.0;

/// One GPU event and all that followed from it.
#[derive(Debug, Clone)]
pub struct Incident {
    /// Findings that belong to it, in order; the first is its cause.
    pub members: Vec<usize>,
    /// The finding that says most about the cause: the first, or the page fault that a wave's interrupt announced.
    pub guilty: usize,
    /// Whose the guilty finding is.
    pub owner: Owner,
    /// A reset began.
    pub reset: bool,
    /// The reset ended, well or badly.
    pub ended: bool,
    /// Position in the list of findings after which nothing of it was seen.
    last: usize,
}

/// Whether a finding can begin an incident.
fn begins(f: &Finding, driver: &str) -> bool {
    match f {
        Finding::GpuPageFault(_)
        | Finding::MesTimeout { .. }
        | Finding::HwsTimeout
        | Finding::SmuFailure { .. }
        | Finding::SqInterrupt { .. }
        | Finding::Xid { .. } => true,
        Finding::RingTimeout { soft_recovered, .. } => !soft_recovered,
        Finding::GpuReset(ResetStep::Begin { .. } | ResetStep::Disabled) => true,
        Finding::IommuFault { .. } => may_be_gpu_path(driver),
        _ => false,
    }
}

/// Whether a finding can be part of an incident at all.
fn of_a_gpu(e: &Event) -> bool {
    begins(&e.finding, &e.driver)
        || matches!(
            e.finding,
            Finding::GpuReset(_)
                | Finding::Boilerplate { .. }
                | Finding::RingTimeout { .. }
                | Finding::GpuInitFailed { .. }
                | Finding::DeviceLost
                | Finding::RasError {
                    correctable: false,
                    ..
                }
        )
}

fn owner_of(e: &Event, owner: Owner) -> Owner {
    match &e.finding {
        // vmid 0 is the kernel's own, whoever is printed.
        Finding::GpuPageFault(f) if f.is_kernel_space() => Owner::Nobody,
        _ => owner,
    }
}

/// Sorts the findings that count into incidents.
#[must_use]
pub fn incidents(ev: &Evidence<'_>) -> Vec<Incident> {
    let mut out: Vec<Incident> = Vec::new();
    for (i, e, owner) in ev.kernel().filter(|(_, e, _)| of_a_gpu(e)) {
        let owner = owner_of(e, owner);
        // The latest incident of the same device; lines without a device belong to the latest of all.
        let at = out.iter().rposition(|inc| {
            let d = ev.events[inc.guilty].device;
            match (d, e.device) {
                (Some(a), Some(b)) => a.same_device(b),
                _ => true,
            }
        });
        let joins = at.is_some_and(|k| joins(ev, &out[k], i, e, owner));
        match at {
            Some(k) if joins => add(ev, &mut out[k], i, e, owner),
            _ if begins(&e.finding, &e.driver) => out.push(Incident {
                members: vec![i],
                guilty: i,
                owner,
                reset: matches!(e.finding, Finding::GpuReset(_)),
                ended: false,
                last: i,
            }),
            _ => {}
        }
    }
    out
}

/// Whether finding `i` belongs to an incident.
fn joins(ev: &Evidence<'_>, inc: &Incident, i: usize, e: &Event, owner: Owner) -> bool {
    let last = &ev.events[inc.last];
    let gap = e.stamp.seconds_after(&last.stamp);
    let own_shader = matches!(&e.finding, Finding::GpuPageFault(f) if !f.is_kernel_space() && !f.no_page_table())
        || matches!(e.finding, Finding::Xid { .. });
    if !begins(&e.finding, &e.driver) {
        // Steps, boilerplate and the like follow whatever is open.
        return !inc.ended || gap.is_none_or(|g| g <= ECHO_S);
    }
    if inc.ended {
        return match gap {
            // Second resets within seconds are the same event; a fault of a named process is not.
            Some(g) => {
                g.abs() <= ECHO_S && !(own_shader && owner != Owner::Nobody && owner != inc.owner)
            }
            None => !own_shader,
        };
    }
    if inc.reset {
        return gap.is_none_or(|g| g <= QUIET_S);
    }
    // No reset yet: somebody else's fault does not cover a fault of ours, nor the reverse.
    if own_shader && owner != inc.owner && owner != Owner::Nobody {
        let only_wave = matches!(ev.events[inc.guilty].finding, Finding::SqInterrupt { .. });
        let scheduler = matches!(
            ev.events[inc.guilty].finding,
            Finding::MesTimeout { .. }
                | Finding::HwsTimeout
                | Finding::SmuFailure { .. }
                | Finding::RingTimeout { .. }
                | Finding::IommuFault { .. }
        );
        return only_wave || scheduler && i > inc.last;
    }
    gap.is_none_or(|g| g <= QUIET_S)
}

fn add(ev: &Evidence<'_>, inc: &mut Incident, i: usize, e: &Event, owner: Owner) {
    inc.members.push(i);
    inc.last = i;
    match &e.finding {
        Finding::GpuReset(ResetStep::Begin { .. } | ResetStep::Disabled) => inc.reset = true,
        Finding::GpuReset(ResetStep::Succeeded | ResetStep::Failed(_)) => {
            inc.reset = true;
            inc.ended = true;
        }
        Finding::Boilerplate { what } if what.starts_with("the reset itself worked") => {
            inc.ended = true
        }
        Finding::GpuPageFault(f) => promote(ev, inc, i, f.is_kernel_space(), owner),
        _ => {}
    }
}

/// A wave's interrupt carries no pid and the first page fault of a burst may carry no unit: a later fault of the same burst
/// that does takes the guilty finding's place, as long as nothing else has happened.
fn promote(ev: &Evidence<'_>, inc: &mut Incident, i: usize, kernel_space: bool, owner: Owner) {
    if inc.reset || kernel_space {
        return;
    }
    let burst = inc.members.iter().all(|&m| {
        matches!(
            ev.events[m].finding,
            Finding::GpuPageFault(_)
                | Finding::SqInterrupt { .. }
                | Finding::Boilerplate { .. }
                | Finding::Harmless { .. }
                | Finding::Hint { .. }
        )
    });
    if !burst {
        return;
    }
    let better = match &ev.events[inc.guilty].finding {
        Finding::SqInterrupt { .. } => true,
        Finding::GpuPageFault(first) => {
            let Finding::GpuPageFault(now) = &ev.events[i].finding else {
                return;
            };
            let blank = first.status == Some(0)
                || first.client() == crate::triage::fault_status::Client::Unknown;
            let told = now.status.is_some_and(|s| s != 0)
                || now.client_name.is_some() && now.status != Some(0);
            owner == inc.owner && blank && told && !first.is_kernel_space()
        }
        _ => false,
    };
    if better {
        inc.guilty = i;
        inc.owner = owner;
    }
}

//! The stack gate: could the software under a gfx1151 have faulted by itself?
//!
//! Before a shader fault is charged to the leg's GPU code, the stack must be known to be sound: the tuple that a stack with
//! the VGPR-count defect prints is identical to that of a kernel's own bug.

use legwork_reports::model::{StackGate, StackState};

use super::data::stack::{BAD_MES, KERNELS, ROCMS};
use super::facts::{Facts, version};

/// Judges the stack.
#[must_use]
pub fn judge(facts: &Facts) -> StackGate {
    let mut reasons = Vec::new();
    let Some(gfx) = facts.gfx.as_deref() else {
        return StackGate {
            state: StackState::NotApplicable,
            reasons: vec!["the GPU target is not known; the gate is for gfx1151".to_owned()],
        };
    };
    if gfx != "gfx1151" {
        return StackGate {
            state: StackState::NotApplicable,
            reasons: vec![format!(
                "{gfx} has no known stack defect that prints a shader fault"
            )],
        };
    }
    let mut bad = false;
    let mut unknown = false;
    match facts.mes {
        Some(v) => match BAD_MES.iter().find(|(b, _, _)| *b == v) {
            Some((_, note, source)) => {
                bad = true;
                reasons.push(format!("MES {v:#x}: {note} [{source}]"));
            }
            None => reasons.push(format!("MES {v:#x}: not among the known broken versions")),
        },
        None => {
            unknown = true;
            reasons.push("MES firmware version not recorded (sudo cat /sys/kernel/debug/dri/*/amdgpu_firmware_info)".to_owned());
        }
    }
    if facts.cwsr_enable == Some(false) {
        // Without context save the too small save area is never used.
        reasons.push(
            "amdgpu.cwsr_enable=0: waves are never saved, so the save-area defect cannot strike"
                .to_owned(),
        );
    } else {
        let (kernel_fixed, reason) = kernel_row(facts);
        reasons.push(reason);
        let (rocm_fixed, reason) = rocm_row(facts);
        reasons.push(reason);
        bad |= kernel_fixed == Some(false) || rocm_fixed == Some(false);
        unknown |= kernel_fixed.is_none() || rocm_fixed.is_none();
    }
    StackGate {
        state: if bad {
            StackState::Bad
        } else if unknown {
            StackState::Unknown
        } else {
            StackState::Good
        },
        reasons,
    }
}

fn kernel_row(facts: &Facts) -> (Option<bool>, String) {
    if facts.cwsr_size_exported == Some(true) {
        return (
            Some(true),
            "KFD exports cwsr_size: the kernel has the VGPR-size fix".to_owned(),
        );
    }
    let Some(release) = facts.kernel.as_deref() else {
        return (None, "kernel release not recorded (uname -r)".to_owned());
    };
    let Some((v, abi)) = version(release) else {
        return (None, format!("kernel release {release:?} cannot be read"));
    };
    match KERNELS.iter().find(|r| {
        v >= r.from && v < r.below && release.contains(r.flavour) && (r.abi == 0 || abi >= r.abi)
    }) {
        Some(r) => (
            r.fixed,
            format!("kernel {release}: {} [{}]", r.note, r.source),
        ),
        None => (None, format!("kernel {release}: nothing is known of it")),
    }
}

fn rocm_row(facts: &Facts) -> (Option<bool>, String) {
    let Some(release) = facts.rocm.as_deref() else {
        return (
            None,
            "ROCm release not recorded (cat /opt/rocm/.info/version)".to_owned(),
        );
    };
    let Some((v, _)) = version(release) else {
        return (None, format!("ROCm release {release:?} cannot be read"));
    };
    // "ROCm 7" may be a release on either side of the fix.
    if !release.contains('.') && v[0] == 7 {
        return (None, format!("ROCm {release}: which 7 is not recorded"));
    }
    match ROCMS.iter().find(|r| v >= r.from && v < r.below) {
        Some(r) => (
            r.fixed,
            format!("ROCm {release}: {} [{}]", r.note, r.source),
        ),
        None => (None, format!("ROCm {release}: nothing is known of it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(kernel: &str, rocm: &str, mes: Option<u32>, cwsr: Option<bool>) -> Facts {
        Facts {
            gfx: Some("gfx1151".to_owned()),
            kernel: (!kernel.is_empty()).then(|| kernel.to_owned()),
            rocm: (!rocm.is_empty()).then(|| rocm.to_owned()),
            mes,
            cwsr_enable: cwsr,
            ..Facts::default()
        }
    }

    // Expected states by hand from AMD's statements: ROCm/TheRock#2991, legacy-rocm-build#5724, #5991 and the support table.
    #[test]
    fn states_of_known_stacks() {
        use StackState::{Bad, Good, Unknown};
        for (kernel, rocm, mes, cwsr, want) in [
            ("6.18.7-generic", "7.2.1", Some(0x80), None, Good),
            ("7.0.0-15-generic", "7.14.0", Some(0x86), Some(true), Good),
            ("6.17.0-1018-oem", "7.2.4", Some(0x80), None, Good),
            ("6.17.0-1017-oem", "7.2.4", Some(0x80), None, Bad),
            ("6.17.0-14-generic", "7.2.4", Some(0x80), None, Bad),
            ("6.17.0-19-generic", "7.2.1", Some(0x80), None, Good),
            ("6.14.0-37-generic", "7.2.4", Some(0x80), None, Bad),
            ("6.18.7", "6.4.2", Some(0x80), None, Bad),
            ("6.18.7", "7.2.1", Some(0x83), None, Bad),
            ("6.18.7", "7.2.1", None, None, Unknown),
            ("6.18.2", "7.2.1", Some(0x80), None, Unknown),
            ("6.18.7", "7.2", Some(0x80), None, Unknown),
            ("6.18.7", "7", Some(0x80), None, Unknown),
            ("6.18.7", "6", Some(0x80), None, Bad),
            ("6.18.7", "7", Some(0x80), None, Unknown),
            ("6.18.7", "6", Some(0x80), None, Bad),
            ("6.14.0", "6.4", Some(0x80), Some(false), Good),
            ("6.14.0", "6.4", Some(0x83), Some(false), Bad),
            ("6.14.0", "6.4", None, Some(false), Unknown),
            ("", "7.2.1", Some(0x80), None, Unknown),
        ] {
            let g = judge(&facts(kernel, rocm, mes, cwsr));
            assert_eq!(
                g.state, want,
                "{kernel} {rocm} {mes:?} {cwsr:?}: {:?}",
                g.reasons
            );
        }
    }

    #[test]
    fn other_chips_are_not_gated() {
        let f = Facts {
            gfx: Some("gfx1100".into()),
            ..Facts::default()
        };
        assert_eq!(judge(&f).state, StackState::NotApplicable);
        assert_eq!(judge(&Facts::default()).state, StackState::NotApplicable);
    }
}

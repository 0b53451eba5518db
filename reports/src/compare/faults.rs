//! How often legs fault.

use crate::model::{Class, ComparedFaults, FaultRatio, Leg};
use crate::stats::{clopper_pearson, fisher_exact};

/// How many of a leg's counted attempts faulted. Attempts that the surroundings spoilt (`infra`) or that the evidence
/// does not decide are no trials.
#[must_use]
pub fn fault_ratio(leg: &Leg) -> FaultRatio {
    let (mut faulted, mut of) = (0, 0);
    for attempt in leg.counted() {
        match attempt.verdict.class {
            Class::Clean => of += 1,
            Class::Kernel | Class::Board | Class::Host => {
                faulted += 1;
                of += 1;
            }
            Class::Infra | Class::Inconclusive => {}
        }
    }
    FaultRatio {
        faulted,
        of,
        ci95: clopper_pearson(faulted, of),
    }
}

/// The fault ratios of two arms and Fisher's exact p.
#[must_use]
pub fn compare_faults(a: &Leg, b: &Leg) -> ComparedFaults {
    let (a, b) = (fault_ratio(a), fault_ratio(b));
    ComparedFaults {
        a,
        b,
        p: fisher_exact(a.faulted, a.of, b.faulted, b.of),
    }
}

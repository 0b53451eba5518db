//! From a leg set to the attempts in the order in which they run.
//!
//! `steps` orders the attempts, `variables` tells in what the legs differ and what is owed, `budget` compares the
//! deadlines with the lease, `table` prints it all.

mod budget;
mod steps;
mod table;
mod variables;

pub use budget::{Budget, budget};
pub use steps::{Step, draw_seed, steps};
pub use table::table;
pub use variables::{differences, owed, pair_differences, report_leg};

use legwork_reports::compare::Variable;
use legwork_reports::model::Owed;

use crate::legfile::LegSet;

/// The plan of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Seed of the order: the file's, or drawn.
    pub seed: u64,
    /// The attempts, in order.
    pub steps: Vec<Step>,
    /// Per leg: the variables in which it differs from the control; empty for the control and without a control.
    pub differs: Vec<Vec<Variable>>,
    /// Legs that a confounded leg leaves missing.
    pub owed: Vec<Owed>,
    /// Deadlines against the lease.
    pub budget: Budget,
    /// What the reader should know.
    pub warnings: Vec<String>,
}

/// Plans a leg set. `seed` is drawn by the caller when the file gives none, so that planning itself is pure.
#[must_use]
pub fn plan(set: &LegSet, drawn: u64) -> Plan {
    let seed = set.seed.unwrap_or(drawn);
    let steps = steps(set, seed);
    let control = set.legs.iter().find(|l| l.control);
    let differs = differences(set);
    let mut warnings = Vec::new();
    if control.is_none() && set.legs.len() > 1 {
        warnings.push(
            "no leg is marked `control: true`: nothing can be said about single variables"
                .to_owned(),
        );
    }
    for (leg, found) in set.legs.iter().zip(&differs) {
        if found.len() > 1 {
            let names: Vec<&str> = found.iter().map(|d| d.name.as_str()).collect();
            warnings.push(format!(
                "CONFOUNDED({}): leg `{}` differs from the control in {}",
                found.len(),
                leg.name,
                names.join(", ")
            ));
        }
        if found.is_empty() && !leg.control && control.is_some() {
            warnings.push(format!(
                "leg `{}` does not differ from the control in anything",
                leg.name
            ));
        }
    }
    let budget = budget(set, &steps);
    warnings.extend(budget.warning.clone());
    Plan {
        seed,
        owed: owed(set),
        steps,
        differs,
        budget,
        warnings,
    }
}

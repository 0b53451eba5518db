//! `legwork check`.

use legwork_reports::model::ExitCode;

use super::args::CheckArgs;
use super::terminal::Terminal;
use super::{Failure, out, run_cmd};
use crate::legfile::Selection;
use crate::plan::{draw_seed, plan, table};

/// Every file is checked, even when one before it is wrong.
pub(super) fn check(args: &CheckArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let mut wrong = Vec::new();
    for what in &args.what {
        match run_cmd::leg_set(what) {
            Ok(mut set) => {
                let selection = Selection {
                    max_runtime: args.max_runtime,
                    ..Selection::default()
                };
                if let Err(e) = set.select(&selection) {
                    wrong.push(e.to_string());
                    continue;
                }
                if args.no_plan {
                    out(&format!("{what}: right, {} legs\n", set.legs.len()))?;
                } else {
                    let plan = plan(&set, draw_seed());
                    out(&table(&set, &plan, Some(terminal.width)))?;
                }
            }
            Err(e) => wrong.push(e.message),
        }
    }
    if wrong.is_empty() {
        Ok(ExitCode::Pass)
    } else {
        Err(Failure::usage(wrong.join("\n")))
    }
}

//! `legwork doctor`.

use legwork_reports::model::ExitCode;

use super::args::DoctorArgs;
use super::{Failure, out};
use crate::board::{doctor, lock, quarantine};
use crate::os::root::Root;
use crate::run::current_board;

/// Prints the rows. What is missing is no failure: most machines lack something.
pub(super) fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if args.clear_quarantine {
        let board = current_board();
        let lifted = quarantine::clear(&lock::state_dir(), &board)
            .map_err(|e| Failure::new(ExitCode::Infra, format!("quarantine of `{board}`: {e}")))?;
        out(&format!(
            "board `{board}`: {}\n",
            if lifted {
                "quarantine lifted"
            } else {
                "was not in quarantine"
            }
        ))?;
        return Ok(ExitCode::Pass);
    }
    let rows = doctor::rows(&Root::new(args.sysroot.as_deref()), &args.out);
    let text = if args.json {
        format!("{:#}\n", doctor::json(&rows))
    } else {
        doctor::text(&rows)
    };
    out(&text)?;
    Ok(ExitCode::Pass)
}

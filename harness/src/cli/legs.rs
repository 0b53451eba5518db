//! `legwork legs`.

use std::path::Path;

use legwork_reports::model::ExitCode;

use super::args::LegsArgs;
use super::{Failure, out};
use crate::legfile::{BUILTINS, builtin, parse};

/// Lists the built-in leg sets, or prints one.
pub(super) fn legs(args: &LegsArgs) -> Result<ExitCode, Failure> {
    if let Some(name) = &args.name {
        let Some(found) = builtin(name) else {
            let names: Vec<&str> = BUILTINS.iter().map(|b| b.name).collect();
            return Err(Failure::usage(format!(
                "no built-in leg set `{name}`; built in: {}",
                names.join(", ")
            )));
        };
        out(found.text)?;
        return Ok(ExitCode::Pass);
    }
    for found in BUILTINS {
        let set = parse(Path::new(found.name), Path::new("/"), found.text)?;
        let legs: Vec<&str> = set.legs.iter().map(|l| l.name.as_str()).collect();
        out(&format!(
            "{:<12} {}\n{:<12} legs: {}\n",
            found.name,
            set.question.unwrap_or_default(),
            "",
            legs.join(", ")
        ))?;
    }
    Ok(ExitCode::Pass)
}

//! `legwork schema`.

use legwork_reports::model::ExitCode;

use super::args::SchemaOf;
use super::{Failure, out};

/// Prints a JSON Schema.
pub(super) fn schema(what: SchemaOf) -> Result<ExitCode, Failure> {
    let text = match what {
        SchemaOf::Leg => crate::legfile::leg_schema(),
        SchemaOf::Report => report_schema(),
    };
    out(&text)?;
    Ok(ExitCode::Pass)
}

fn report_schema() -> String {
    format!("{:#}\n", legwork_reports::schema::report_schema())
}

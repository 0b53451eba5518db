//! `report.json`.

use crate::model::Report;

/// The report as indented JSON with a final line feed.
pub(super) fn json(report: &Report) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    Ok(text)
}

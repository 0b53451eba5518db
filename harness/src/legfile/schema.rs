//! The JSON Schema of leg files, generated from the document's structs.

use schemars::generate::SchemaSettings;

use super::doc::LegFile;

/// The schema as pretty JSON with a final newline: what `legwork schema leg` prints and what is committed as
/// `harness/schema/leg.schema.json`.
#[must_use]
pub fn leg_schema() -> String {
    let mut schema = SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<LegFile>();
    schema.insert("title".to_owned(), "legwork leg file, version 1".into());
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

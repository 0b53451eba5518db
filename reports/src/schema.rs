//! The JSON Schema of `report.json`.

use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::model::{REPORT_SCHEMA, REPORT_VERSION, Report};

/// The schema (draft 2020-12) of the format that this version writes. `null` stands for what was not observed.
#[must_use]
pub fn report_schema() -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.into_root_schema_for::<Report>().to_value();
    if let Some(object) = schema.as_object_mut() {
        object.insert(
            "$id".to_owned(),
            Value::String(format!("{REPORT_SCHEMA}/{REPORT_VERSION}")),
        );
    }
    schema
}

/// A report that this version cannot read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// It is something else.
    #[error("`schema` is `{0}`: not a legwork report (expected `{REPORT_SCHEMA}`)")]
    NotAReport(String),
    /// It is of a later or an earlier major version.
    #[error(
        "report format {0} cannot be read by this legwork (it reads {REPORT_VERSION}): use the legwork that wrote it, or a newer one"
    )]
    Version(String),
    /// It cannot be parsed.
    #[error("report.json cannot be read: {0}")]
    Json(String),
}

/// Reads a `report.json`. Unknown keys are passed over, so that a later minor version can be read.
///
/// # Errors
/// When it is no report, of another major version, or not as the schema says.
pub fn read_report(json: &str) -> Result<Report, ReadError> {
    let value: Value = serde_json::from_str(json).map_err(|e| ReadError::Json(e.to_string()))?;
    let word = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    if word("schema") != REPORT_SCHEMA {
        return Err(ReadError::NotAReport(word("schema")));
    }
    let major = |v: &str| v.split('.').next().map(str::to_owned);
    if major(&word("version")) != major(REPORT_VERSION) {
        return Err(ReadError::Version(word("version")));
    }
    serde_json::from_value(value).map_err(|e| ReadError::Json(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples::{inconclusive, kernel_fault, pass};
    use crate::render::{Format, Options, render};

    /// Set `LEGWORK_UPDATE_SCHEMA=1` to write the committed file anew.
    #[test]
    fn committed_schema_is_the_generated_one() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schema/report.schema.json");
        let mut generated = serde_json::to_string_pretty(&report_schema()).unwrap();
        generated.push('\n');
        if std::env::var_os("LEGWORK_UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == generated,
            "reports/schema/report.schema.json is not what the types say: run this test with LEGWORK_UPDATE_SCHEMA=1"
        );
    }

    fn errors(value: &Value) -> Vec<String> {
        let validator = jsonschema::validator_for(&report_schema()).unwrap();
        validator
            .iter_errors(value)
            .map(|e| e.to_string())
            .collect()
    }

    #[test]
    fn what_is_written_is_valid_and_reads_back_the_same() {
        for report in [pass(), kernel_fault(), inconclusive()] {
            let json = render(&report, Format::Json, &Options::default()).unwrap();
            assert_eq!(
                errors(&serde_json::from_str(&json).unwrap()),
                Vec::<String>::new()
            );
            assert_eq!(read_report(&json).unwrap(), report);
        }
    }

    #[test]
    fn schema_refuses_what_is_wrong() {
        let good: Value = serde_json::to_value(pass()).unwrap();
        let mut bad = good.clone();
        bad["legs"][0]["attempts"][0]["verdict"]["class"] = "gremlins".into();
        assert!(!errors(&bad).is_empty());
        let mut bad = good.clone();
        bad["exit_code"] = (-1).into();
        assert!(!errors(&bad).is_empty());
        let mut bad = good;
        bad.as_object_mut().unwrap().remove("legs");
        assert!(!errors(&bad).is_empty());
    }

    #[test]
    fn other_files_and_versions_are_refused_in_words() {
        let read = |json: &str| read_report(json).unwrap_err();
        assert_eq!(read("{}"), ReadError::NotAReport(String::new()));
        assert!(matches!(read("{"), ReadError::Json(_)));
        let later = r#"{"schema": "legwork.report", "version": "2.0"}"#;
        assert_eq!(read(later), ReadError::Version("2.0".to_owned()));
        let minor = serde_json::to_string(&pass())
            .unwrap()
            .replacen("\"1.0\"", "\"1.7\"", 1);
        let minor = minor.replacen("{", "{\"new_key\": 3,", 1);
        assert!(read_report(&minor).is_ok());
    }
}

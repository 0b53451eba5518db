//! A leg as the report tells of it.

use legwork_reports::model::{Leg, LegKind};

use crate::legfile::{LegSpec, Work};

/// The report's leg, without attempts.
pub(super) fn report_leg(leg: &LegSpec, binary_sha256: Option<String>) -> Leg {
    let (kind, settings) = match &leg.work {
        Work::Engine(keys) => (
            LegKind::Engine,
            keys.settings()
                .into_iter()
                .map(|(k, v)| {
                    (
                        k.to_owned(),
                        serde_json::from_str(&v).unwrap_or(serde_json::Value::String(v)),
                    )
                })
                .collect(),
        ),
        Work::Command(_) => (LegKind::Command, Default::default()),
        Work::Script { .. } => (LegKind::Script, Default::default()),
    };
    Leg {
        control: leg.control,
        diagnostic: leg.diagnostic,
        env: leg.env.clone(),
        command: leg.command_line(),
        designed: leg.repeat,
        kind: Some(kind),
        settings,
        binary_sha256,
        ..Leg::new(&leg.name)
    }
}

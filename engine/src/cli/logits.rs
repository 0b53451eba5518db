//! `legwork engine logits`: what a forward computes, for comparison with an oracle.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;

use super::read_file;
use crate::events::Events;
use crate::forward::{Probe, Row, Step, Wanted};
use crate::sampling::greedy;
use crate::session::{EngineError, ModelOptions, Session};

/// Arguments of `logits`.
#[derive(Debug, Clone, Args)]
pub struct LogitsArgs {
    #[command(flatten)]
    model: ModelOptions,
    /// Token ids
    #[arg(
        long,
        value_name = "1,2,3",
        value_delimiter = ',',
        required_unless_present = "tokens_file",
        conflicts_with = "tokens_file"
    )]
    tokens: Option<Vec<u32>>,
    /// File with token ids, separated by blanks, commas or line ends
    #[arg(long, value_name = "F")]
    tokens_file: Option<PathBuf>,
    /// Where the JSON goes [default: stdout]
    #[arg(long, short, value_name = "F.json")]
    out: Option<PathBuf>,
}

pub(super) fn run(a: &LogitsArgs, events: &Arc<Events>) -> Result<(), EngineError> {
    let ids = match (&a.tokens, &a.tokens_file) {
        (Some(ids), _) => ids.clone(),
        (None, Some(path)) => parse_ids(&read_file(path)?, &path.display().to_string())?,
        (None, None) => Vec::new(),
    };
    if ids.is_empty() {
        return Err(EngineError::Usage("no token ids were given".to_owned()));
    }
    let mut session = Session::load(&a.model, 1, |_, _| Ok(ids.len()), Arc::clone(events))?;
    let chunk = session.forward.max_rows();
    let (mut probe, mut argmax, mut last) = (Probe::default(), Vec::new(), Vec::new());
    let (mut nll, mut failed) = (0.0f64, None);
    for (c, part) in ids.chunks(chunk).enumerate() {
        let rows = Row::run(part, c * chunk, 0);
        session.forward.step(
            &Step {
                rows: &rows,
                wanted: Wanted::All,
            },
            Some(&mut probe),
            &mut |_, logits| {
                match greedy(logits) {
                    Ok(id) => argmax.push(id),
                    Err(e) => failed = Some(e),
                }
                if let Some(next) = ids.get(argmax.len()) {
                    nll += negative_log_likelihood(logits, *next);
                }
                logits.clone_into(&mut last);
            },
        )?;
    }
    if let Some(e) = failed {
        return Err(e.into());
    }
    session.report_reference_hits();
    let document = json!({
        "last_logits": last,
        "argmax": argmax,
        "hidden_last_by_layer": probe.hidden,
        "selected_last_by_layer": probe.selected,
        "mean_nll": (ids.len() > 1).then(|| nll / (ids.len() - 1) as f64),
        "reference_tier_hits": session.forward.registry().reference_hits(),
    });
    match &a.out {
        Some(path) => {
            std::fs::write(path, document.to_string() + "\n").map_err(|source| EngineError::Io {
                path: path.display().to_string(),
                source,
            })
        }
        None => {
            println!("{document}");
            Ok(())
        }
    }
}

/// `-ln softmax(logits)[id]`.
fn negative_log_likelihood(logits: &[f32], id: u32) -> f64 {
    let max = logits.iter().copied().fold(f32::MIN, f32::max);
    let sum: f64 = logits.iter().map(|v| f64::from(v - max).exp()).sum();
    let own = logits
        .get(id as usize)
        .copied()
        .unwrap_or(f32::NEG_INFINITY);
    sum.ln() - f64::from(own - max)
}

fn parse_ids(text: &str, path: &str) -> Result<Vec<u32>, EngineError> {
    let mut ids = Vec::new();
    for (n, line) in text.lines().enumerate() {
        for word in line
            .split(|c: char| c.is_whitespace() || c == ',')
            .filter(|w| !w.is_empty())
        {
            let id = word.parse().map_err(|_| {
                EngineError::Usage(format!("{path}:{}: `{word}` is not a token id", n + 1))
            })?;
            ids.push(id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_in_any_spacing_and_errors_name_the_line() {
        assert_eq!(parse_ids("1, 2\n3\t4,5\n", "t").unwrap(), [1, 2, 3, 4, 5]);
        assert_eq!(
            parse_ids("1\n2 x3", "t").unwrap_err().to_string(),
            "t:2: `x3` is not a token id"
        );
    }

    #[test]
    fn likelihood_of_equal_logits() {
        assert!((negative_log_likelihood(&[1.0; 8], 3) - 8f64.ln()).abs() < 1e-12);
    }
}

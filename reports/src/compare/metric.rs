//! One metric of two arms.

use crate::format::probability;
use crate::metrics::{Better, describe};
use crate::model::ComparedMetric;
use crate::stats::{self, SampleSize};

/// `method` of a metric for which nothing could be computed.
pub const METHOD_NONE: &str = "none";

/// Compares the samples of two arms: medians, ratio, 95 % interval, two-sided p, and what their number can show.
///
/// `void` is why no ratio may be printed; medians of the samples that there are stay.
#[must_use]
pub fn compare_metric(
    name: &str,
    a: Vec<f64>,
    b: Vec<f64>,
    void: Option<String>,
    max_loss_pct: Option<f64>,
) -> ComparedMetric {
    let metric = describe(name);
    let (a_median, b_median) = (stats::median(&a), stats::median(&b));
    let mut out = ComparedMetric {
        metric: name.to_owned(),
        a_median,
        b_median,
        ratio: None,
        ratio_ci95: None,
        p: None,
        method: METHOD_NONE.to_owned(),
        void_reason: void,
        unit: metric.unit.suffix().to_owned(),
        note: None,
        detectable_pct: None,
        max_loss_pct,
        regressed: None,
        a,
        b,
    };
    if out.void_reason.is_some() {
        return out;
    }
    let (Some(m_a), Some(m_b)) = (a_median, b_median) else {
        return out;
    };
    out.ratio = (m_a != 0.0).then(|| m_b / m_a).filter(|r| r.is_finite());
    // The interval of two samples is their range: it would promise more than it holds.
    if out.a.len() >= 3 && out.b.len() >= 3 {
        out.ratio_ci95 = stats::ratio_of_medians_ci(&out.a, &out.b);
    }
    let mut method = Vec::new();
    if out.ratio_ci95.is_some() {
        method.push(format!(
            "ratio of medians: percentile bootstrap, {} resamples, fixed seed",
            stats::BOOTSTRAP_RESAMPLES
        ));
    }
    if let Some(test) = stats::two_sample_p(&out.a, &out.b) {
        out.p = Some(test.p);
        method.push(format!("p: {}", test.method));
    }
    if !method.is_empty() {
        out.method = method.join("; ");
    }
    match stats::sample_size(out.a.len(), out.b.len()) {
        SampleSize::Missing => {}
        SampleSize::TooSmall(p) => {
            out.note = Some(format!(
                "n too small: {} against {} samples cannot reach p < 0.05, whatever they are (smallest possible: {})",
                out.a.len(),
                out.b.len(),
                probability(p)
            ));
        }
        SampleSize::Enough => {
            out.detectable_pct = stats::detectable_pct(&out.a, &out.b);
        }
    }
    out.regressed = regressed(&out, metric.better);
    out
}

/// Worse than allowed, and not by chance: the ratio lies beyond the bound, and its whole interval on the side of loss.
///
/// `None` when there is no bound, no direction, no ratio, or fewer than three samples in an arm: an interval of two is
/// worth nothing.
fn regressed(m: &ComparedMetric, better: Better) -> Option<bool> {
    let (loss, ratio) = (m.max_loss_pct?, m.ratio?);
    let worse_by = match better {
        Better::Higher => 100.0 * (1.0 - ratio),
        Better::Lower => 100.0 * (ratio - 1.0),
        Better::Neither => return None,
    };
    if worse_by <= loss {
        return Some(false);
    }
    if m.a.len() < 3 || m.b.len() < 3 {
        return None;
    }
    let [low, high] = m.ratio_ci95?;
    Some(match better {
        Better::Higher => high < 1.0,
        _ => low > 1.0,
    })
}

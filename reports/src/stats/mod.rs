//! Statistics of a handful of samples.
//!
//! Runs on a board are dear: three to ten samples per arm are the rule. So everything here is either exact
//! (permutation test, Fisher, Clopper-Pearson) or says when there are too few samples to say anything. Nothing is
//! random: the bootstrap draws from a generator with a fixed seed, so a report rendered again is the same report.
//!
//! Every function takes samples as they are; values that are not finite are not samples and are dropped.

mod bootstrap;
mod detect;
mod proportion;
mod special;
mod summary;
mod two_sample;

pub use bootstrap::{BOOTSTRAP_RESAMPLES, ratio_of_medians_ci};
pub use detect::{SampleSize, detectable_pct, sample_size};
pub use proportion::{clopper_pearson, fisher_exact};
pub use summary::{Summary, mad, mean, median, percentile, summary};
pub use two_sample::{EXACT_LIMIT, TwoSample, smallest_p, two_sample_p};

/// The finite values of `samples`, ascending.
fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut v: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    v.sort_by(f64::total_cmp);
    v
}

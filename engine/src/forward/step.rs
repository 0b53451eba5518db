//! What a step is given and what it gives back.

use super::AttentionForm;
use crate::model::Config;

/// One token of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Token id.
    pub token: u32,
    /// Position in its sequence; the rows of a sequence come in order of position.
    pub position: u32,
    /// Its sequence.
    pub sequence: u32,
}

impl Row {
    /// Consecutive tokens of a sequence, the first of them at position `first`.
    #[must_use]
    pub fn run(tokens: &[u32], first: usize, sequence: usize) -> Vec<Row> {
        tokens
            .iter()
            .zip(first..)
            .map(|(token, position)| Row {
                token: *token,
                position: position as u32,
                sequence: sequence as u32,
            })
            .collect()
    }
}

/// Which rows' logits are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// None: an inner chunk of a prefill.
    None,
    /// The last row's.
    Last,
    /// All rows', in order.
    All,
}

/// Tokens that go through the model together.
#[derive(Debug, Clone, Copy)]
pub struct Step<'a> {
    /// The tokens.
    pub rows: &'a [Row],
    /// Which logits are wanted.
    pub wanted: Wanted,
}

impl Step<'_> {
    /// Whether some row has more keys than are selected.
    pub(super) fn sparse(&self, config: &Config) -> bool {
        let mut rows = self.rows.iter();
        rows.any(|r| config.sparse_at(r.position as usize))
    }
}

impl Wanted {
    /// The wanted ones of `rows` rows.
    pub(super) fn of(self, rows: usize) -> std::ops::Range<usize> {
        match self {
            Wanted::None => rows..rows,
            Wanted::Last => rows.saturating_sub(1)..rows,
            Wanted::All => 0..rows,
        }
    }
}

/// What a step's operations depend on besides the contents of buffers: two steps of one shape call the same operations with
/// the same arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Which logits are wanted.
    pub wanted: Wanted,
    /// Whether some row has more keys than the indexer selects.
    pub sparse: bool,
    /// Form of attention.
    pub form: AttentionForm,
    /// All cache slots in reach lie before this one.
    pub slot_end: usize,
}

/// What to look at while a step runs; filled when given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Probe {
    /// The last row's hidden state: the embedding, then after each layer.
    pub hidden: Vec<Vec<f32>>,
    /// Per layer, the keys that the last row attended to, ascending; `None` in a dense step.
    pub selected: Vec<Option<Vec<i32>>>,
}

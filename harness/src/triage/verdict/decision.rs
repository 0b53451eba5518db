//! A decision in the making.

use legwork_reports::model::{Class, Confidence, StackGate};

use crate::triage::context::{Context, Ending};
use crate::triage::facts::Facts;
use crate::triage::finding::{Event, Finding, Origin, Word};
use crate::triage::pci::Pci;
use crate::triage::scope::{Owner, Place, Scope};
use crate::triage::settle::Settle;

/// Everything that the questions look at.
pub struct Evidence<'a> {
    /// What the harness knew.
    pub ctx: &'a Context,
    /// Kernel findings, then program findings, each in the order read.
    pub events: &'a [Event],
    /// Where each stands.
    pub places: Vec<Place>,
    /// Whose is whose.
    pub scope: &'a Scope,
    /// The board and its software.
    pub facts: &'a Facts,
    /// The leader's end; a crashed descendant's when the leader claims success.
    pub ending: Ending,
    /// The end is a descendant's, and the leader claimed success.
    pub hidden_crash: bool,
    /// Whether a kernel log was read.
    pub has_kernel_log: bool,
    /// Devices that drivers other than a GPU's speak for.
    pub others: &'a [Pci],
}

impl Evidence<'_> {
    /// Kernel findings that count, with their index and owner.
    pub fn kernel(&self) -> impl Iterator<Item = (usize, &Event, Owner)> {
        self.events
            .iter()
            .enumerate()
            .filter_map(|(i, e)| match self.places[i] {
                Place::Inside(o) if e.origin == Origin::Kernel => Some((i, e, o)),
                _ => None,
            })
    }

    /// What the program said, with its index.
    pub fn words(&self) -> impl Iterator<Item = (usize, &Event, Word)> {
        self.events
            .iter()
            .enumerate()
            .filter_map(|(i, e)| match &e.finding {
                Finding::Program { word, .. } => Some((i, e, *word)),
                _ => None,
            })
    }

    /// Index of the first use of one of these words.
    pub fn said(&self, words: &[Word]) -> Option<usize> {
        self.words()
            .find(|(_, _, w)| words.contains(w))
            .map(|(i, _, _)| i)
    }

    /// The leg's own GPU code is new.
    #[must_use]
    pub fn new_code(&self) -> bool {
        self.ctx.own_gpu_code.as_deref() == Some("new")
    }

    /// The leg's GPU code is known to work elsewhere.
    #[must_use]
    pub fn known_good(&self) -> bool {
        matches!(
            self.ctx.own_gpu_code.as_deref(),
            Some("known_good" | "none")
        )
    }
}

/// Another reading of the same lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Alternate {
    /// Class of the other reading.
    pub class: Class,
    /// Its kind.
    pub kind: String,
    /// When it would hold.
    pub why: String,
}

/// What was decided, and by which findings.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Whose fault.
    pub class: Class,
    /// Slug.
    pub kind: String,
    /// How much the evidence carries.
    pub confidence: Confidence,
    /// Why, in a sentence.
    pub why: String,
    /// Findings that decided.
    pub decides: Vec<usize>,
    /// Findings that agree, and why.
    pub supports: Vec<(usize, String)>,
    /// Evidence that is no log line decided: source, text, finding.
    pub fact: Option<(&'static str, String, &'static str)>,
    /// Title; made from the first deciding finding when empty.
    pub title: String,
    /// Other readings.
    pub alternates: Vec<Alternate>,
    /// The stack gate, where it was asked.
    pub gate: Option<StackGate>,
    /// What would settle it.
    pub settle: Vec<Settle>,
    /// What to know besides.
    pub warnings: Vec<String>,
}

impl Decision {
    /// A decision by one finding.
    pub fn by(
        index: usize,
        class: Class,
        kind: impl Into<String>,
        confidence: Confidence,
        why: impl Into<String>,
    ) -> Self {
        Decision {
            decides: vec![index],
            ..Decision::plain(class, kind, confidence, why)
        }
    }

    /// A decision without a log line.
    pub fn plain(
        class: Class,
        kind: impl Into<String>,
        confidence: Confidence,
        why: impl Into<String>,
    ) -> Self {
        Decision {
            class,
            kind: kind.into(),
            confidence,
            why: why.into(),
            decides: Vec::new(),
            supports: Vec::new(),
            fact: None,
            title: String::new(),
            alternates: Vec::new(),
            gate: None,
            settle: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// A decision by a fact of the context.
    pub fn fact(
        source: &'static str,
        text: impl Into<String>,
        finding: &'static str,
        class: Class,
        kind: impl Into<String>,
        confidence: Confidence,
        why: impl Into<String>,
    ) -> Self {
        Decision {
            fact: Some((source, text.into(), finding)),
            ..Decision::plain(class, kind, confidence, why)
        }
    }

    /// Adds what would settle it.
    #[must_use]
    pub fn settle(mut self, s: &[Settle]) -> Self {
        for x in s {
            if !self.settle.contains(x) {
                self.settle.push(*x);
            }
        }
        self
    }

    /// Adds another reading.
    #[must_use]
    pub fn or(mut self, class: Class, kind: impl Into<String>, why: impl Into<String>) -> Self {
        self.alternates.push(Alternate {
            class,
            kind: kind.into(),
            why: why.into(),
        });
        self
    }

    /// Adds a finding that agrees.
    #[must_use]
    pub fn with(mut self, index: Option<usize>, why: &str) -> Self {
        if let Some(i) = index
            && !self.decides.contains(&i)
        {
            self.supports.push((i, why.to_owned()));
        }
        self
    }
}

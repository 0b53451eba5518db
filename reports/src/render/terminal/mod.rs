//! Text for a terminal.

mod table;

use table::table_text;

use super::document::{Block, Chain, Document, Section, Tone, role_word};
use super::{Detail, Options, Renderer};
use crate::model::Role;

/// Text for a terminal, of the width and colours that the options name.
pub struct Terminal;

/// The narrowest layout.
const NARROWEST: u16 = 40;

impl Renderer for Terminal {
    fn render(&self, document: &Document, options: &Options) -> String {
        let mut out = headline(document, options);
        for section in &document.sections {
            if options.detail == Detail::Full || section.essential {
                out.push('\n');
                out.push_str(&self.section(section, options));
            }
        }
        if options.detail == Detail::Full {
            out.push('\n');
            out.push_str(&paint(&document.footer, Tone::Muted, options));
            out.push('\n');
        }
        out
    }
}

impl Terminal {
    fn section(&self, section: &Section, options: &Options) -> String {
        let mut out = String::new();
        out.push_str(&bold(&section.title, options));
        out.push('\n');
        for (i, block) in section.blocks.iter().enumerate() {
            // A paragraph after a table opens a new thought.
            if i > 0 && matches!(block, Block::Text(_) | Block::Chain(_) | Block::Facts(_)) {
                out.push('\n');
            }
            out.push_str(&block_text(block, options));
        }
        out
    }
}

fn block_text(block: &Block, options: &Options) -> String {
    match block {
        Block::Text(text) => wrapped(text, "  ", "  ", options),
        Block::Note(text) => {
            let text = wrapped(text, "  ", "  ", options);
            paint_lines(&text, Tone::Muted, options)
        }
        Block::Warning(text) => {
            let text = wrapped(text, "  ", "  ", options);
            paint_lines(&text, Tone::Warn, options)
        }
        Block::Table(table) => table_text(table, options),
        Block::Facts(facts) => facts_text(facts, "  ", options),
        Block::List(items) => items
            .iter()
            .map(|i| wrapped(i, "  - ", "    ", options))
            .collect(),
        Block::Code(text) => text.lines().map(|l| format!("  {l}\n")).collect(),
        Block::Chain(chain) => chain_text(chain, options),
        Block::Chart(_) => String::new(),
    }
}

fn headline(document: &Document, options: &Options) -> String {
    let mut out = joined(
        &[
            (document.status.clone(), Tint::Strong(document.tone)),
            (document.title.clone(), Tint::Bold),
            (document.subtitle.clone(), Tint::Tone(Tone::Muted)),
        ],
        "",
        options,
    );
    out.push_str(&facts_text(&document.summary, "", options));
    out
}

fn facts_text(facts: &[(String, String)], indent: &str, options: &Options) -> String {
    let longest = facts
        .iter()
        .map(|(name, _)| width_of(name))
        .max()
        .unwrap_or(0);
    let column = longest.min(28);
    let mut out = String::new();
    for (name, value) in facts {
        let pad = column.saturating_sub(width_of(name));
        let label = format!("{indent}{}{}  ", name, " ".repeat(pad));
        let rest = " ".repeat(width_of(indent) + column + 2);
        let text = wrapped(value, &label, &rest, options);
        if options.color {
            // The label is the beginning of the first line, so it can be painted after wrapping.
            let painted = paint(&label, Tone::Muted, options);
            out.push_str(&text.replacen(&label, &painted, 1));
        } else {
            out.push_str(&text);
        }
    }
    out
}

fn chain_text(chain: &Chain, options: &Options) -> String {
    let mut out = joined(
        &[
            (chain.of.clone(), Tint::Bold),
            (
                format!("{}: {}", chain.class, chain.kind),
                Tint::Strong(chain.tone),
            ),
            (
                format!("({} confidence)", chain.confidence),
                Tint::Tone(Tone::Muted),
            ),
        ],
        "  ",
        options,
    );
    if !chain.title.is_empty() {
        out.push_str(&wrapped(&chain.title, "  ", "  ", options));
    }
    out.push_str(&facts_text(&chain.facts, "    ", options));
    let mut passed_over = [0usize; 2];
    for step in &chain.steps {
        let (mark, tone) = match step.role {
            Role::Decides => ("►", chain.tone),
            Role::Supports => ("+", Tone::Plain),
            Role::Consequence => ("·", Tone::Muted),
            Role::Ignored => ("-", Tone::Muted),
        };
        if options.detail == Detail::Brief {
            match step.role {
                Role::Consequence => {
                    passed_over[0] += 1;
                    continue;
                }
                Role::Ignored => {
                    passed_over[1] += 1;
                    continue;
                }
                _ => {}
            }
        }
        let head = format!("{} {} [{}]", role_word(step.role), step.place, step.finding);
        let head = wrapped(&head, &format!("    {mark} "), "      ", options);
        out.push_str(&paint_lines(&head, tone, options));
        out.push_str(&wrapped(&step.text, "      │ ", "      │ ", options));
        let why = wrapped(&step.why, "      ", "      ", options);
        out.push_str(&paint_lines(&why, Tone::Muted, options));
    }
    let [after, aside] = passed_over;
    if after + aside > 0 {
        let words = format!(
            "    {after} lines that only follow from it and {aside} set aside are in the full report\n"
        );
        out.push_str(&paint_lines(&words, Tone::Muted, options));
    }
    for way in &chain.would_settle {
        out.push_str(&wrapped(way, "    would settle it: ", "      ", options));
    }
    out
}

/// The words wrapped at the width, the first line behind `first`, the others behind `rest`. A word longer than a line is
/// cut. Runs of spaces inside quoted lines collapse at a break only.
fn wrapped(text: &str, first: &str, rest: &str, options: &Options) -> String {
    let width = usize::from(options.width.max(NARROWEST));
    let mut out = String::new();
    let mut line = first.to_owned();
    let mut used = width_of(first);
    let mut empty = true;
    for word in text.split(' ') {
        let mut word = word;
        loop {
            let gap = usize::from(!empty);
            let length = width_of(word);
            if used + gap + length <= width {
                if !empty {
                    line.push(' ');
                }
                line.push_str(word);
                used += gap + length;
                empty = false;
                break;
            }
            if empty {
                let room = width.saturating_sub(used).max(8);
                let at = word
                    .char_indices()
                    .nth(room)
                    .map_or(word.len(), |(at, _)| at);
                line.push_str(&word[..at]);
                word = &word[at..];
                if word.is_empty() {
                    empty = false;
                    used += room;
                    break;
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
            line = rest.to_owned();
            used = width_of(rest);
            empty = true;
        }
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}

/// How a piece of a line is painted.
enum Tint {
    Strong(Tone),
    Bold,
    Tone(Tone),
}

/// Pieces in one line, or as many lines as the width makes of them; each piece is painted after it has its place.
fn joined(pieces: &[(String, Tint)], indent: &str, options: &Options) -> String {
    let width = usize::from(options.width.max(NARROWEST));
    let mut out = String::new();
    let mut used = 0;
    for (text, tint) in pieces.iter().filter(|(text, _)| !text.is_empty()) {
        let length = width_of(text);
        if used > 0 && used + 2 + length <= width {
            out.push_str("  ");
            used += 2 + length;
        } else {
            if used > 0 {
                out.push('\n');
            }
            out.push_str(indent);
            used = width_of(indent) + length;
        }
        let room = width.saturating_sub(width_of(indent));
        let text = crate::format::shorten(text, room);
        out.push_str(&match tint {
            Tint::Strong(tone) => strong(&text, *tone, options),
            Tint::Bold => bold(&text, options),
            Tint::Tone(tone) => paint(&text, *tone, options),
        });
    }
    out.push('\n');
    out
}

fn width_of(text: &str) -> usize {
    text.chars().count()
}

fn code(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "0",
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Warn => "33",
        Tone::Muted => "90",
    }
}

fn paint(text: &str, tone: Tone, options: &Options) -> String {
    if options.color && tone != Tone::Plain && !text.is_empty() {
        format!("\x1b[{}m{text}\x1b[0m", code(tone))
    } else {
        text.to_owned()
    }
}

fn paint_lines(text: &str, tone: Tone, options: &Options) -> String {
    text.lines()
        .map(|l| format!("{}\n", paint(l, tone, options)))
        .collect()
}

fn strong(text: &str, tone: Tone, options: &Options) -> String {
    if options.color {
        format!("\x1b[1;{}m{text}\x1b[0m", code(tone))
    } else {
        text.to_owned()
    }
}

fn bold(text: &str, options: &Options) -> String {
    if options.color {
        format!("\x1b[1m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// A chain alone, for a verdict without a run.
pub(super) fn chain_alone(chain: &Chain, options: &Options) -> String {
    chain_text(chain, options)
}

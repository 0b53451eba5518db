//! GitHub-flavoured Markdown.

use super::document::{Align, Block, Cell, Chain, Document, Table, Tone, role_word};
use super::{Options, Renderer};

/// GitHub-flavoured Markdown: pasted into an issue it looks as it should.
pub struct Markdown;

impl Renderer for Markdown {
    fn render(&self, document: &Document, _options: &Options) -> String {
        let mut out = format!(
            "# {} {}: {}\n\n",
            mark(document.tone),
            document.status,
            escape(&document.title)
        );
        out.push_str(&format!("**{}**\n\n", escape(&document.subtitle)));
        for (name, value) in &document.summary {
            out.push_str(&format!("- **{}:** {}\n", escape(name), escape(value)));
        }
        for section in &document.sections {
            out.push_str(&format!("\n## {}\n", escape(&section.title)));
            for block in &section.blocks {
                let text = block_text(block);
                if !text.is_empty() {
                    out.push('\n');
                    out.push_str(&text);
                }
            }
        }
        out.push_str(&format!("\n---\n{}\n", escape(&document.footer)));
        out
    }
}

fn mark(tone: Tone) -> &'static str {
    match tone {
        Tone::Good => "✅",
        Tone::Bad => "❌",
        Tone::Warn => "⚠️",
        Tone::Plain | Tone::Muted => "•",
    }
}

fn block_text(block: &Block) -> String {
    match block {
        Block::Text(text) => format!("{}\n", escape(text)),
        Block::Note(text) => format!("_{}_\n", escape(text)),
        Block::Warning(text) => format!("**{}**\n", escape(text)),
        Block::Table(table) => table_text(table),
        Block::Facts(facts) => {
            let rows = facts
                .iter()
                .map(|(name, value)| vec![Cell::new(name.clone()), Cell::code(value.clone())]);
            let mut table = Table::new(&["fact", "value"]);
            table.rows = rows.collect();
            table_text(&table)
        }
        Block::List(items) => items.iter().map(|i| format!("- {}\n", escape(i))).collect(),
        Block::Code(text) => fenced(text, "sh"),
        Block::Chain(chain) => chain_text(chain),
        Block::Chart(_) => String::new(),
    }
}

fn table_text(table: &Table) -> String {
    let mut out = String::from("|");
    for column in &table.columns {
        out.push_str(&format!(" {} |", escape(&column.title)));
    }
    out.push_str("\n|");
    for column in &table.columns {
        out.push_str(match column.align {
            Align::Left => " --- |",
            Align::Right => " ---: |",
        });
    }
    out.push('\n');
    for row in &table.rows {
        out.push('|');
        for cell in row {
            out.push_str(&format!(" {} |", cell_text(cell)));
        }
        out.push('\n');
    }
    out
}

fn cell_text(cell: &Cell) -> String {
    let text = if cell.code {
        // In a table a bar ends the cell even inside a code span.
        code(&cell.text).replace('|', "\\|")
    } else {
        escape(&cell.text)
    };
    match (&cell.link, cell.tone) {
        (Some(link), _) if !link.contains(['(', ')', ' ', '<', '>']) && !link.contains(':') => {
            format!("[{text}]({link})")
        }
        (_, Tone::Bad) if !cell.text.is_empty() => format!("**{text}**"),
        _ => text,
    }
}

/// A code span that no backtick in the text can end.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat(longest + 1);
    // A span that begins and ends with a space loses one on each side: pad it.
    let pad = text.starts_with('`')
        || text.ends_with('`')
        || (text.starts_with(' ') && text.ends_with(' '));
    let pad = if pad { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

fn fenced(text: &str, language: &str) -> String {
    let longest = text
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{text}\n{fence}\n")
}

/// Text in which nothing is markup.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(
            c,
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&'
        ) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn chain_text(chain: &Chain) -> String {
    let of = if chain.of.is_empty() {
        String::new()
    } else {
        format!("{} — ", escape(&chain.of))
    };
    let mut out = format!(
        "### {of}{}: {} ({} confidence)\n\n",
        chain.class,
        escape(&chain.kind),
        chain.confidence
    );
    if !chain.title.is_empty() {
        out.push_str(&format!("> {}\n\n", escape(&chain.title)));
    }
    for (name, value) in &chain.facts {
        out.push_str(&format!("- {}: {}\n", escape(name), escape(value)));
    }
    if !chain.facts.is_empty() {
        out.push('\n');
    }
    for (i, step) in chain.steps.iter().enumerate() {
        out.push_str(&format!(
            "{}. **{}** {} {}  \n   {}  \n   {}\n",
            i + 1,
            role_word(step.role),
            code(&step.place),
            escape(&step.finding),
            code(&step.text),
            escape(&step.why)
        ));
    }
    if !chain.would_settle.is_empty() {
        out.push_str("\nWould settle it:\n\n");
        for way in &chain.would_settle {
            out.push_str(&format!("- {}\n", escape(way)));
        }
    }
    out
}

/// A chain alone, for a verdict without a run.
pub(super) fn chain_alone(chain: &Chain) -> String {
    chain_text(chain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(escape("a|b <img> *x*"), "a\\|b \\<img\\> \\*x\\*");
        assert_eq!(code("a`b``c"), "```a`b``c```");
        assert_eq!(code("`x"), "`` `x ``");
        assert_eq!(cell_text(&Cell::code("a|b")), "`a\\|b`");
        assert!(fenced("```\nrm", "sh").starts_with("````sh\n"));
    }

    #[test]
    fn links_are_relative_paths_only() {
        let cell = |link: &str| {
            cell_text(&Cell {
                link: Some(link.to_owned()),
                ..Cell::new("f")
            })
        };
        assert_eq!(cell("a/b.log"), "[f](a/b.log)");
        assert_eq!(cell("javascript:x"), "f");
        assert_eq!(cell("a) [x](y"), "f");
    }
}

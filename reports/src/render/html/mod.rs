//! One self-contained HTML file: no script, nothing loaded, light and dark by the reader's preference.

mod charts;

use super::document::{Align, Block, Cell, Chain, Document, Section, Table, Tone, role_word};
use super::{Options, Renderer};
use crate::model::Role;

/// One self-contained HTML file.
pub struct Html;

/// Cells up to that many characters are not broken.
const SHORT: usize = 28;

const STYLE: &str = include_str!("style.css");

impl Renderer for Html {
    fn render(&self, document: &Document, _options: &Options) -> String {
        let mut out = String::with_capacity(64 * 1024);
        let heading = format!("{}: {}", document.status, document.title);
        out.push_str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        // Nothing may be loaded or run, whatever a captured line holds.
        out.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n");
        out.push_str(&format!(
            "<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
            escape(&heading)
        ));
        header(document, &mut out);
        for section in &document.sections {
            section_html(section, &mut out);
        }
        out.push_str(&format!(
            "<footer>{}</footer>\n</body>\n</html>\n",
            escape(&document.footer)
        ));
        out
    }
}

fn header(document: &Document, out: &mut String) {
    let tone = class(document.tone);
    out.push_str(&format!(
        "<header class=\"{tone}\">\n<h1><span class=\"badge {tone}\">{}</span> {} <small>{}</small></h1>\n<dl>\n",
        escape(&document.status),
        escape(&document.title),
        escape(&document.subtitle)
    ));
    for (name, value) in &document.summary {
        out.push_str(&format!(
            "<dt>{}</dt><dd>{}</dd>\n",
            escape(name),
            escape(value)
        ));
    }
    out.push_str("</dl>\n</header>\n<nav>");
    for section in &document.sections {
        out.push_str(&format!(
            "<a href=\"#{}\">{}</a> ",
            section.id,
            escape(&section.title)
        ));
    }
    out.push_str("</nav>\n");
}

fn section_html(section: &Section, out: &mut String) {
    out.push_str(&format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n",
        section.id,
        escape(&section.title)
    ));
    let mut first_chain = true;
    for block in &section.blocks {
        match block {
            Block::Text(text) => out.push_str(&format!("<p>{}</p>\n", escape(text))),
            Block::Note(text) => out.push_str(&format!("<p class=\"note\">{}</p>\n", escape(text))),
            Block::Warning(text) => {
                out.push_str(&format!("<p class=\"warning\">{}</p>\n", escape(text)));
            }
            Block::Table(table) => table_html(table, out),
            Block::Facts(facts) => facts_html(facts, out),
            Block::List(items) => list_html(items, out),
            Block::Code(text) => out.push_str(&format!("<pre>{}</pre>\n", escape(text))),
            Block::Chain(chain) => {
                chain_html(chain, first_chain, out);
                first_chain = false;
            }
            Block::Chart(chart) => {
                if let Some(svg) = charts::svg(chart) {
                    out.push_str(&format!(
                        "<figure>\n<figcaption>{}</figcaption>\n{svg}</figure>\n",
                        escape(&chart.caption)
                    ));
                }
            }
        }
    }
    out.push_str("</section>\n");
}

fn facts_html(facts: &[(String, String)], out: &mut String) {
    out.push_str("<dl class=\"facts\">\n");
    for (name, value) in facts {
        out.push_str(&format!(
            "<dt>{}</dt><dd>{}</dd>\n",
            escape(name),
            escape(value)
        ));
    }
    out.push_str("</dl>\n");
}

fn list_html(items: &[String], out: &mut String) {
    out.push_str("<ul>\n");
    for item in items {
        out.push_str(&format!("<li>{}</li>\n", escape(item)));
    }
    out.push_str("</ul>\n");
}

fn table_html(table: &Table, out: &mut String) {
    let right = |i: usize| {
        table
            .columns
            .get(i)
            .is_some_and(|c| c.align == Align::Right)
    };
    out.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for (i, column) in table.columns.iter().enumerate() {
        let r = if right(i) { " class=\"r\"" } else { "" };
        out.push_str(&format!("<th{r}>{}</th>", escape(&column.title)));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        out.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let mut classes = Vec::new();
            if right(i) {
                classes.push("r");
            }
            if cell.text.chars().count() <= SHORT {
                classes.push("n");
            }
            if cell.tone != Tone::Plain {
                classes.push(class(cell.tone));
            }
            let classes = if classes.is_empty() {
                String::new()
            } else {
                format!(" class=\"{}\"", classes.join(" "))
            };
            out.push_str(&format!("<td{classes}>{}</td>", cell_html(cell)));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table></div>\n");
}

fn cell_html(cell: &Cell) -> String {
    let mut text = escape(&cell.text);
    if cell.code && !text.is_empty() {
        text = format!("<code>{text}</code>");
    }
    match cell.link.as_deref().and_then(href) {
        Some(href) => format!("<a href=\"{href}\">{text}</a>"),
        None => text,
    }
}

fn chain_html(chain: &Chain, open: bool, out: &mut String) {
    let open = if open { " open" } else { "" };
    let tone = class(chain.tone);
    let of = if chain.of.is_empty() {
        String::new()
    } else {
        format!("<span class=\"of\">{}</span>", escape(&chain.of))
    };
    out.push_str(&format!(
        "<details{open}>\n<summary><span class=\"badge {tone}\">{}</span>{of}{} <span class=\"conf\">({} confidence)</span></summary>\n<div class=\"chain\">\n",
        escape(&chain.class),
        escape(&chain.kind),
        chain.confidence
    ));
    if !chain.title.is_empty() {
        out.push_str(&format!(
            "<p class=\"title\">{}</p>\n",
            escape(&chain.title)
        ));
    }
    if !chain.facts.is_empty() {
        facts_html(&chain.facts, out);
    }
    if !chain.steps.is_empty() {
        out.push_str("<ol class=\"steps\">\n");
    }
    for step in &chain.steps {
        let role = match step.role {
            Role::Decides => "decides",
            Role::Supports => "supports",
            Role::Consequence => "consequence",
            Role::Ignored => "ignored",
        };
        let tone = if step.role == Role::Decides && chain.tone == Tone::Warn {
            " warn"
        } else {
            ""
        };
        out.push_str(&format!(
            "<li class=\"{role}{tone}\"><span class=\"role\">{}</span> <code class=\"place\">{}</code> {}\n<pre>{}</pre>\n<span class=\"why\">{}</span></li>\n",
            role_word(step.role),
            escape(&step.place),
            escape(&step.finding),
            escape(&step.text),
            escape(&step.why)
        ));
    }
    if !chain.steps.is_empty() {
        out.push_str("</ol>\n");
    }
    if !chain.would_settle.is_empty() {
        out.push_str("<p>Would settle it:</p>\n");
        list_html(&chain.would_settle, out);
    }
    out.push_str("</div>\n</details>\n");
}

fn class(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "plain",
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Warn => "warn",
        Tone::Muted => "muted",
    }
}

/// Text in which nothing is markup, in elements and in quoted attributes.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A relative path as the value of `href`; `None` for anything else: an address, an absolute path, a way out of the run
/// directory.
fn href(path: &str) -> Option<String> {
    let outside = path.is_empty()
        || path.starts_with(['/', '\\'])
        || path.contains(':')
        || path.split('/').any(|part| part == "..");
    if outside {
        return None;
    }
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(
            escape("<img src=x onerror='a&b'>\""),
            "&lt;img src=x onerror=&#39;a&amp;b&#39;&gt;&quot;"
        );
    }

    #[test]
    fn links_stay_in_the_run_directory() {
        assert_eq!(href("a b/c#1.log").as_deref(), Some("a%20b/c%231.log"));
        for bad in [
            "javascript:alert(1)",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "",
            "\\\\h\\s",
        ] {
            assert_eq!(href(bad), None, "{bad}");
        }
    }
}

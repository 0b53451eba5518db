//! What kind of terminal is there.

use std::io::IsTerminal;

use super::args::Color;

/// What is known of the terminal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terminal {
    /// Colour in what is printed.
    pub color: bool,
    /// A progress line can be drawn on stderr.
    pub bar: bool,
    /// Columns.
    pub width: u16,
}

impl Terminal {
    /// Looks at the streams and at `NO_COLOR`, `COLUMNS` and `TERM`.
    pub(super) fn detect(color: Color) -> Terminal {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        let stdout = std::io::stdout().is_terminal();
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => stdout && !set("NO_COLOR") && !dumb,
        };
        let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok());
        let width = columns.or_else(|| {
            if stdout {
                crate::os::terminal::columns()
            } else {
                None
            }
        });
        Terminal {
            color,
            bar: std::io::stderr().is_terminal() && !dumb,
            width: width.unwrap_or(120).clamp(60, 220),
        }
    }
}

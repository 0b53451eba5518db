//! Whole documents, reviewed by eye.

use super::*;
use crate::examples::{inconclusive, kernel_fault, pass};

fn options() -> Options {
    Options {
        width: 110,
        run_dir: Some("runs/example".to_owned()),
        ..Options::default()
    }
}

fn text(report: &Report, format: Format) -> String {
    render(report, format, &options()).unwrap()
}

macro_rules! snapshots {
    ($($name:ident: $report:expr, $format:expr;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(text(&$report, $format));
        }
    )*};
}

snapshots! {
    pass_terminal: pass(), Format::Terminal;
    pass_markdown: pass(), Format::Markdown;
    pass_html: pass(), Format::Html;
    pass_json: pass(), Format::Json;
    pass_junit: pass(), Format::Junit;
    pass_line: pass(), Format::Line;
    kernel_fault_terminal: kernel_fault(), Format::Terminal;
    kernel_fault_markdown: kernel_fault(), Format::Markdown;
    kernel_fault_html: kernel_fault(), Format::Html;
    kernel_fault_junit: kernel_fault(), Format::Junit;
    kernel_fault_line: kernel_fault(), Format::Line;
    inconclusive_terminal: inconclusive(), Format::Terminal;
    inconclusive_markdown: inconclusive(), Format::Markdown;
    inconclusive_html: inconclusive(), Format::Html;
    inconclusive_junit: inconclusive(), Format::Junit;
    inconclusive_line: inconclusive(), Format::Line;
}

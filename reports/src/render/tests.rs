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

mod diff {
    use super::super::*;
    use crate::compare::compare_reports;
    use crate::examples::pass;
    use crate::model::Class;

    fn worse() -> crate::compare::ReportDiff {
        let mut slower = pass();
        slower.run.id = "20261201T090000Z-smoke".into();
        for a in slower.legs[0].attempts.iter_mut() {
            a.metrics.decode_tok_s = a.metrics.decode_tok_s.map(|v| v * 0.8);
        }
        slower.legs[1].attempts[2].verdict.class = Class::Kernel;
        slower.legs[1].attempts[2].verdict.kind = "gpu-page-fault-shader".into();
        slower.legs.remove(2);
        slower
            .identity
            .insert("rocm.version".into(), "7.3.0".into());
        compare_reports(&pass(), &slower, 5.0)
    }

    #[test]
    fn diff_terminal() {
        insta::assert_snapshot!(diff_text(&worse(), &super::options()));
    }

    #[test]
    fn diff_as_markdown() {
        insta::assert_snapshot!(diff_markdown(&worse(), &super::options()));
    }
}

/// Text from outside that tries to be markup, in every place where a report holds text from outside.
fn hostile() -> Report {
    let evil = "\x1b[2J<script>alert('x')</script> | `rm` **b** [a](javascript:b) \u{202e}\r\n# h";
    let mut report = kernel_fault();
    report.run.question = Some(evil.into());
    report.run.leg_set = evil.into();
    report.run.host = Some(evil.into());
    report.run.reproduce = Some(evil.into());
    report.warnings = vec![evil.into()];
    report.identity.insert(evil.into(), evil.into());
    report.owed = vec![crate::model::Owed {
        leg: evil.into(),
        why: evil.into(),
    }];
    report.files.insert(evil.into(), evil.into());
    for g in &mut report.gates {
        g.name = evil.into();
        g.observed = evil.into();
        g.expected = evil.into();
    }
    for leg in &mut report.legs {
        leg.env.insert(evil.into(), evil.into());
        leg.command = vec![evil.into()];
        leg.differs = vec![evil.into()];
        for a in &mut leg.attempts {
            a.text = Some(evil.into());
            a.finish_reason = Some(evil.into());
            a.files.insert(evil.into(), evil.into());
            a.metrics.other.insert(evil.into(), 1.0);
            let v = &mut a.verdict;
            v.kind = evil.into();
            v.title = evil.into();
            v.would_settle = vec![evil.into()];
            v.warnings = vec![evil.into()];
            for e in &mut v.evidence {
                e.source = evil.into();
                e.text = evil.into();
                e.finding = evil.into();
                e.why = evil.into();
            }
            a.speed.void_reason = Some(evil.into());
        }
    }
    for c in &mut report.comparisons {
        c.variables = vec![evil.into(), evil.into()];
        c.confounded = true;
        for m in &mut c.metrics {
            m.void_reason = Some(evil.into());
        }
    }
    report
}

#[test]
fn text_from_outside_is_never_markup() {
    let report = hostile();
    let html = text(&report, Format::Html);
    assert!(!html.contains("<script"), "a script got through");
    assert!(!html.contains("href=\"javascript"));
    for format in [
        Format::Terminal,
        Format::Html,
        Format::Markdown,
        Format::Line,
        Format::Junit,
    ] {
        let out = text(&report, format);
        assert!(!out.contains('\x1b'), "{format}: an escape got through");
        assert!(
            !out.contains('\u{202e}'),
            "{format}: a change of direction got through"
        );
        assert!(!out.contains("\n# h"), "{format}: a line break got through");
    }
    let md = text(&report, Format::Markdown);
    for line in md.lines().filter(|l| !l.contains('`')) {
        assert!(!line.contains("<script"), "{line}");
    }
}

#[test]
fn terminal_lines_keep_to_the_width() {
    for width in [60, 80, 100, 140] {
        for report in [pass(), kernel_fault(), inconclusive()] {
            let options = Options { width, ..options() };
            let out = render(&report, Format::Terminal, &options).unwrap();
            for line in out.lines() {
                assert!(
                    line.chars().count() <= usize::from(width),
                    "{width}: {line}"
                );
            }
        }
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    let plain = text(&kernel_fault(), Format::Terminal);
    let options = Options {
        color: true,
        ..options()
    };
    let coloured = render(&kernel_fault(), Format::Terminal, &options).unwrap();
    assert!(!plain.contains('\x1b') && coloured.contains("\x1b[1;31mFAIL"));
    let mut bare = String::new();
    let mut rest = coloured.as_str();
    while let Some(at) = rest.find('\x1b') {
        bare.push_str(&rest[..at]);
        let end = rest[at..].find('m').unwrap();
        rest = &rest[at + end + 1..];
    }
    bare.push_str(rest);
    let trimmed = |s: &str| {
        s.lines()
            .map(|l| l.trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(trimmed(&bare), trimmed(&plain));
}

#[test]
fn a_brief_report_holds_what_answers_the_question() {
    let options = Options {
        detail: Detail::Brief,
        ..options()
    };
    let brief = render(&kernel_fault(), Format::Terminal, &options).unwrap();
    insta::assert_snapshot!(brief);
}

#[test]
fn an_empty_run_renders_in_every_format() {
    let run = crate::model::RunInfo::new("r", "s", crate::examples::at(0), 1);
    let mut report = Report::new(run);
    crate::conclude(&mut report, &crate::Plan::default());
    for format in Format::ALL {
        assert!(!text(&report, format).is_empty());
        assert_eq!(format.name().parse::<Format>().unwrap(), format);
    }
    assert!(
        text(&report, Format::Line).contains("no counted attempt was run") || report.exit_code == 3
    );
}

#[test]
fn verdict_alone() {
    let report = kernel_fault();
    let verdict = &report.legs[1].attempts[0].verdict;
    insta::assert_snapshot!(verdict_text(verdict, &options()));
    assert!(verdict_markdown(verdict).contains("**decides** `kernel.log:7`"));
}

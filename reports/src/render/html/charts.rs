//! Charts of rows along one axis, as SVG inside the page.
//!
//! The colours of text and rules are fixed here and replaced by the page's style, which knows whether it is dark; the
//! colours of bars and dots read on both grounds.

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle};

use super::super::document::{Chart, ChartRow, Tone};

const WIDTH: i32 = 960;
const LABELS: i32 = 190;
const NOTES: i32 = 150;
const ROW: i32 = 24;
const TOP: i32 = 24;
const BOTTOM: i32 = 26;
/// More rows than anybody reads; the table has them all.
const MOST_ROWS: usize = 60;

const FOREGROUND: RGBColor = RGBColor(0x1c, 0x21, 0x27);
const DIM: RGBColor = RGBColor(0x66, 0x70, 0x80);
const RULE: RGBColor = RGBColor(0xc8, 0xcd, 0xd4);
const BAD: RGBColor = RGBColor(0xc6, 0x2f, 0x2f);
const WARN: RGBColor = RGBColor(0x9a, 0x67, 0x00);
const BARS: [RGBColor; 4] = [
    RGBColor(0x5b, 0x8d, 0xef),
    RGBColor(0xe2, 0xa0, 0x3a),
    RGBColor(0x3b, 0xae, 0x7c),
    RGBColor(0x9a, 0xa3, 0xae),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The chart as an SVG element; `None` when there is nothing to draw.
pub(super) fn svg(chart: &Chart) -> Option<String> {
    let (from, to) = range(chart)?;
    let rows = &chart.rows[..chart.rows.len().min(MOST_ROWS)];
    let height = TOP + ROW * i32::try_from(rows.len()).ok()? + BOTTOM;
    let mut out = String::new();
    {
        let size = (u32::try_from(WIDTH).ok()?, u32::try_from(height).ok()?);
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        let axis = Axis { from, to };
        draw(&area, chart, rows, &axis, height).ok()?;
        area.present().ok()?;
    }
    Some(out)
}

/// What the axis spans.
fn range(chart: &Chart) -> Option<(f64, f64)> {
    let all = chart.rows.iter().flat_map(|r| {
        let spans = r.spans.iter().flat_map(|s| [s.from, s.to]);
        spans.chain(r.dots.iter().copied())
    });
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for v in all.filter(|v| v.is_finite()) {
        low = low.min(v);
        high = high.max(v);
    }
    if low > high {
        return None;
    }
    if chart.from_zero {
        return (high > 0.0).then_some((0.0, high));
    }
    let margin = if high > low {
        0.12 * (high - low)
    } else {
        0.05 * high.abs().max(1e-9)
    };
    Some((low - margin, high + margin))
}

struct Axis {
    from: f64,
    to: f64,
}

impl Axis {
    fn x(&self, v: f64) -> i32 {
        let share = ((v - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        LABELS + (share * f64::from(WIDTH - LABELS - NOTES)).round() as i32
    }

    /// About six round values.
    fn ticks(&self) -> Vec<f64> {
        let rough = (self.to - self.from) / 6.0;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .into_iter()
            .map(|m| m * magnitude)
            .find(|s| *s >= rough)
            .unwrap_or(10.0 * magnitude);
        let first = (self.from / step).ceil() as i64;
        (first..first + 12)
            .map(|i| i as f64 * step)
            .take_while(|v| *v <= self.to + step * 1e-9)
            .collect()
    }

    /// Decimals that tell two ticks apart.
    fn decimals(ticks: &[f64]) -> usize {
        let step = match ticks {
            [a, b, ..] => b - a,
            _ => 1.0,
        };
        let magnitude = step.log10();
        let decimals = (-magnitude.floor()).clamp(0.0, 9.0) as usize;
        // A step of 2.5 units needs one more.
        let rest = step * 10f64.powi(decimals as i32);
        decimals + usize::from((rest - rest.round()).abs() > 1e-6)
    }
}

fn draw(area: &Area, chart: &Chart, rows: &[ChartRow], axis: &Axis, height: i32) -> Drawn {
    let bottom = height - BOTTOM;
    let ticks = axis.ticks();
    let decimals = Axis::decimals(&ticks);
    for (i, tick) in ticks.iter().enumerate() {
        let x = axis.x(*tick);
        area.draw(&PathElement::new(
            vec![(x, TOP), (x, bottom)],
            RULE.stroke_width(1),
        ))?;
        let unit = if i + 1 == ticks.len() {
            format!(" {}", chart.unit)
        } else {
            String::new()
        };
        text(
            area,
            &format!("{tick:.decimals$}{unit}"),
            (x, bottom + 6),
            12,
            DIM,
            HPos::Center,
            VPos::Top,
        )?;
    }
    let mut x = LABELS;
    for (kind, name) in chart.legend.iter().enumerate() {
        area.draw(&Rectangle::new([(x, 4), (x + 12, 16)], bar(kind)))?;
        text(area, name, (x + 17, 10), 12, DIM, HPos::Left, VPos::Center)?;
        x += 36 + 7 * i32::try_from(name.len()).unwrap_or(0);
    }
    for (i, row) in rows.iter().enumerate() {
        let y = TOP + ROW * i32::try_from(i)? + ROW / 2;
        draw_row(area, row, axis, y)?;
    }
    Ok(())
}

fn draw_row(area: &Area, row: &ChartRow, axis: &Axis, y: i32) -> Drawn {
    let label = crate::format::shorten(&row.label, 26);
    text(
        area,
        &label,
        (LABELS - 10, y),
        13,
        FOREGROUND,
        HPos::Right,
        VPos::Center,
    )?;
    let mut end = LABELS;
    for span in &row.spans {
        let (left, right) = (axis.x(span.from), axis.x(span.to));
        area.draw(&Rectangle::new(
            [(left, y - 7), (right.max(left + 1), y + 7)],
            bar(span.kind),
        ))?;
        end = end.max(right);
    }
    for dot in &row.dots {
        area.draw(&Circle::new(
            (axis.x(*dot), y),
            4,
            BARS[0].mix(0.75).filled(),
        ))?;
        end = end.max(axis.x(*dot));
    }
    if let Some(median) = row.median {
        let x = axis.x(median);
        area.draw(&PathElement::new(
            vec![(x, y - 9), (x, y + 9)],
            FOREGROUND.stroke_width(2),
        ))?;
    }
    let color = match row.tone {
        Tone::Bad => BAD,
        Tone::Warn => WARN,
        Tone::Muted => DIM,
        Tone::Plain | Tone::Good => FOREGROUND,
    };
    let x = if row.spans.is_empty() && !row.dots.is_empty() {
        WIDTH - NOTES + 12
    } else {
        end + 8
    };
    text(area, &row.note, (x, y), 12, color, HPos::Left, VPos::Center)
}

fn bar(kind: usize) -> ShapeStyle {
    BARS[kind % BARS.len()].filled()
}

fn text(
    area: &Area,
    words: &str,
    at: (i32, i32),
    size: i32,
    color: RGBColor,
    h: HPos,
    v: VPos,
) -> Drawn {
    if words.is_empty() {
        return Ok(());
    }
    let style = ("sans-serif", size)
        .into_font()
        .color(&color)
        .pos(Pos::new(h, v));
    area.draw(&Text::new(words.to_owned(), at, style))?;
    Ok(())
}

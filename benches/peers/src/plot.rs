//! `results.tsv` as a picture: one panel a measure, one bar a library, the command and the machine below.
//! Plain SVG with a background of its own, so that it can be read on light and dark pages alike.

use std::fmt::Write;

use crate::results::{Results, Row, micros};

const WIDTH: f64 = 820.0;
const LANGUAGES: f64 = 170.0;
const BARS_BEGIN: f64 = 225.0;
const BARS: f64 = 330.0;
const LINE: f64 = 20.0;
const MARGIN: f64 = 16.0;

pub(crate) const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600; font-size: 14px }
  .quiet { fill: #59636e }
  .page { fill: #ffffff }
  .bar { fill: #8c959f }
  .ours { fill: #0969da }
  .mark { stroke: #1f2328; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .quiet { fill: #9198a1 }
    .page { fill: #0d1117 }
    .bar { fill: #656c76 }
    .ours { fill: #4493f8 }
    .mark { stroke: #f0f6fc }
  }
";

struct Panel {
    title: &'static str,
    hint: &'static str,
    scale: Scale,
    length: fn(&Row) -> Option<f64>,
    /// A second figure of the row, drawn as a mark on the same scale.
    mark: fn(&Row) -> Option<f64>,
    words: fn(&Row) -> String,
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Logarithmic,
}

const PANELS: [Panel; 3] = [
    Panel {
        title: "Uncontended: acquire and release in one thread, of the raw limit in the same round",
        hint: "longer is better; raw: SET NX PX and compare-and-delete over one connection",
        scale: Scale::Linear,
        length: |row| row.of_raw,
        mark: |_| None,
        words: |row| format!("{:.2}, {:.0} cycles/s", figure(row.of_raw), figure(row.cycles_a_second)),
    },
    Panel {
        title: "8 threads (tasks) of one process on one key: sections, of distlock's in the same round",
        hint: "longer is better; least served: 1.00 when all threads get an equal part, 0.00 when one gets nothing",
        scale: Scale::Linear,
        length: |row| row.sections_of_ours,
        mark: |_| None,
        words: |row| {
            let (ratio, rate, fewest) = (row.sections_of_ours, row.sections_a_second, row.fewest);
            format!("{:.2}, {:.0} a second, least served {:.2}", figure(ratio), figure(rate), figure(fewest))
        },
    },
    Panel {
        title: "Hand-off: from release called in one process to acquired in the other, which waits",
        hint: "shorter is better, logarithmic; bar: median, mark: 99th percentile",
        scale: Scale::Logarithmic,
        length: |row| row.handoff_p50_us,
        mark: |row| row.handoff_p99_us,
        words: |row| format!("{}, p99 {}", micros(figure(row.handoff_p50_us)), micros(figure(row.handoff_p99_us))),
    },
];

/// Only for rows that have it: the panel drew a bar for them.
fn figure(value: Option<f64>) -> f64 {
    value.unwrap_or(f64::NAN)
}

pub(crate) fn svg(results: &Results) -> String {
    let mut body = String::new();
    let mut y = MARGIN;
    for panel in &PANELS {
        y = panel.draw(&mut body, &results.rows, y) + LINE;
    }
    for caption in &results.captions {
        text(&mut body, MARGIN, y, "quiet", caption);
        y += LINE;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" \
         role=\"img\" aria-label=\"distlock beside other lock libraries\">\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{y}\"/>\n{body}</svg>\n"
    )
}

impl Panel {
    /// Draws from `y` down, and says where it ended.
    fn draw(&self, body: &mut String, rows: &[Row], mut y: f64) -> f64 {
        text(body, MARGIN, y + 12.0, "title", self.title);
        text(body, MARGIN, y + 12.0 + LINE, "quiet", self.hint);
        y += 1.4 * LINE + 12.0;
        let rows: Vec<(&Row, f64)> = rows.iter().filter_map(|row| Some((row, (self.length)(row)?))).collect();
        let figures = rows.iter().flat_map(|&(row, length)| [Some(length), (self.mark)(row)]).flatten();
        let place = self.scale.over(figures.collect());
        for (row, length) in rows {
            self.bar(body, row, y, place(length), (self.mark)(row).map(&place));
            y += LINE;
        }
        y
    }

    /// One line: the name, the bar, the mark if there is one, the figures in words.
    fn bar(&self, body: &mut String, row: &Row, y: f64, length: f64, mark: Option<f64>) {
        let class = if row.name.starts_with("distlock") { "ours" } else { "bar" };
        let (top, height, baseline) = (y + 3.0, LINE - 6.0, y + 13.0);
        text(body, MARGIN, baseline, "", &row.name);
        text(body, LANGUAGES, baseline, "quiet", &row.language);
        let place = format!("x=\"{BARS_BEGIN}\" y=\"{top}\" width=\"{length:.1}\" height=\"{height}\"");
        writeln!(body, "<rect class=\"{class}\" {place}/>").expect("a string");
        if let Some(mark) = mark {
            let line = format!("M{:.1} {top}v{height}", BARS_BEGIN + mark);
            writeln!(body, "<path class=\"mark\" d=\"{line}\"/>").expect("a string");
        }
        text(body, BARS_BEGIN + mark.unwrap_or(length).max(length) + 8.0, baseline, "", &(self.words)(row));
    }
}

impl Scale {
    /// Where a figure lies, in pixels, when all of `figures` have to fit.
    fn over(self, figures: Vec<f64>) -> impl Fn(f64) -> f64 {
        let most = figures.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let least = figures.iter().copied().fold(most, f64::min);
        // A logarithmic bar begins at a power of ten that leaves the shortest some length.
        let start = (least / 1.5).log10().floor();
        move |figure| match self {
            Scale::Linear => BARS * figure / most,
            Scale::Logarithmic => BARS * (figure.log10() - start) / (most.log10() - start).max(f64::EPSILON),
        }
    }
}

pub(crate) fn text(body: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>").expect("a string");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_that_is_missing_leaves_its_bar_out_and_no_other() {
        let whole = Row { name: "a".into(), of_raw: Some(0.5), cycles_a_second: Some(9.0), ..Row::default() };
        let rows = vec![whole, Row { name: "b".into(), ..Row::default() }];
        let drawn = svg(&Results { captions: vec!["1 < 2".into()], rows });
        assert_eq!(drawn.matches("<rect class=\"bar\"").count(), 1);
        assert!(drawn.contains("1 &lt; 2") && !drawn.contains("NaN"), "{drawn}");
    }
}

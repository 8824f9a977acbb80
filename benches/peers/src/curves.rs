//! What `cargo bench --bench contend` and `--bench handoff` printed, as a picture: one panel a measure, one
//! line a contestant, from few contenders to many.

use std::fmt::Write;

use crate::plot::{STYLE, text};

const WIDTH: f64 = 820.0;
const LEFT: f64 = 70.0;
const CHART: f64 = 480.0;
const HEIGHT: f64 = 130.0;
const LINE: f64 = 20.0;
const MARGIN: f64 = 16.0;
/// One class of line for each contestant of a panel, ours last.
const CLASSES: [&str; 3] = ["first", "second", "line-ours"];
const LINES: &str = "
  path { fill: none; stroke-width: 2 }
  .axis { stroke: #59636e; stroke-width: 1 }
  .first { stroke: #8c959f; stroke-dasharray: 2 3 }
  .second { stroke: #8c959f }
  .line-ours { stroke: #0969da }
  @media (prefers-color-scheme: dark) {
    .first, .second { stroke: #9198a1 }
    .line-ours { stroke: #4493f8 }
  }
";

/// One contestant: for each number of contenders a figure.
struct Curve {
    name: String,
    points: Vec<(u64, f64)>,
}

struct Panel {
    title: &'static str,
    hint: &'static str,
    unit: fn(f64) -> String,
    curves: Vec<Curve>,
}

/// Draws both tables; `captions` say where and how they were measured.
pub(crate) fn svg(contend: &str, handoff: &str, captions: &[String]) -> String {
    let threads = |column| curves(contend, "threads", &["raw", "bare scripts", "DistLock"], column);
    let processes = |column| {
        let names = ["DistLock, spinning", "raw sockets, same scripts", "DistLock, in turn"];
        names.map(|name| handoff_curve(handoff, name, column)).into()
    };
    let panels = [
        Panel {
            title: "Threads of one process on one key: sections a second",
            hint: "higher is better, logarithmic; raw and bare scripts spin, each thread on a connection of its own",
            unit: |figure| format!("{figure:.0}"),
            curves: threads(0),
        },
        Panel {
            title: "From one process to the next, holds of 1 ms: release called to lock acquired, median",
            hint: "lower is better, logarithmic; spinning, whoever is awake gets it, often the same again",
            unit: |figure| format!("{figure:.0} µs"),
            curves: processes(1),
        },
        Panel {
            title: "The longest wait of any process, holds of 1 ms",
            hint: "lower is better, logarithmic; with 64 processes each turn is 64 holds away",
            unit: |figure| format!("{figure:.0} ms"),
            curves: processes(6),
        },
    ];
    let (mut body, mut y) = (String::new(), MARGIN);
    for panel in &panels {
        y = panel.draw(&mut body, y) + 1.5 * LINE;
    }
    for caption in captions {
        text(&mut body, MARGIN, y, "quiet", caption);
        y += LINE;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" width=\"{WIDTH}\" height=\"{y}\" \
         role=\"img\" aria-label=\"waiting for one lock\">\n<style>{STYLE}{LINES}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{y}\"/>\n{body}</svg>\n"
    )
}

/// `NAME, N KIND  figure figure …`
fn curves(table: &str, kind: &str, names: &[&str], column: usize) -> Vec<Curve> {
    let curve = |name: &&str| {
        let points = table.lines().filter_map(|line| {
            let rest = line.strip_prefix(*name)?.strip_prefix(", ")?;
            let mut words = rest.split_whitespace();
            let number = words.next()?.parse().ok()?;
            (words.next()? == kind).then_some(())?;
            Some((number, words.nth(column)?.parse().ok()?))
        });
        Curve { name: (*name).to_owned(), points: points.collect() }
    };
    names.iter().map(curve).collect()
}

/// `NAME  processes 1 ms figure figure …`
fn handoff_curve(table: &str, name: &str, column: usize) -> Curve {
    let points = table.lines().filter_map(|line| {
        let mut words = line.strip_prefix(name)?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        (words.next()? == "1" && words.next()? == "ms").then_some(())?;
        Some((number, words.nth(column)?.parse().ok()?))
    });
    Curve { name: name.to_owned(), points: points.collect() }
}

impl Panel {
    /// Draws from `y` down, and says where it ended.
    fn draw(&self, body: &mut String, y: f64) -> f64 {
        text(body, MARGIN, y + 12.0, "title", self.title);
        text(body, MARGIN, y + 12.0 + LINE, "quiet", self.hint);
        let top = y + 2.6 * LINE + 12.0;
        let bottom = top + HEIGHT;
        let figures: Vec<f64> = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1).collect();
        let numbers = self.numbers();
        let (least, most) =
            (figures.iter().copied().fold(f64::MAX, f64::min), figures.iter().copied().fold(0.0, f64::max));
        let height = |figure: f64| {
            bottom
                - HEIGHT * (figure.max(1e-3) / least.max(1e-3)).ln() / (most / least.max(1e-3)).ln().max(f64::EPSILON)
        };
        let across = |number: u64| {
            let index = numbers.iter().position(|&n| n == number).unwrap_or(0) as f64;
            LEFT + CHART * index / (numbers.len().max(2) - 1) as f64
        };
        for figure in [least, most] {
            text(body, MARGIN, height(figure) + 4.0, "quiet", &(self.unit)(figure));
        }
        writeln!(body, "<path class=\"axis\" d=\"M{LEFT} {:.1}h{CHART}\"/>", bottom + 6.0).expect("a string");
        for &number in &numbers {
            text(body, across(number) - 4.0, bottom + 6.0 + LINE, "quiet", &number.to_string());
        }
        let mut names: Vec<(f64, String)> = Vec::new();
        for (curve, class) in self.curves.iter().zip(CLASSES) {
            let place = |&(number, figure): &(u64, f64)| format!("{:.1} {:.1}", across(number), height(figure));
            let places: Vec<String> = curve.points.iter().map(place).collect();
            writeln!(body, "<path class=\"{class}\" d=\"M{}\"/>", places.join("L")).expect("a string");
            if let Some(&(_, last)) = curve.points.last() {
                names.push((height(last), format!("{}: {}", curve.name, (self.unit)(last))));
            }
        }
        // Names of lines that end close to each other stand below each other.
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = f64::MIN;
        for (place, name) in names {
            let place = place.max(free);
            free = place + 15.0;
            text(body, LEFT + CHART + 12.0, place + 4.0, "", &name);
        }
        bottom + 6.0 + LINE
    }

    /// How many contenders, in order.
    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTEND: &str = "one key\nraw, 1 threads  100 2.00 1.0 1.0 - -\nraw, 8 threads  300 3.00 1.0 1.0 5 6\n\
                           DistLock, 1 threads 90 2 1 1 - -\nDistLock, 8 processes 7 2 1 1 - -\n";

    #[test]
    fn a_table_is_read_by_name_and_kind() {
        let curves = curves(CONTEND, "threads", &["raw", "DistLock"], 0);
        assert_eq!(curves[0].points, [(1, 100.0), (8, 300.0)]);
        assert_eq!(curves[1].points, [(1, 90.0)]);
        let handoff = "DistLock, in turn     2    0 ms   5 6 7\nDistLock, in turn     2    1 ms   8 9 10\n";
        assert_eq!(handoff_curve(handoff, "DistLock, in turn", 1).points, [(2, 9.0)]);
    }

    #[test]
    fn tables_without_a_row_still_make_a_picture() {
        assert!(!svg("", "", &[]).contains("NaN"));
    }
}

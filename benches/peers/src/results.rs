//! The figures of one run: as `results.tsv`, which `plot.rs` reads again, and as a table to read.

use std::{fmt::Write, time::Duration};

/// What one contestant did. A figure that was not measured, or could not be, is `None`.
#[derive(Clone, Default, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) language: String,
    pub(crate) cycles_a_second: Option<f64>,
    /// The median of the ratios within each round.
    pub(crate) of_raw: Option<f64>,
    pub(crate) sections_a_second: Option<f64>,
    /// The median of the ratios within each round, to distlock's.
    pub(crate) sections_of_ours: Option<f64>,
    /// The part of the thread that got fewest, of an equal part.
    pub(crate) fewest: Option<f64>,
    pub(crate) handoff_p50_us: Option<f64>,
    pub(crate) handoff_p99_us: Option<f64>,
    pub(crate) handoffs: Option<f64>,
}

#[derive(Default, Debug, PartialEq)]
pub(crate) struct Results {
    /// The command, the machine, the server: a line each.
    pub(crate) captions: Vec<String>,
    pub(crate) rows: Vec<Row>,
}

const COLUMNS: [&str; 10] = [
    "name",
    "language",
    "cycles_a_second",
    "of_raw",
    "sections_a_second_8_threads",
    "sections_of_distlock",
    "fewest_of_fair_share",
    "handoff_p50_us",
    "handoff_p99_us",
    "handoffs",
];

impl Row {
    fn figures(&self) -> [Option<f64>; 8] {
        [
            self.cycles_a_second,
            self.of_raw,
            self.sections_a_second,
            self.sections_of_ours,
            self.fewest,
            self.handoff_p50_us,
            self.handoff_p99_us,
            self.handoffs,
        ]
    }

    fn parse(line: &str) -> Row {
        let mut cells = line.split('\t');
        let mut text = || cells.next().unwrap_or_default().to_owned();
        let (name, language) = (text(), text());
        let mut figure = || cells.next().and_then(|cell| cell.parse().ok());
        Row {
            name,
            language,
            cycles_a_second: figure(),
            of_raw: figure(),
            sections_a_second: figure(),
            sections_of_ours: figure(),
            fewest: figure(),
            handoff_p50_us: figure(),
            handoff_p99_us: figure(),
            handoffs: figure(),
        }
    }
}

impl Results {
    pub(crate) fn tsv(&self) -> String {
        let mut text: String = self.captions.iter().map(|line| format!("# {line}\n")).collect();
        text += &format!("{}\n", COLUMNS.join("\t"));
        for row in &self.rows {
            let figures = row.figures().map(|figure| figure.map_or_else(|| "-".to_owned(), |f| format!("{f:.3}")));
            writeln!(text, "{}\t{}\t{}", row.name, row.language, figures.join("\t")).expect("a string");
        }
        text
    }

    pub(crate) fn parse(tsv: &str) -> Results {
        let captions = tsv.lines().filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect();
        let rows = tsv.lines().filter(|line| !line.starts_with('#')).skip(1).map(Row::parse).collect();
        Results { captions, rows }
    }

    /// Ratios are to raw in the cycle, and to distlock in the rest.
    pub(crate) fn markdown(&self) -> String {
        let ours = self.rows.iter().find(|row| row.name.starts_with("distlock")).cloned().unwrap_or_default();
        let mut text = self.captions.iter().map(|line| format!("{line}  \n")).collect::<String>();
        text += "\n| | language | cycles/s | of raw | sections/s, 8 threads | of distlock | fewest | \
                 hand-off p50 | p99 | of distlock |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
        for row in &self.rows {
            let cells = [
                row.name.clone(),
                row.language.clone(),
                cell(row.cycles_a_second, |n| format!("{n:.0}")),
                cell(row.of_raw, |n| format!("{n:.2}")),
                cell(row.sections_a_second, |n| format!("{n:.0}")),
                cell(row.sections_of_ours, |n| format!("{n:.2}")),
                cell(row.fewest, |n| format!("{n:.2}")),
                cell(row.handoff_p50_us, micros),
                cell(row.handoff_p99_us, micros),
                cell(ratio(row.handoff_p50_us, ours.handoff_p50_us), |n| format!("{n:.2}")),
            ];
            writeln!(text, "| {} |", cells.join(" | ")).expect("a string");
        }
        text
    }
}

fn cell(figure: Option<f64>, write: impl Fn(f64) -> String) -> String {
    figure.map_or_else(|| "–".to_owned(), write)
}

fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// In the unit that a reader would choose.
pub(crate) fn micros(us: f64) -> String {
    match Duration::from_nanos((us * 1000.0) as u64) {
        d if d < Duration::from_millis(1) => format!("{us:.0} µs"),
        d if d < Duration::from_millis(10) => format!("{:.1} ms", us / 1e3),
        d if d < Duration::from_secs(1) => format!("{:.0} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_gaps_included() {
        let row = Row { name: "a 1".into(), language: "Rust".into(), fewest: Some(0.5), ..Row::default() };
        let results = Results { captions: vec!["a machine".into()], rows: vec![row, Row::default()] };
        assert_eq!(Results::parse(&results.tsv()), results);
    }
}

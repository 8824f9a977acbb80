//! Other lock libraries beside distlock. `benches/peers/run` builds and calls this; by itself:
//!
//! - `measure COMMAND FOLDER` runs every contestant that can be had here and writes `results.tsv`;
//! - `plot FOLDER SVG` draws `results.tsv`;
//! - `worker NAME PORT` is one contestant of Rust in a process of its own, obeying its standard input.

mod contestants;
mod machine;
mod measure;
mod plot;
mod process;
mod results;
mod rust;
#[path = "../../support/mod.rs"]
mod support;
mod worker;

use std::{fs, path::Path};

use results::Results;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["worker", name, port] => worker::serve(rust::open(name, port.parse().expect("a port"))),
        ["measure", command, folder] => measure(command, Path::new(folder)),
        ["plot", folder, svg] => {
            let text = fs::read_to_string(Path::new(folder).join("results.tsv")).expect("results.tsv");
            fs::write(svg, plot::svg(&Results::parse(&text))).expect("a file to draw into");
        }
        _ => panic!("measure COMMAND FOLDER, plot FOLDER SVG, worker NAME PORT"),
    }
}

fn measure(command: &str, folder: &Path) {
    let results = measure::all(command);
    fs::write(folder.join("results.tsv"), results.tsv()).expect("a place for results.tsv");
    print!("{}", results.markdown());
}

//! Other lock libraries beside distlock. `benches/peers/run` builds and calls this; by itself:
//!
//! - `measure COMMAND FOLDER` runs every contestant that can be had here and writes `results.tsv`;
//! - `plot FOLDER SVG` draws `results.tsv`;
//! - `curves CONTEND HANDOFF SVG CAPTION …` draws what our own benches of these names printed;
//! - `nodes` prints how long a lock over five nodes takes, beside the crate `redlock`;
//! - `worker NAME PORT` is one contestant of Rust in a process of its own, obeying its standard input.

mod contestants;
mod curves;
mod machine;
mod measure;
mod nodes;
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
        ["nodes"] => nodes::table(),
        ["curves", contend, handoff, svg, ref captions @ ..] => {
            let [contend, handoff] = [contend, handoff].map(|path| fs::read_to_string(path).expect("a table"));
            let mut captions: Vec<String> = captions.iter().map(|&caption| caption.to_owned()).collect();
            captions.push(machine::description());
            captions.push(format!("{}, load {} at the end", machine::date(), machine::load()));
            fs::write(svg, curves::svg(&contend, &handoff, &captions)).expect("a file to draw into");
        }
        _ => panic!(
            "measure COMMAND FOLDER, plot FOLDER SVG, curves CONTEND HANDOFF SVG CAPTION …, nodes, worker NAME PORT"
        ),
    }
}

fn measure(command: &str, folder: &Path) {
    let results = measure::all(command);
    fs::write(folder.join("results.tsv"), results.tsv()).expect("a place for results.tsv");
    print!("{}", results.markdown());
}

//! Where a run was made: what a reader needs in order to judge its figures.

use std::{fs, process::Command, thread};

use distlock::redis;

use crate::support::{connect, url};

/// Processor, cores, kernel, interpreters.
pub(crate) fn description() -> String {
    let cores = fields("/proc/cpuinfo", "processor").len();
    let model = fields("/proc/cpuinfo", "model name").first().cloned().unwrap_or_else(|| "unknown".to_owned());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // The processors that this process may use, and with it all that it starts.
    let pinned = match thread::available_parallelism() {
        Ok(n) if n.get() < cores => format!(", all pinned to {n}"),
        _ => String::new(),
    };
    format!("{model}, {cores} cores{pinned}, Linux {}", kernel.trim())
}

pub(crate) fn server_version(port: u16) -> String {
    let info: String = redis::cmd("INFO").arg("server").query(&mut connect(&url(port))).expect("INFO");
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    match field("valkey_version:") {
        Some(version) => format!("valkey-server {version}"),
        None => format!("redis-server {}", field("redis_version:").unwrap_or_default()),
    }
}

pub(crate) fn date() -> String {
    let output = Command::new("date").args(["-u", "+%F %H:%M UTC"]).output().expect("date");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// How many processes wanted a processor, over the last minute.
pub(crate) fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn fields(file: &str, field: &str) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.filter(|(name, _)| name.trim() == field).map(|(_, value)| value.trim().to_owned()).collect()
}

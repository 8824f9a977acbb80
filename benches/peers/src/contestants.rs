//! Who is measured, and what has to be known of each: how its process is started, and how long it may
//! sleep between two attempts at its defaults, which says how long a hold must vary for a fair hand-off.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    language: Language,
    pub(crate) longest_pause: Duration,
    /// The raw limit only cycles: it has no way of its own to wait.
    pub(crate) waits: bool,
}

enum Language {
    /// Served by this very program.
    Rust,
    Python(&'static str),
    Node(&'static str),
}

use Language::{Node, Python, Rust};

#[rustfmt::skip]
pub(crate) const ALL: [Contestant; 10] = [
    contestant("raw", "", Rust, 0),
    contestant("distlock", "0.1", Rust, 50),
    contestant("redlock", "2.0.0", Rust, 200),
    contestant("rslock", "0.10.0", Rust, 200),
    contestant("redis-lock", "0.5.1", Rust, 1_000),
    contestant("redis-py", "8.1.0", Python("redis_py.py"), 100),
    contestant("python-redis-lock", "4.0.1", Python("python_redis_lock.py"), 0),
    contestant("pottery", "3.0.1", Python("pottery_redlock.py"), 200),
    contestant("node-redlock", "4.2.0", Node("redlock.js"), 300),
    contestant("redis-semaphore", "5.8.0", Node("redis_semaphore.js"), 10),
];

const fn contestant(name: &'static str, version: &'static str, language: Language, pause_ms: u64) -> Contestant {
    // An empty version is the raw limit's.
    let waits = !version.is_empty();
    Contestant { name, version, language, longest_pause: Duration::from_millis(pause_ms), waits }
}

impl Contestant {
    pub(crate) fn language(&self) -> &'static str {
        match self.language {
            Rust => "Rust",
            Python(_) => "Python",
            Node(_) => "Node",
        }
    }

    /// A process that serves this contestant; `None` where its language was not installed.
    pub(crate) fn command(&self, port: u16) -> Option<Command> {
        let mut command = match self.language {
            Rust => {
                let mut command = Command::new(env::current_exe().expect("this program"));
                command.args(["worker", self.name]);
                command
            }
            Python(script) => interpreter("PEERS_PYTHON", "python", script)?,
            Node(script) => interpreter("PEERS_NODE", "node", script)?,
        };
        command.arg(port.to_string());
        Some(command)
    }
}

/// `run` names the interpreter in the environment once the libraries are in place.
fn interpreter(variable: &str, folder: &str, script: &str) -> Option<Command> {
    let mut command = Command::new(env::var_os(variable)?);
    command.arg(here().join(folder).join(script));
    Some(command)
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

//! The examples, run as their readers run them. Each opens with the text that it prints; it must print
//! that, leave no key behind but fences, and end by itself.

use std::{
    env::consts::EXE_SUFFIX,
    fs,
    io::{BufRead, BufReader},
    net::TcpStream,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Server, eventually};

/// Examples are through in seconds; this is for a machine that is not.
const LIMIT: Duration = Duration::from_secs(60);

/// Where it finds its server.
enum On<'a> {
    Given(&'a Server),
    Private,
    Demo,
}

/// An example that runs. It ends with the value at the latest.
struct Example {
    child: Child,
    lines: Receiver<String>,
    end: Instant,
}

impl Example {
    fn start(name: &str, on: On<'_>) -> Example {
        let mut command = Command::new(binary(name));
        match on {
            On::Given(server) => command.env("REDIS_URL", server.url()),
            On::Private => command.env_remove("REDIS_URL"),
            On::Demo => command.env_remove("REDIS_URL").env("PATH", ""),
        };
        // A process group of its own, as a terminal makes it: so ctrl-c can be sent to all of it.
        let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().expect("the example");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let (line, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        Example { child, lines, end: Instant::now() + LIMIT }
    }

    /// The next line; `None` when the example and all that it started have ended.
    fn line(&self) -> Option<String> {
        let left = self.end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "it does not end within {LIMIT:?}");
        match self.lines.recv_timeout(left) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("no line within {LIMIT:?}"),
        }
    }

    /// Waits for a line.
    fn line_with(&self, text: &str) -> String {
        std::iter::from_fn(|| self.line())
            .find(|line| line.contains(text))
            .unwrap_or_else(|| panic!("it ended without {text:?}"))
    }

    /// What else it prints until it ends, which it does well.
    fn rest(mut self) -> Vec<String> {
        let lines: Vec<String> = std::iter::from_fn(|| self.line()).collect();
        let status = self.child.wait().expect("a status");
        assert!(status.success(), "{status}: {lines:#?}");
        lines
    }

    fn signal(&self, name: &str) {
        let group = format!("-{}", self.child.id());
        assert!(Command::new("kill").args(["-s", name, "--", &group]).status().expect("kill").success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn binary(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("this program");
    let profile = this.parent().and_then(Path::parent).expect("target/debug/deps");
    let binary = profile.join("examples").join(format!("{name}{EXE_SUFFIX}"));
    assert!(is_fresh(&binary), "{} is to be built: `cargo build --examples` (`./test` does)", binary.display());
    binary
}

/// `cargo test --test it` builds no examples: an old one would pass or fail for what is no longer there.
fn is_fresh(binary: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
    let (Some(built), Ok(sources)) = (modified(binary), fs::read_to_string(binary.with_extension("d"))) else {
        return false;
    };
    // One line, as in a Makefile: "binary: source source …".
    sources.split_whitespace().skip(1).all(|source| modified(Path::new(source)).is_none_or(|changed| changed <= built))
}

/// Runs it on a server of its own, where only fences may be left.
fn run(name: &str) -> Vec<String> {
    let server = Server::start();
    let lines = Example::start(name, On::Given(&server)).rest();
    let left: Vec<String> = server.ask(&["KEYS", "*"]);
    assert!(left.iter().all(|key| key.starts_with("distlock:fence:")), "{left:?}");
    lines
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the example says that it prints.
fn promised(name: &str) -> Vec<String> {
    let source = fs::read_to_string(repository().join(format!("examples/{name}.rs"))).expect("the source");
    let block = source.lines().skip_while(|line| *line != "//! ```text").skip(1);
    let lines: Vec<_> = block.take_while(|line| *line != "//! ```").map(|line| line[4..].to_owned()).collect();
    assert!(lines.len() > 2, "{name} says what it prints");
    lines
}

/// Without what differs from run to run: which server it is, and the fences.
fn comparable(lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .map(|line| if line.starts_with("server: ") { "server: …" } else { line })
        .map(|line| line.split(' ').map(|word| if is_fence(word) { "…" } else { word }).collect::<Vec<_>>().join(" "))
        .collect()
}

fn is_fence(word: &str) -> bool {
    word.len() >= 16 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Prints what it says, line by line.
#[track_caller]
fn assert_prints(name: &str, lines: &[String]) {
    assert_eq!(comparable(lines), comparable(&promised(name)));
}

fn count(lines: &[String], end: &str) -> usize {
    lines.iter().filter(|line| line.ends_with(end)).count()
}

#[test]
fn from_mutex_sells_no_more_than_there_is_in_one_process_and_in_three() {
    assert_prints("from_mutex", &run("from_mutex"));
}

#[test]
fn http_orders_answers_taken_with_409_and_an_outage_with_503() {
    assert_prints("http_orders", &run("http_orders"));
}

#[test]
fn try_for_tells_taken_from_out_of_reach_and_from_a_mistake() {
    assert_prints("try_for", &run("try_for"));
}

#[test]
fn fenced_sqlite_takes_no_write_of_a_late_holder() {
    assert_prints("fenced_sqlite", &run("fenced_sqlite"));
}

#[test]
fn guarded_write_writes_only_for_the_holder_and_the_newest_fence() {
    assert_prints("guarded_write", &run("guarded_write"));
}

#[test]
fn uploads_hold_a_file_over_several_requests() {
    assert_prints("uploads", &run("uploads"));
}

#[test]
fn old_fleet_takes_turns_with_programs_of_the_timestamp_protocol() {
    assert_prints("old_fleet", &run("old_fleet"));
}

#[test]
fn worker_pool_does_every_job_once() {
    let lines = run("worker_pool");
    assert_eq!(lines.last().map(String::as_str), Some("all 60 jobs were done, each once"));
    assert_eq!(lines.iter().filter(|line| line.starts_with("job ")).count(), 60);
}

#[test]
fn cron_does_the_job_on_one_host_and_the_others_leave() {
    let lines = run("cron");
    assert_eq!(count(&lines, ": does the job"), 1, "{lines:#?}");
    assert_eq!(count(&lines, ": is through"), 1, "{lines:#?}");
    // A host of a slow machine may come when the first one is through.
    assert_eq!(count(&lines, ": taken, leaves") + count(&lines, ": done already, leaves"), 3, "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("host-4: done already, leaves"));
}

#[test]
fn leader_kills_its_work_when_the_lead_is_lost_and_the_next_one_leads() {
    let (mut lines, mut promised) = (comparable(&run("leader")), comparable(&promised("leader")));
    lines.sort();
    promised.sort();
    assert_eq!(lines, promised);
}

#[test]
fn hand_over_leaves_no_gap_and_gives_a_higher_fence() {
    let lines = run("hand_over");
    assert_prints("hand_over", &lines);
    let words = lines.iter().flat_map(|line| line.split(' '));
    let fences: Vec<&str> = words.filter(|word| is_fence(word)).collect();
    assert!(fences.len() == 2 && fences[0] < fences[1], "{fences:?}");
}

/// Ctrl-c at a terminal is a signal to all of the example's group, and its server must outlive it.
#[test]
fn shutdown_by_ctrl_c_ends_all_waits_and_releases_what_is_held() {
    let example = Example::start("shutdown", On::Private);
    example.line_with("holds the lock");
    example.signal("INT");
    let lines = example.rest();
    assert_eq!(lines.first().map(String::as_str), Some("ctrl-c: shutting down"));
    assert_eq!(count(&lines, " leaves"), 3, "{lines:#?}");
    assert!(count(&lines, " releases") >= 1, "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("all workers have left, nobody holds the lock"));
}

#[test]
fn shutdown_ends_also_when_nobody_presses_ctrl_c() {
    let lines = run("shutdown");
    assert_eq!(count(&lines, "nobody presses ctrl-c: shutting down"), 1, "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("all workers have left, nobody holds the lock"));
}

#[test]
fn a_private_server_ends_with_its_example_also_when_that_is_killed() {
    let example = Example::start("shutdown", On::Private);
    let line = example.line_with("server: a private ");
    let port: u16 = line.rsplit(' ').next().and_then(|port| port.parse().ok()).expect("a port");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    example.signal("KILL");
    eventually(LIMIT, "the server ends", || TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn examples_run_on_the_demo_server_where_there_is_no_redis() {
    for name in ["uploads", "old_fleet", "from_mutex", "hand_over", "guarded_write", "fenced_sqlite"] {
        let lines = Example::start(name, On::Demo).rest();
        assert!(lines.iter().any(|line| line.starts_with("server: a demo server in this process")), "{lines:#?}");
        assert_prints(name, &lines);
    }
}

#[test]
fn the_readme_lists_every_example() {
    let readme = fs::read_to_string(repository().join("README.md")).expect("the README");
    for entry in fs::read_dir(repository().join("examples")).expect("the examples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            assert!(readme.contains(&format!("| [`{name}`](examples/{name}.rs) |")), "{name}");
        }
    }
}

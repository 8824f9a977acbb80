//! The guide says what is so: the tests that it names exist, each fault has its row, each log line of the
//! sources is there and no other, and the rights that it lists are the ones that are needed.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use distlock::{DistLock, ErrorKind, FenceGate, LockClient, LockOptions, redis::pipe};

use crate::support::proxy::{LEAVE, TRY, calls};
use crate::support::{Fate, Proxy, Server, Way, eventually};

const LONG: Duration = Duration::from_secs(20);

/// What can happen to a lock on one server, in words that a row of the page must have.
const FAULTS: [&str; 41] = [
    "holder killed",
    "holder paused beyond its ttl",
    "renewal starved",
    "hanging",
    "server silent",
    "cut off from this process",
    "reply lost",
    "request lost",
    "half a request",
    "after its caller gave up",
    "connection reset",
    "half-open",
    "refused",
    "never answering AUTH",
    "restarted empty",
    "back with all its data",
    "an old snapshot",
    "the end of its append-only file gone",
    "evicted by Redis itself",
    "while processes wait",
    "FLUSHALL",
    "DEL",
    "evicted",
    "overwritten",
    "renamed",
    "PERSIST",
    "another type",
    "SCRIPT FLUSH",
    "CLIENT KILL",
    "maxclients",
    "idle `timeout`",
    "OOM",
    "READONLY, MASTERDOWN",
    "LOADING",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "NOAUTH, WRONGPASS",
    "NOPERM",
    "clock of the server",
    "pool exhausted",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The text of every Rust file under a folder.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let files = files.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).map(read);
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// The cells of the table whose first column is called so.
fn table(page: &str, first: &str) -> Vec<Vec<String>> {
    let head = format!("| {first} |");
    let rows = page.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    rows.take_while(|line| line.starts_with('|'))
        .map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names of all functions that are tests.
fn tests() -> Vec<String> {
    let name = |after: &str| Some(after.split_once("fn ")?.1.split_once('(')?.0.to_owned());
    let all = ["tests", "src"].map(|folder| sources(&root().join(folder))).concat();
    all.iter().flat_map(|text| text.split("#[test]").skip(1).filter_map(name).collect::<Vec<_>>()).collect()
}

#[test]
fn the_table_of_faults_names_tests_that_exist_and_has_a_row_for_each_fault() {
    let (rows, tests) = (table(&read("src/guide/leases.md"), "fault"), tests());
    for row in &rows {
        let [fault, _, _, checked] = &row[..] else { panic!("four columns: {row:?}") };
        assert!(quoted(checked).count() > 0, "{fault}: no test");
        for name in quoted(checked) {
            assert!(tests.iter().any(|test| test == name), "{fault}: there is no test {name:?}");
        }
    }
    for fault in FAULTS {
        assert!(rows.iter().any(|row| row[0].replace('`', "").contains(&fault.replace('`', ""))), "no row for {fault}");
    }
}

/// The first string after each `level!(`, and its level.
fn log_lines() -> Vec<(&'static str, String)> {
    let all = sources(&root().join("src"));
    let of = |level: &'static str| {
        let call = format!("{level}!(");
        let lines = all.iter().flat_map(|text| text.split(&call).skip(1).map(|rest| rest.split('"').nth(1)));
        lines.flatten().map(|line| (level, line.to_owned())).collect::<Vec<_>>()
    };
    ["error", "warn", "info", "debug", "trace"].map(of).concat()
}

/// Is `text` what the format string `line` may print? Its placeholders are any text.
fn is_print_of(mut text: &str, line: &str) -> bool {
    line.split(['{', '}']).step_by(2).all(|part| match text.split_once(part) {
        Some((_, rest)) => {
            text = rest;
            true
        }
        None => false,
    })
}

#[test]
fn the_guide_has_every_log_line_and_no_other() {
    let (rows, lines) = (table(&read("src/guide/operating.md"), "level"), log_lines());
    assert!(lines.len() >= 10, "{lines:?}");
    let fits = |row: &[String], (level, line): &(&str, String)| {
        row[0] == *level && quoted(&row[1]).next().is_some_and(|text| is_print_of(text, line))
    };
    for line in &lines {
        assert!(rows.iter().any(|row| fits(row, line)), "the guide has no row for {line:?}");
    }
    for row in &rows {
        assert!(lines.iter().any(|line| fits(row, line)), "nothing logs {row:?}");
    }
}

/// The page's rule for a user who locks, as a command.
fn rights() -> Vec<String> {
    let page = read("src/guide/operating.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER")).expect("a rule");
    line.split(' ').map(str::to_owned).collect()
}

fn set_user(server: &Server, rule: &[String]) {
    server.ask::<()>(&["ACL", "DELUSER", "worker"]);
    server.ask::<()>(&rule.iter().map(String::as_str).collect::<Vec<_>>());
    server.ask::<()>(&["ACL", "LOG", "RESET"]);
    // What is loaded already is not sent again.
    server.ask::<()>(&["SCRIPT", "FLUSH"]);
}

/// Whatever a lock can be asked for, a lost answer included.
fn use_all(port: u16) -> distlock::Result<()> {
    let proxy = Proxy::to(port);
    let client = LockClient::open(format!("redis://worker:secret@127.0.0.1:{}/", proxy.port()))?;
    client.ping()?;
    let options = LockOptions::new().ttl(Duration::from_millis(300)).unreachable_after(LONG);
    let lock = DistLock::with_options(&client, "orders:42", &options)?;
    let guard = lock.lock()?;
    guard.extend(Duration::from_secs(1))?;
    guard.exec(pipe().set("orders:42:state", "paid"))?;
    FenceGate::new(&client, "orders:42:gate").exec(guard.fence(), pipe().set("orders:42:state", "sent"))?;
    assert!(lock.is_locked()?);
    let guard = lock.resume(&guard.into_token()?)?;
    lock.force_unlock()?;
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    // What had no answer is taken back.
    let before = proxy.answered(calls(LEAVE));
    proxy.rule(Way::Reply, Fate::Cut, 2, calls(TRY));
    drop(lock.lock()?);
    eventually(LONG, "taken back", || proxy.answered(calls(LEAVE)) > before);
    Ok(())
}

#[test]
fn the_rights_in_the_guide_are_enough_and_none_is_too_many() {
    let server = Server::start();
    let refused = |rule: &[String]| {
        set_user(&server, rule);
        let outcome = use_all(server.port());
        let mut log = server.ask::<Vec<redis::Value>>(&["ACL", "LOG"]);
        // Only asked whether it may be asked, by `ping`.
        log.retain(|entry| !format!("{entry:?}").contains("cluster|info"));
        (outcome, log)
    };
    let all = rights();
    let (outcome, log) = refused(&all);
    outcome.unwrap_or_else(|e| panic!("the guide's rights are not enough: {e:?}"));
    assert!(log.is_empty(), "{log:?}");
    let (ours, needed): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|part| !part.starts_with(['+', '~']));
    for one in &needed {
        let rest: Vec<_> = ours.iter().chain(needed.iter().filter(|part| *part != one)).cloned().collect();
        let (outcome, log) = refused(&rest);
        assert!(outcome.is_err() || !log.is_empty(), "{one} is not needed");
    }
}

/// A heading as a link names it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// The compiler of the documentation checks the pages of links, and not what follows a `#`.
#[test]
fn links_into_the_guide_lead_to_headings_that_are_there() {
    let pages = ["leases", "from_mutex", "choosing", "operating", "names"].map(|name| {
        let page = read(format!("src/guide/{name}.md"));
        let headings = page.lines().filter_map(|line| line.strip_prefix("# ")).map(anchor).collect::<Vec<_>>();
        (name, page, headings)
    });
    let mut texts = sources(&root().join("src"));
    texts.push(read("README.md"));
    texts.extend(pages.iter().map(|(_, page, _)| page.clone()));
    let mut links = 0;
    for (name, _, headings) in &pages {
        for start in [format!("guide::{name}#"), format!("guide/{name}/#")] {
            for rest in texts.iter().flat_map(|text| text.split(&start).skip(1)) {
                let to = rest.split(')').next().unwrap_or_default();
                assert!(headings.iter().any(|heading| heading == to), "{name} has no heading {to:?}");
                links += 1;
            }
        }
    }
    assert!(links >= 5, "{links}");
}

/// Pages that a browser opens relative to the README.
#[test]
fn the_links_of_the_readme_lead_somewhere() {
    let readme = read("README.md");
    let links: Vec<&str> = readme.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0)).collect();
    for link in &links {
        let file = link.split('#').next().unwrap_or_default();
        let guide = file.strip_prefix("https://docs.rs/distlock/latest/distlock/guide/");
        let path = match guide {
            Some(page) => format!("src/guide/{}.md", page.trim_end_matches('/')),
            None if file.contains("://") || file.is_empty() => continue,
            None => file.to_owned(),
        };
        assert!(root().join(&path).exists(), "{link}: there is no {path}");
    }
    assert!(links.len() >= 5, "{links:?}");
}

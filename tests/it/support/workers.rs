//! Worker processes: the test binary again, told by its environment what to do.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{Server, eventually};

const TASK: &str = "DISTLOCK_TEST_TASK";
const URL: &str = "DISTLOCK_TEST_URL";

/// Starts a process that runs `processes::worker`, which looks up its task by this name.
pub(crate) fn start(task: &str, server: &Server) -> Child {
    start_at(task, &server.url())
}

/// The same for an address, which may be a proxy's. The process sees the end of its standard input when
/// the test closes it, or ends itself.
pub(crate) fn start_at(task: &str, url: &str) -> Child {
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::worker", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(TASK, task)
        .env(URL, url)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a worker process")
}

/// STOP or CONT.
pub(crate) fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(status.expect("kill").success(), "kill -{name}");
}

/// What this process was started for; nothing in an ordinary run.
pub(crate) fn task() -> Option<(String, String)> {
    Some((std::env::var(TASK).ok()?, std::env::var(URL).ok()?))
}

/// Waits until a process ends, and well. One that does not is ended.
#[track_caller]
pub(crate) fn ends_well(child: Child, limit: Duration) {
    let mut worker = Worker(child);
    let mut status = None;
    eventually(limit, "the worker ends", || {
        status = worker.0.try_wait().expect("a status");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

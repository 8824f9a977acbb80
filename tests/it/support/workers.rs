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
    Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "processes::worker", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(TASK, task)
        .env(URL, server.url())
        .stdout(Stdio::null())
        .spawn()
        .expect("a worker process")
}

/// What this process was started for; nothing in an ordinary run.
pub(crate) fn task() -> Option<(String, String)> {
    Some((std::env::var(TASK).ok()?, std::env::var(URL).ok()?))
}

/// Waits until a process ends, and well.
#[track_caller]
pub(crate) fn ends_well(mut child: Child, limit: Duration) {
    let mut status = None;
    eventually(limit, "the worker ends", || {
        status = child.try_wait().expect("a status");
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

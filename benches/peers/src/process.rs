//! One contestant in a process of its own: spoken to in lines, given up when it does not answer.
//!
//! The lines, which `worker.rs`, `python/worker.py` and `node/worker.js` all obey:
//!
//! | asked | answered |
//! |---|---|
//! | (start) | `ready` |
//! | `cycle MS` | how many cycles one thread made, and in how many nanoseconds |
//! | `sections N MS` | how many sections each of N threads (or tasks) ended within that time |
//! | `take` | the nanosecond of CLOCK_MONOTONIC at which the lock was acquired |
//! | `give` | the nanosecond at which the release was called |

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

/// Longer than any library here waits for a lock that is free.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Process {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Process, String> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("does not start: {error}"))?;
        let orders = child.stdin.take().expect("piped");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (sender, answers) = channel();
        // Ends with the child, whose output then ends.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let process = Process { child, orders, answers };
        match process.line()?.as_str() {
            "ready" => Ok(process),
            other => Err(format!("said {other:?} instead of ready")),
        }
    }

    pub(crate) fn ask(&mut self, order: &str) -> Result<Vec<u64>, String> {
        self.tell(order)?;
        self.answer()
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<(), String> {
        writeln!(self.orders, "{order}").map_err(|error| format!("cannot be told: {error}"))
    }

    pub(crate) fn answer(&self) -> Result<Vec<u64>, String> {
        let line = self.line()?;
        let numbers: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
        numbers.map_err(|_| format!("answered {line:?}"))
    }

    fn line(&self) -> Result<String, String> {
        self.answers.recv_timeout(PATIENCE).map_err(|error| format!("gives no answer: {error}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! What waiting costs: threads of one process, each behind another key that is held for longer, beside the
//! same polls over raw sockets. `cargo bench --bench idle`.

mod support;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use distlock::{DistLock, LockClient};
use support::{Server, queue::Queued, scripts, url};

const THREADS: usize = 50;
const TIME: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, kind, port] = &arguments[..]
        && kind != "--bench"
    {
        return serve(kind, port.parse().expect("a port"));
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let server = Server::start();
    let _holder = start("hold", server.port);
    println!("{:<34} {:>12} {:>16}", format!("{THREADS} threads wait {TIME:?}"), "of one core", "calls a second");
    for (name, kind) in [("raw sockets, same scripts", "raw"), ("DistLock, in turn", "wait")] {
        let waiter = start(kind, server.port);
        // All have asked, and most have looked once more.
        thread::sleep(Duration::from_secs(2));
        let (cpu, calls) = (cpu_of(&waiter), scripts(server.port));
        thread::sleep(TIME);
        let (cpu, calls) = (cpu_of(&waiter) - cpu, scripts(server.port) - calls);
        let part = cpu as f64 / TIME.as_nanos() as f64;
        println!("{name:<34} {:>10.2} % {:>16.0}", 100.0 * part, calls as f64 / TIME.as_secs_f64());
    }
}

/// A process of this program, ended with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(kind: &str, port: u16) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let child = command.args([kind, &port.to_string()]).stdout(Stdio::piped()).spawn().expect("a process");
    let mut process = Process(child);
    let mut line = String::new();
    BufReader::new(process.0.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    process
}

fn serve(kind: &str, port: u16) {
    let client = LockClient::open(url(port)).expect("an address");
    let lock = |i: usize| DistLock::new(&client, key(i));
    thread::scope(|scope| {
        let guards: Vec<_> = (0..THREADS).filter(|_| kind == "hold").map(|i| lock(i).lock().expect("a lock")).collect();
        for i in (0..THREADS).filter(|_| kind != "hold") {
            match kind {
                "raw" => scope.spawn(move || Queued::new(port, &key(i)).acquire()),
                _ => scope.spawn(move || drop(lock(i).lock())),
            };
        }
        println!("ready");
        thread::sleep(Duration::from_secs(600));
        drop(guards);
    });
}

fn key(i: usize) -> String {
    format!("bench:idle:{i}")
}

/// Nanoseconds of processor time of all its threads (Linux).
fn cpu_of(process: &Process) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.0.id())).expect("Linux");
    let times = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
    times.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok()).sum()
}

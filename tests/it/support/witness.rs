//! Who sees what really happens on a server: every command that it executes, for the referee of foreign
//! tokens, and what is left on it at the end.
//!
//! The witness is a user of its own, so that a test can close every other connection.

use std::{
    io::{BufRead, BufReader, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::referees::{Flag, Left, foreign::Ownership};
use super::{Server, eventually, lock};

const USER: &str = "witness";

pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
    line: Option<(TcpStream, JoinHandle<()>)>,
}

struct Seen {
    ownership: Ownership,
    /// The last mark in the stream: all before it was seen.
    mark: String,
}

impl Witness {
    /// A server that knows the witness.
    pub(crate) fn server() -> Server {
        Server::with(&["--user", USER, "on", "nopass", "~*", "&*", "+@all"])
    }

    /// Watches these locks from here on.
    pub(crate) fn of(server: &Server, locks: &[&str]) -> Witness {
        let seen = Arc::new(Mutex::new(Seen { ownership: Ownership::of(locks), mark: String::new() }));
        let mut witness = Witness { seen, line: None };
        witness.watch(server);
        witness
    }

    /// The server was started again, and is empty: nobody owns anything.
    pub(crate) fn watch_again(&mut self, server: &Server) {
        self.leave();
        lock(&self.seen).ownership.forget();
        self.watch(server);
    }

    fn watch(&mut self, server: &Server) {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        write!(stream, "AUTH {USER} x\r\nMONITOR\r\n").expect("a connection");
        let mut lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
        for _ in 0..2 {
            let answer = lines.next().expect("an answer").expect("an answer");
            assert_eq!(answer, "+OK", "the server is one that knows the witness");
        }
        let seen = Arc::clone(&self.seen);
        let thread = thread::spawn(move || lines.map_while(Result::ok).for_each(|line| lock(&seen).tell(&line)));
        self.line = Some((stream, thread));
    }

    /// What the referee of foreign tokens objects to, up to now.
    pub(crate) fn flags(&self, server: &Server) -> Vec<Flag> {
        let mark = format!("mark {:?}", std::time::Instant::now());
        let _: String = server.ask(&["ECHO", &mark]);
        eventually(Duration::from_secs(20), "the witness has seen all", || lock(&self.seen).mark == mark);
        lock(&self.seen).ownership.flags.clone()
    }

    fn leave(&mut self) {
        if let Some((stream, thread)) = self.line.take() {
            let _ = stream.shutdown(Shutdown::Both);
            let _ = thread.join();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Seen {
    fn tell(&mut self, line: &str) {
        if let Some((_, mark)) = line.split_once("\"ECHO\" \"") {
            self.mark = mark.trim_end_matches('"').to_owned();
        }
        self.ownership.tell(line.trim_start_matches('+'));
    }
}

/// Closes every connection but the witness's.
pub(crate) fn kill_connections(server: &Server) {
    let _: i64 = server.ask(&["CLIENT", "KILL", "USER", "default"]);
}

/// What is on the server: nothing but fences, if all is well, after so long at most.
pub(crate) fn left(server: &Server, threads: Vec<String>, limit: Duration) -> Left {
    let mut connection = server.connection();
    let end = std::time::Instant::now() + limit;
    loop {
        let left = look(&mut connection, &threads);
        if super::referees::nothing_is_left(&left).is_empty() || std::time::Instant::now() >= end {
            return left;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn look(connection: &mut redis::Connection, threads: &[String]) -> Left {
    let mut ask = |parts: &[&str]| redis::cmd(parts[0]).arg(&parts[1..]).query::<redis::Value>(connection).unwrap();
    let texts = |value| redis::from_redis_value::<Vec<String>>(value).expect("texts");
    let keys = texts(ask(&["KEYS", "*"]));
    let ttl = |key: String| {
        let ttl = redis::from_redis_value(ask(&["PTTL", &key])).expect("a number");
        (key, ttl)
    };
    // One that is gone by now was not left.
    let keys = keys.into_iter().map(ttl).filter(|(_, ttl)| *ttl != -2).collect();
    let channels = texts(ask(&["PUBSUB", "CHANNELS"]));
    let list: String = redis::from_redis_value(ask(&["CLIENT", "LIST"])).expect("a list");
    // The witness, and this one.
    let connections = list.lines().count().saturating_sub(2);
    Left { keys, channels, connections, threads: threads.to_vec() }
}

//! The demo server of the examples answers as a real server does, byte for byte: what is sent to both
//! stands in the tables of `commands`, `connections` and `scripts`.

mod commands;
mod connections;
mod scripts;

use std::{
    io::{BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    time::Duration,
};

use crate::{
    demo_server::DemoServer,
    support::{Server, read_message},
};

/// A real server and a demo server, with as many connections to each.
struct Pair {
    real: Vec<Wire>,
    demo: Vec<Wire>,
    real_server: Server,
    demo_server: DemoServer,
}

struct Wire(BufReader<TcpStream>);

impl Wire {
    fn to(port: u16) -> Wire {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        Wire(BufReader::new(stream))
    }

    fn send(&mut self, words: &[&[u8]]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).expect("it is sent");
    }

    fn read(&mut self) -> String {
        let bytes = read_message(&mut self.0).expect("an answer");
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Pair {
    /// `None` beside a server of another version than the demo server is of: texts of errors change.
    fn new(connections: usize) -> Option<Pair> {
        let (real_server, demo_server) = (Server::start(), DemoServer::start().expect("a free port"));
        let info: String = real_server.ask(&["INFO", "server"]);
        if !info.contains("redis_version:7.0.") {
            eprintln!("not compared: the demo server is a Redis 7.0, and redis-server here is not");
            return None;
        }
        let wires = |port| (0..connections).map(|_| Wire::to(port)).collect();
        Some(Pair { real: wires(real_server.port()), demo: wires(demo_server.port()), real_server, demo_server })
    }

    /// Both answer the same to one request; so often as it is answered.
    #[track_caller]
    fn same(&mut self, connection: usize, words: &[&[u8]], answers: usize) {
        let shown: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let (real, demo) = (&mut self.real[connection], &mut self.demo[connection]);
        real.send(words);
        demo.send(words);
        for _ in 0..answers {
            let (real, demo) = (real.read(), demo.read());
            assert!(real == demo, "{shown:?}\n  real: {real:?}\n  demo: {demo:?}");
        }
    }

    /// Both say the same on a connection that asked nothing.
    #[track_caller]
    fn same_message(&mut self, connection: usize) {
        assert_eq!(self.real[connection].read(), self.demo[connection].read());
    }

    /// A table of requests, one a line; `''` is the empty word and `·` a space within a word.
    #[track_caller]
    fn table(&mut self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let word = |word: &str| if word == "''" { String::new() } else { word.replace('·', " ") };
            let words: Vec<String> = line.split(' ').filter(|part| !part.is_empty()).map(word).collect();
            self.same(0, &words.iter().map(String::as_bytes).collect::<Vec<_>>(), 1);
        }
    }

    /// Raw bytes, and all that comes back until the end.
    #[track_caller]
    fn same_bytes(&mut self, bytes: &[u8]) {
        let ask = |port| {
            let mut stream = Wire::to(port).0.into_inner();
            stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write)).expect("it is sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an end");
            answer
        };
        let shown = String::from_utf8_lossy(bytes);
        assert_eq!(ask(self.demo_server.port()), ask(self.real_server.port()), "{shown:?}");
    }
}

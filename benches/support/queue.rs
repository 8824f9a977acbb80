//! The protocol of waiting in turn over raw sockets, one thread: what the library's own hand-off is measured
//! against. It believes what a benign server says; nothing of it heals a loss.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    time::Duration,
};

use super::{connect, load, url};

pub(crate) struct Queued {
    commands: BufReader<TcpStream>,
    messages: BufReader<TcpStream>,
    wait: String,
    release: String,
    keys: [String; 4],
    channel: String,
    token: String,
    n: u64,
    line: String,
}

const PARTS: [(&str, &str); 2] = [
    ("--< mint.lua", include_str!("../../src/server/script/mint.lua")),
    ("--< pass_on.lua", include_str!("../../src/server/script/pass_on.lua")),
];

impl Queued {
    pub(crate) fn new(port: u16, key: &str) -> Queued {
        let mut connection = connect(&url(port));
        let mut script = |source: &str| {
            let whole = PARTS.iter().fold(source.to_owned(), |text, (mark, part)| text.replace(mark, part.trim_end()));
            load(&mut connection, &whole)
        };
        let wait = script(include_str!("../../src/server/script/wait.lua"));
        let release = script(include_str!("../../src/server/script/release.lua"));
        let open = || {
            let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server");
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
            BufReader::new(stream)
        };
        let helper = |name: &str| format!("distlock:{name}:{{{key}}}");
        let mut queued = Queued {
            commands: open(),
            messages: open(),
            wait,
            release,
            keys: [key.to_owned(), helper("fence"), helper("queue"), helper("waiters")],
            channel: format!("bench:client:{}", std::process::id()),
            token: String::new(),
            n: 0,
            line: String::new(),
        };
        let request = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${}\r\n{}\r\n", queued.channel.len(), queued.channel);
        queued.messages.get_mut().write_all(request.as_bytes()).expect("SUBSCRIBE");
        for _ in 0..6 {
            assert!(read_line(&mut queued.messages, &mut queued.line), "no subscription");
        }
        queued
    }

    pub(crate) fn acquire(&mut self) {
        self.token = format!("d1.{:032x}-{}-{}", 0x0123_4567_89ab_cdef_u64, std::process::id(), self.n);
        let mut place = String::from("0");
        loop {
            let (token, channel) = (self.token.clone(), self.channel.clone());
            let answer = self.call(&self.wait.clone(), &[&token, "30000", "0", "0", &place, "1500", &channel]);
            if answer.starts_with("held ") {
                return;
            }
            place = answer.split(' ').nth(4).expect("a place").to_owned();
            if self.is_granted() {
                return;
            }
        }
    }

    pub(crate) fn release(&mut self) {
        let token = self.token.clone();
        let answer = self.call(&self.release.clone(), &[&token]);
        assert!(answer.starts_with("1 ") || answer.starts_with("2 "), "{answer}");
    }

    /// Sleeps until a message of this token and call, for at most a poll period.
    fn is_granted(&mut self) -> bool {
        loop {
            // *3 $7 message $n channel $n text: seven lines.
            for _ in 0..7 {
                if !read_line(&mut self.messages, &mut self.line) {
                    return false;
                }
            }
            let mut words = self.line.split(' ');
            if words.next() == Some(&self.n.to_string()) && words.nth(2) == Some(&self.token) {
                return true;
            }
        }
    }

    fn call(&mut self, script: &str, args: &[&str]) -> String {
        self.n += 1;
        let n = self.n.to_string();
        let keys = self.keys.iter().map(String::as_str);
        let parts: Vec<&str> = ["EVALSHA", script, "4"].into_iter().chain(keys).chain([n.as_str()]).collect();
        let mut request = format!("*{}\r\n", parts.len() + args.len());
        for part in parts.iter().chain(args) {
            request.push_str(&format!("${}\r\n{part}\r\n", part.len()));
        }
        self.commands.get_mut().write_all(request.as_bytes()).expect("a server");
        assert!(read_line(&mut self.commands, &mut self.line), "no answer");
        assert!(self.line.starts_with('$'), "{}", self.line);
        assert!(read_line(&mut self.commands, &mut self.line), "no answer");
        self.line.clone()
    }
}

/// Without its end; `false` if none came in time.
fn read_line(from: &mut BufReader<TcpStream>, line: &mut String) -> bool {
    line.clear();
    if from.read_line(line).is_err() {
        return false;
    }
    line.truncate(line.trim_end().len());
    true
}

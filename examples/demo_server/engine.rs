//! One thread that executes everything, as in Redis: it owns the data, the scripts and the writing side
//! of every connection, so that a command or a script is one step, and replies and messages go out in
//! the order in which they came about. Fed by the connection threads of `mod.rs`.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io::Write,
    net::{Shutdown, TcpStream},
    rc::Rc,
    sync::mpsc::Receiver,
};

use super::{
    commands::{self, NotFound, Outcome, Run},
    keyspace::Keyspace,
    lua::Scripts,
    resp::{Reply, Word},
};

/// The Redis whose behaviour this is.
pub(crate) const VERSION: &str = "7.0.0";

/// What a connection thread tells.
pub(crate) enum Event {
    Opened(u64, TcpStream),
    Request(u64, Vec<Word>),
    /// It did not speak RESP: what is to be said to it before the end.
    Garbled(u64, String),
    Closed(u64),
    End,
}

pub(crate) struct Client {
    stream: TcpStream,
    pub(crate) name: Word,
    pub(crate) channels: BTreeSet<Word>,
    /// Nothing of it is executed any more.
    ending: bool,
}

/// All that commands act on.
pub(crate) struct State {
    pub(crate) keyspace: Keyspace,
    pub(crate) clients: BTreeMap<u64, Client>,
    /// Whose command is being executed.
    pub(crate) current: u64,
    /// How often each command was executed.
    pub(crate) calls: BTreeMap<&'static str, u64>,
}

impl State {
    /// The client whose command is being executed; it is there until its `Closed` comes, which is later.
    pub(crate) fn client(&mut self) -> &mut Client {
        self.clients.get_mut(&self.current).expect("the client that asks")
    }

    fn is_ending(&self, id: u64) -> bool {
        self.clients.get(&id).is_none_or(|client| client.ending)
    }

    pub(crate) fn listeners(&self, channel: &[u8]) -> usize {
        self.clients.values().filter(|client| client.channels.contains(channel)).count()
    }

    pub(crate) fn channels(&self) -> BTreeSet<&Word> {
        self.clients.values().flat_map(|client| &client.channels).collect()
    }

    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let listeners = self.clients.values_mut().filter(|client| client.channels.contains(channel));
        let message = Reply::bulks([b"message", channel, message]);
        listeners.map(|client| client.send(&message)).count()
    }

    /// Ends a connection. It listens to nothing from now on, and what it asked already is not executed;
    /// its thread notices and says `Closed`.
    pub(crate) fn end(&mut self, id: u64) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.channels.clear();
        client.ending = true;
        let _ = client.stream.shutdown(Shutdown::Both);
    }

    pub(crate) fn end_after_reply(&mut self, id: u64) {
        self.clients.get_mut(&id).into_iter().for_each(|client| client.ending = true);
    }

    /// One command on the data, from a script.
    pub(crate) fn call(&mut self, words: &[Word]) -> Outcome {
        let command = commands::find(words).map_err(|error| match error {
            NotFound::Unknown(_) => "ERR Unknown Redis command called from script",
            NotFound::WrongCount(_) => "ERR Wrong number of args calling Redis command from script",
        })?;
        let Run::Data(run) = command.run else {
            return Err("ERR This Redis command is not allowed from script".into());
        };
        *self.calls.entry(command.name).or_default() += 1;
        run(self, words)
    }
}

impl Client {
    /// A client that does not read for as long as the stream's write timeout is let go.
    fn send(&mut self, reply: &Reply) {
        let mut out = Vec::new();
        reply.write(&mut out);
        if self.stream.write_all(&out).is_err() || self.ending {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Executes what comes, until the end.
pub(crate) fn run(events: &Receiver<Event>) {
    let state = State { keyspace: Keyspace::new(), clients: BTreeMap::new(), current: 0, calls: BTreeMap::new() };
    let state = Rc::new(RefCell::new(state));
    let mut scripts = Scripts::new(&state);
    for event in events {
        match event {
            Event::Opened(id, stream) => {
                let client = Client { stream, name: Word::new(), channels: BTreeSet::new(), ending: false };
                state.borrow_mut().clients.insert(id, client);
            }
            Event::Request(id, _) if state.borrow().is_ending(id) => {}
            Event::Request(id, words) => {
                let reply = execute(&state, &mut scripts, id, &words).unwrap_or_else(Reply::Error);
                state.borrow_mut().client().send(&reply);
            }
            Event::Garbled(id, complaint) => {
                let mut state = state.borrow_mut();
                state.end_after_reply(id);
                state.clients.get_mut(&id).into_iter().for_each(|client| client.send(&Reply::Error(complaint.clone())));
            }
            Event::Closed(id) => drop(state.borrow_mut().clients.remove(&id)),
            Event::End => break,
        }
    }
    state.borrow().clients.values().for_each(|client| drop(client.stream.shutdown(Shutdown::Both)));
}

fn execute(state: &RefCell<State>, scripts: &mut Scripts, id: u64, words: &[Word]) -> Outcome {
    let mut locked = state.borrow_mut();
    locked.current = id;
    locked.keyspace.tick();
    let command = commands::find(words).map_err(|error| match error {
        NotFound::Unknown(text) => text,
        NotFound::WrongCount(name) => commands::wrong_count(&name),
    })?;
    let listens = !locked.client().channels.is_empty();
    if listens && !["subscribe", "unsubscribe", "ping", "quit"].contains(&command.name) {
        let allowed = "only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context";
        return Err(format!("ERR Can't execute '{}': {allowed}", command.name));
    }
    *locked.calls.entry(command.name).or_default() += 1;
    match command.run {
        Run::Data(run) | Run::Client(run) => run(&mut locked, words),
        Run::Script(run) => {
            // The script borrows the state for each of its calls.
            drop(locked);
            run(scripts, words)
        }
    }
}

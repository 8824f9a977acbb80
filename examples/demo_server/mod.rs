//! A demo server: as much of Redis as this crate's locks and examples use, in this process and on a
//! loopback port, for machines that have none. Nothing for production: no persistence, no passwords,
//! no replicas, one database.
//!
//! A thread a connection reads requests; the engine's thread executes them and answers. Data in
//! `keyspace`, commands by what they act on in `commands`, scripts in `lua`, the wire in `resp`.

mod commands;
mod engine;
mod keyspace;
mod lua;
mod resp;

use std::{
    io::{self, BufReader, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{self, SyncSender},
    thread,
    time::Duration,
};

use engine::Event;

/// Ends with the value: the port is closed, the connections are cut.
pub(crate) struct DemoServer {
    address: SocketAddr,
    events: SyncSender<Event>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// How many requests may wait for the engine before connections stop reading.
const BACKLOG: usize = 1024;
/// How long the engine waits for a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);

impl DemoServer {
    /// Listens on a free port of the loopback interface, and nowhere else.
    pub(crate) fn start() -> io::Result<DemoServer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (events, received) = mpsc::sync_channel(BACKLOG);
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        let engine = named("demo-engine").spawn(move || engine::run(&received))?;
        let accepted = events.clone();
        let acceptor = named("demo-accept").spawn(move || accept(&listener, &accepted))?;
        Ok(DemoServer { address, events, threads: vec![engine, acceptor] })
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }
}

impl Drop for DemoServer {
    fn drop(&mut self) {
        let _ = self.events.send(Event::End);
        for thread in self.threads.drain(..) {
            // The engine first, then what waits for a connection and finds that the engine is gone.
            let _ = TcpStream::connect(self.address);
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, events: &SyncSender<Event>) {
    for (id, stream) in (1..).zip(listener.incoming()) {
        let Ok(stream) = stream else {
            // No file descriptor is free; one will be.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let _ = stream.set_nodelay(true);
        let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let Ok(writing) = stream.try_clone() else { continue };
        if events.send(Event::Opened(id, writing)).is_err() {
            return;
        }
        let reader = thread::Builder::new().name(format!("demo-client-{id}"));
        let own = events.clone();
        if reader.spawn(move || read(id, stream, &own)).is_err() {
            // No thread to be had: the connection is refused.
            let _ = events.send(Event::Closed(id));
        }
    }
}

/// Passes a connection's requests on, until it ends or the engine does.
fn read(id: u64, stream: TcpStream, events: &SyncSender<Event>) {
    if let Err(e) = pass_on(id, &mut BufReader::new(stream), events)
        && e.kind() == ErrorKind::InvalidData
    {
        let _ = events.send(Event::Garbled(id, e.to_string()));
    }
    let _ = events.send(Event::Closed(id));
}

fn pass_on(id: u64, stream: &mut BufReader<TcpStream>, events: &SyncSender<Event>) -> io::Result<()> {
    while let Some(words) = resp::read_request(stream)? {
        if !words.is_empty() && events.send(Event::Request(id, words)).is_err() {
            break;
        }
    }
    Ok(())
}

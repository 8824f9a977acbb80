//! Five nodes, each behind a relay that delays by 10 ms a way: how long it takes to acquire, beside one round
//! trip and beside the crate `redlock`, in the same run.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use distlock::{ClientOptions, DistLock, LockOptions, redis};
use redlock::RedLock;

use crate::support::{Server, connect, median};

const NODES: usize = 5;
const WAY: Duration = Duration::from_millis(10);
const TIMES: usize = 31;

/// Delays each way by as much as it is told.
struct Relay {
    port: u16,
    delay: Arc<AtomicU64>,
}

impl Relay {
    fn to(server: u16) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("its address").port();
        let delay = Arc::new(AtomicU64::new(WAY.as_micros() as u64));
        let theirs = Arc::clone(&delay);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a socket");
                }
                let both = [(&client, &server), (&server, &client)];
                for (from, to) in both {
                    pump(from.try_clone().expect("it"), to.try_clone().expect("it"), &theirs);
                }
            }
        });
        Relay { port, delay }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn slow(&self, way: Duration) {
        self.delay.store(way.as_micros() as u64, Relaxed);
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, delay: &Arc<AtomicU64>) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    let delay = Arc::clone(delay);
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut piece) {
            let due = Instant::now() + Duration::from_micros(delay.load(Relaxed));
            if sender.send((due, piece[..count].to_vec())).is_err() {
                break;
            }
        }
    });
}

pub(crate) fn table() {
    let mut servers: Vec<Server> = (0..NODES).map(|_| Server::start()).collect();
    let relays: Vec<Relay> = servers.iter().map(|server| Relay::to(server.port)).collect();
    let mut raw = connect(&relays[0].url());
    let trip = time(|| redis::cmd("PING").exec(&mut raw).expect("PONG"));
    let client = ClientOptions::new().open_nodes(relays.iter().map(Relay::url)).expect("nodes");
    let options = LockOptions::new();
    let lock = DistLock::with_options(&client, "peers:nodes", &options).expect("options");
    let theirs = RedLock::new(relays.iter().map(Relay::url).collect());
    println!(
        "| {NODES} nodes, {} ms a round trip | one round trip | distlock | of it | redlock 2.0.0 | of it |",
        2 * WAY.as_millis()
    );
    println!("|---|---:|---:|---:|---:|---:|");
    let row = |name: &str| {
        let ours = time_of(|| lock.lock().expect("a lock"), |guard| guard.unlock().expect("a release"));
        let other = time_of(
            || theirs.lock(b"peers:redlock", 30_000).ok().flatten(),
            |held| {
                held.iter().for_each(|held| theirs.unlock(held));
            },
        );
        let of = |d: Duration| d.as_secs_f64() / trip.as_secs_f64();
        println!("| {name} | {trip:.1?} | {ours:.1?} | {:.2} | {other:.1?} | {:.2} |", of(ours), of(other));
    };
    row("all good");
    relays[4].slow(Duration::from_millis(150));
    row("one 300 ms slower");
    relays[4].slow(WAY);
    drop(servers.pop());
    row("one dead");
}

fn time(mut what: impl FnMut()) -> Duration {
    time_of(&mut what, |()| {})
}

/// How long `take` takes, in the middle; `give` is not counted.
fn time_of<T>(mut take: impl FnMut() -> T, mut give: impl FnMut(T)) -> Duration {
    give(take());
    let times = (0..TIMES).map(|_| {
        let start = Instant::now();
        let taken = take();
        let took = start.elapsed().as_secs_f64();
        give(taken);
        took
    });
    Duration::from_secs_f64(median(times.collect()))
}

//! What the proxy does to messages, and that it leaves nothing.

use super::*;
use crate::support::{SLACK, Server};

fn ping(proxy: &Proxy, timeout: Duration) -> redis::RedisResult<redis::Connection> {
    let mut connection = redis::Client::open(proxy.url())?.get_connection_with_timeout(timeout)?;
    connection.set_read_timeout(Some(timeout))?;
    connection.set_write_timeout(Some(timeout))?;
    redis::cmd("PING").exec(&mut connection)?;
    Ok(connection)
}

#[test]
fn it_delays_every_reply_by_a_time_until_it_is_healed() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut connection = ping(&proxy, Duration::from_secs(9)).unwrap();
    let mut took = || {
        let start = std::time::Instant::now();
        redis::cmd("PING").exec(&mut connection).unwrap();
        start.elapsed()
    };
    let by = 2 * SLACK;
    proxy.delay(Way::Reply, by);
    assert!(took() >= by && took() >= by);
    proxy.heal();
    assert!(took() < SLACK);
}

#[test]
fn a_blocked_direction_holds_what_comes_and_the_other_one_passes() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut connection = ping(&proxy, Duration::from_millis(50)).unwrap();
    proxy.block(Way::Reply);
    assert!(redis::cmd("SET").arg("k").arg(1).exec(&mut connection).is_err());
    assert_eq!(server.ask::<i64>(&["GET", "k"]), 1, "requests pass");
    assert!(ping(&proxy, Duration::from_millis(50)).is_err(), "new connections are blocked, too");
    proxy.heal();
    assert_eq!(proxy.held(), 0);
    ping(&proxy, Duration::from_secs(9)).unwrap();
}

#[test]
fn the_nth_reply_is_lost_and_no_other() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let mut connection = ping(&proxy, Duration::from_millis(50)).unwrap();
    proxy.rule(Way::Reply, Fate::Lose, 1, nth(3, |request| contains(request, b"INCR")));
    let mut lost = |_| redis::cmd("INCR").arg("n").query::<i64>(&mut connection).is_err();
    assert_eq!([1, 2, 3].map(&mut lost), [false, false, true]);
    assert_eq!(server.ask::<i64>(&["GET", "n"]), 3);
}

#[test]
fn no_thread_of_it_is_left_after_its_drop() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let shared = Arc::downgrade(&proxy.shared);
    let mut connections = [(); 4].map(|()| ping(&proxy, Duration::from_secs(9)).unwrap());
    proxy.delay(Way::Request, Duration::from_secs(3600));
    connections[0].send_packed_command(&redis::cmd("PING").get_packed_command()).unwrap();
    proxy.block(Way::Reply);
    drop(proxy);
    // Every thread has a share of it.
    assert_eq!(shared.strong_count(), 0);
}

//! What connections say of themselves, listen to and send that is no request; and their end.

use std::net::TcpStream;

use super::{Pair, Wire};
use crate::{demo_server::DemoServer, support::read_message};

#[test]
fn the_demo_server_speaks_of_connections_as_redis_does() {
    let Some(mut pair) = Pair::new(1) else { return };
    pair.table(
        "ping
         ping hello
         ping a b
         echo hello
         echo
         select 0
         select x
         select 99
         auth secret
         auth default anything
         auth somebody secret
         client getname
         client setname me
         client getname
         client setname two·words
         client kill id 0
         client kill id 4000000000
         client kill id x
         client what
         client
         pubsub numsub a b
         pubsub numsub
         pubsub channels
         pubsub channels a*
         pubsub what
         pubsub
         publish nobody hears
         publish nobody
         unsubscribe
         subscribe
         time now
         what is this
         WHAT
         '' is empty
         quit",
    );
}

#[test]
fn messages_reach_their_listeners_as_in_redis() {
    const LISTENER: usize = 0;
    const OTHER: usize = 1;
    let Some(mut pair) = Pair::new(2) else { return };
    pair.same(LISTENER, &[b"SUBSCRIBE", b"a", b"b", b"a"], 3);
    pair.same(OTHER, &[b"PUBSUB", b"NUMSUB", b"a", b"b", b"c"], 1);
    pair.same(OTHER, &[b"PUBLISH", b"a", b"one\r\n\0"], 1);
    pair.same_message(LISTENER);
    let publish = b"redis.call('PUBLISH', 'c', 'x') return {redis.call('PUBLISH', KEYS[1], 'two'), redis.call('PUBSUB', 'NUMSUB', 'b')}";
    pair.same(OTHER, &[b"EVAL", publish, b"1", b"b"], 1);
    pair.same_message(LISTENER);
    pair.same(LISTENER, &[b"PING"], 1);
    pair.same(LISTENER, &[b"PING", b"text"], 1);
    pair.same(LISTENER, &[b"GET", b"k"], 1);
    pair.same(LISTENER, &[b"CLIENT", b"ID"], 1);
    pair.same(LISTENER, &[b"UNSUBSCRIBE", b"a", b"none"], 2);
    pair.same(OTHER, &[b"PUBSUB", b"CHANNELS"], 1);
    pair.same(LISTENER, &[b"UNSUBSCRIBE"], 1);
    pair.same(LISTENER, &[b"UNSUBSCRIBE"], 1);
    pair.same(LISTENER, &[b"GET", b"k"], 1);
    pair.same(OTHER, &[b"PUBLISH", b"a", b"three"], 1);
    // Killed, it is no listener any more, not even for what was sent together with the kill.
    pair.same(LISTENER, &[b"SUBSCRIBE", b"a"], 1);
    for wire in [&mut pair.real[OTHER], &mut pair.demo[OTHER]] {
        wire.send(&[b"CLIENT", b"KILL", b"TYPE", b"pubsub"]);
        wire.send(&[b"PUBLISH", b"a", b"four"]);
    }
    pair.same_message(OTHER);
    pair.same_message(OTHER);
}

#[test]
fn what_is_no_request_is_answered_as_by_redis() {
    let Some(mut pair) = Pair::new(0) else { return };
    let table: [&[u8]; 11] = [
        b"",
        b"PING\r\n",
        b"  set k  v \r\nget k\r\n",
        b"PING\n",
        b"\r\n\r\nPING\r\n",
        b"*0\r\n*1\r\n$4\r\nPING\r\n",
        b"*x\r\n*1\r\n$4\r\nPING\r\n",
        b"*1\r\n:1\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$-1\r\n",
        b"*2\r\n$4\r\nPI",
    ];
    table.iter().for_each(|bytes| pair.same_bytes(bytes));
}

#[test]
fn a_demo_server_ends_with_its_value_and_cuts_its_connections() {
    let server = DemoServer::start().unwrap();
    let port = server.port();
    let mut wire = Wire::to(port);
    wire.send(&[b"PING"]);
    assert_eq!(wire.read(), "+PONG\r\n");
    drop(server);
    assert_eq!(read_message(&mut wire.0), None);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
}

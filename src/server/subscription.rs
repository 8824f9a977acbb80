//! One subscription, on a connection that is used for nothing else: when leaving pub/sub times out, replies
//! are shifted for ever. It is never given back, only closed.

use std::time::Duration;

use redis::{Connection, PubSub};

use super::failure::Failure;
use crate::clock::Moment;

/// What is heard on a channel.
pub(crate) enum Heard<'a> {
    /// The server has confirmed the subscription.
    Subscribed,
    Message(&'a str),
    /// Nothing for a moment.
    Silence,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Go {
    On,
    /// Ask the server whether it is there.
    Ping,
    Stop,
}

/// Nothing wakes a thread that reads a socket, so it looks up as often.
const GLANCE: Duration = Duration::from_millis(200);
/// Without a word from the server it is asked as often.
const SILENT: Duration = Duration::from_secs(10);

/// Listens until the connection breaks or `hear` says to stop.
pub(crate) fn listen(
    mut connection: Connection,
    channel: &str,
    io: Duration,
    hear: &mut dyn FnMut(Heard<'_>) -> Go,
) -> Result<(), Failure> {
    let failed = |e| Failure::from_redis(e, io);
    connection.set_write_timeout(Some(io)).map_err(failed)?;
    let mut pubsub = connection.as_pubsub();
    pubsub.set_read_timeout(Some(io)).map_err(failed)?;
    let outcome = pubsub.subscribe(channel).and_then(|()| read_all(&mut pubsub, io, hear));
    // Its drop unsubscribes, and must not wait for that.
    let _ = pubsub.set_read_timeout(Some(Duration::from_millis(1)));
    outcome.map_err(failed)
}

fn read_all(pubsub: &mut PubSub<'_>, io: Duration, hear: &mut dyn FnMut(Heard<'_>) -> Go) -> redis::RedisResult<()> {
    pubsub.set_read_timeout(Some(GLANCE))?;
    let (mut go, mut last) = (hear(Heard::Subscribed), Moment::now());
    loop {
        if go == Go::Stop {
            return Ok(());
        }
        if go == Go::Ping || last.until(Moment::now()) >= SILENT {
            pubsub.set_read_timeout(Some(io))?;
            pubsub.ping::<redis::Value>()?;
            pubsub.set_read_timeout(Some(GLANCE))?;
            last = Moment::now();
        }
        go = match pubsub.get_message() {
            Ok(message) => {
                last = Moment::now();
                str::from_utf8(message.get_payload_bytes()).map_or(Go::On, |text| hear(Heard::Message(text)))
            }
            Err(e) if e.is_timeout() => hear(Heard::Silence),
            Err(e) => return Err(e),
        };
    }
}

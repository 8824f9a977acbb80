//! Bytes to and from a server, each call under one deadline.
//!
//! The redis crate's connections bound each read of the socket, not the whole answer: one that comes in
//! pieces may take a timeout a piece. So the socket is our own, and the redis crate parses what came. Only
//! TLS stays with the redis crate, and the subscription, which waits for messages.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use redis::{Connection, RedisError, RedisResult, Value, parse_redis_value};

use crate::clock::Moment;

pub(crate) enum Wire {
    Own(Own),
    /// With TLS.
    Redis(Connection),
}

pub(crate) struct Own {
    stream: Stream,
    read: Buffer,
    /// The socket's timeouts as they are set, so that a cycle need not set them again.
    timeout: Duration,
    /// Bytes were sent since the last read, and the timeout set then is right for the next one.
    sent: bool,
}

/// What was read and belongs to no answer yet, at the start of room for more. (Room that is used again
/// need not be cleared before each read.)
struct Buffer {
    room: Vec<u8>,
    filled: usize,
}

enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(std::os::unix::net::UnixStream),
}

impl Wire {
    pub(crate) fn tcp(address: &SocketAddr, time: Duration) -> io::Result<Wire> {
        let stream = TcpStream::connect_timeout(address, time)?;
        stream.set_nodelay(true)?;
        Ok(Wire::own(Stream::Tcp(stream)))
    }

    /// Without a time limit.
    #[cfg(unix)]
    pub(crate) fn unix(path: &std::path::Path) -> io::Result<Wire> {
        Ok(Wire::own(Stream::Unix(std::os::unix::net::UnixStream::connect(path)?)))
    }

    /// A socket that was connected without waiting.
    #[cfg(unix)]
    pub(crate) fn connected(stream: TcpStream) -> io::Result<Wire> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        Ok(Wire::own(Stream::Tcp(stream)))
    }

    /// What to wait for; none with TLS.
    #[cfg(unix)]
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Wire::Own(own) => Some(own.stream.fd()),
            Wire::Redis(_) => None,
        }
    }

    /// Takes in what has come; only where something has.
    #[cfg(unix)]
    pub(crate) fn take_in(&mut self) -> io::Result<()> {
        match self {
            Wire::Own(own) => own.read.fill_from(&mut own.stream),
            Wire::Redis(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The next answer of what was taken in, if it is whole.
    #[cfg(unix)]
    pub(crate) fn next_whole(&mut self) -> RedisResult<Option<Value>> {
        match self {
            Wire::Own(own) => own.next_whole(),
            Wire::Redis(_) => Ok(None),
        }
    }

    fn own(stream: Stream) -> Wire {
        Wire::Own(Own { stream, read: Buffer::new(), timeout: Duration::ZERO, sent: false })
    }

    /// Sends all of it by `until`; `now` is what the clock says.
    pub(crate) fn send(&mut self, bytes: &[u8], now: Moment, until: Moment) -> RedisResult<()> {
        match self {
            Wire::Own(own) => Ok(own.send(bytes, now, until)?),
            Wire::Redis(connection) => {
                bound(connection, now, until)?;
                connection.send_packed_command(bytes)
            }
        }
    }

    /// The next answer, if it is whole by `until`.
    pub(crate) fn receive(&mut self, until: Moment) -> RedisResult<Value> {
        match self {
            Wire::Own(own) => own.receive(until),
            Wire::Redis(connection) => {
                bound(connection, Moment::now(), until)?;
                connection.recv_response()
            }
        }
    }
}

fn bound(connection: &Connection, now: Moment, until: Moment) -> RedisResult<()> {
    let time = Some(left(now, until)?);
    connection.set_read_timeout(time)?;
    connection.set_write_timeout(time)
}

/// Never zero, which a socket refuses.
fn left(now: Moment, until: Moment) -> io::Result<Duration> {
    let left = now.until(until);
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_millis(1))) }
}

impl Own {
    fn send(&mut self, mut bytes: &[u8], mut now: Moment, until: Moment) -> io::Result<()> {
        while !bytes.is_empty() {
            self.bound(now, until)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
            if !bytes.is_empty() {
                now = Moment::now();
            }
        }
        self.sent = true;
        Ok(())
    }

    fn receive(&mut self, until: Moment) -> RedisResult<Value> {
        loop {
            if let Some(value) = self.next_whole()? {
                return Ok(value);
            }
            // Later pieces, and later answers, have what is left of the time.
            if !std::mem::take(&mut self.sent) {
                self.bound(Moment::now(), until)?;
            }
            self.read.fill_from(&mut self.stream)?;
        }
    }

    fn next_whole(&mut self) -> RedisResult<Option<Value>> {
        let Some(end) = frame(self.read.bytes())? else { return Ok(None) };
        let value = value(&self.read.bytes()[..end]);
        self.read.forget(end);
        value.map(Some)
    }

    /// Bounds the next read and write by what is left; timeouts that are about right stay.
    fn bound(&mut self, now: Moment, until: Moment) -> io::Result<()> {
        let left = left(now, until)?;
        if self.timeout > left + left / 16 || self.timeout < left - left / 8 {
            self.stream.set_timeout(left)?;
            self.timeout = left;
        }
        Ok(())
    }
}

/// The most room that stays with a connection after a large answer.
const KEPT: usize = 64 * 1024;

impl Buffer {
    fn new() -> Buffer {
        Buffer { room: vec![0; 512], filled: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[..self.filled]
    }

    /// One read; an interrupted one is no error, and brought nothing.
    fn fill_from(&mut self, stream: &mut Stream) -> io::Result<()> {
        if self.filled == self.room.len() {
            self.room.resize(2 * self.filled, 0);
        }
        match stream.read(&mut self.room[self.filled..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.filled += count;
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The first bytes are done with.
    fn forget(&mut self, count: usize) {
        self.room.copy_within(count..self.filled, 0);
        self.filled -= count;
        if self.filled == 0 && self.room.len() > KEPT {
            *self = Buffer::new();
        }
    }
}

/// The value of one whole answer. What our scripts answer is a string, and its frame is known already;
/// the rest is for the redis crate.
fn value(whole: &[u8]) -> RedisResult<Value> {
    if let (b'$', Some(line)) = (whole[0], whole.iter().position(|&byte| byte == b'\n'))
        && whole.len() > line + 2
    {
        return Ok(Value::BulkString(whole[line + 1..whole.len() - 2].to_vec()));
    }
    parse_redis_value(whole)
}

/// Where the first answer ends, if it is whole; an error if it is none.
fn frame(bytes: &[u8]) -> RedisResult<Option<usize>> {
    let (mut open, mut at) = (1usize, 0usize);
    while open > 0 {
        let Some(line) = bytes[at..].iter().position(|&byte| byte == b'\n') else {
            // No line of ours is long.
            return if bytes.len() - at > 64 * 1024 { Err(nonsense(bytes)) } else { kind_of(bytes, at).map(|_| None) };
        };
        let kind = kind_of(bytes, at)?;
        let length = || str::from_utf8(&bytes[at + 1..at + line]).ok().and_then(|text| text.trim().parse::<i64>().ok());
        open -= 1;
        let body = match kind {
            Some(b'*' | b'~' | b'>') => {
                open += usize::try_from(length().ok_or_else(|| nonsense(bytes))?).unwrap_or(0);
                0
            }
            Some(b'%') => {
                open += 2 * usize::try_from(length().ok_or_else(|| nonsense(bytes))?).unwrap_or(0);
                0
            }
            Some(b'$' | b'!' | b'=') => match length().ok_or_else(|| nonsense(bytes))? {
                length if length < 0 => 0,
                length => usize::try_from(length).map_err(|_| nonsense(bytes))?.saturating_add(2),
            },
            _ => 0,
        };
        at = (at + line + 1).saturating_add(body);
        if at > bytes.len() || (open > 0 && at == bytes.len()) {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The first byte of a value, if it is there.
fn kind_of(bytes: &[u8], at: usize) -> RedisResult<Option<u8>> {
    match bytes.get(at) {
        Some(kind) if b"*~>%$!=+-:_,#(".contains(kind) => Ok(Some(*kind)),
        Some(_) => Err(nonsense(bytes)),
        None => Ok(None),
    }
}

/// What the redis crate says of it, or that it is no answer.
fn nonsense(bytes: &[u8]) -> RedisError {
    let start = &bytes[..bytes.len().min(64)];
    let text = format!("{:?}", String::from_utf8_lossy(start));
    RedisError::from((redis::ErrorKind::Parse, "this is no answer of Redis", text))
}

impl Stream {
    #[cfg(unix)]
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    fn set_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.set_write_timeout(Some(time))
            }
            #[cfg(unix)]
            Stream::Unix(stream) => {
                stream.set_read_timeout(Some(time))?;
                stream.set_write_timeout(Some(time))
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(bytes),
            #[cfg(unix)]
            Stream::Unix(stream) => stream.read(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_ends_where_it_ends_and_not_before_it_is_whole() {
        let answers: [&[u8]; 12] = [
            b"+OK\r\n",
            b"-ERR no\r\n",
            b":17\r\n",
            b"$-1\r\n",
            b"*-1\r\n",
            b"*0\r\n",
            b"$5\r\nhe\r\no\r\n",
            b"$0\r\n\r\n",
            b"*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
            b"*3\r\n$-1\r\n*0\r\n+x\r\n",
            b"%1\r\n+a\r\n:1\r\n",
            b"_\r\n",
        ];
        for answer in answers {
            let two = [answer, b"+more\r\n"].concat();
            assert_eq!(frame(&two).unwrap(), Some(answer.len()), "{:?}", String::from_utf8_lossy(answer));
            for end in 0..answer.len() {
                assert_eq!(frame(&answer[..end]).unwrap(), None, "{:?}", String::from_utf8_lossy(&answer[..end]));
            }
        }
    }

    #[test]
    fn an_answer_is_read_as_the_redis_crate_reads_it() {
        for answer in
            [&b"$0\r\n\r\n"[..], b"$5\r\nhe\r\no\r\n", b"$-1\r\n", b"+OK\r\n", b":17\r\n", b"*1\r\n$1\r\na\r\n"]
        {
            assert_eq!(value(answer).unwrap(), parse_redis_value(answer).unwrap());
        }
    }

    #[cfg(unix)]
    #[test]
    fn answers_of_any_size_in_any_pieces_come_out_whole_and_in_order() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let sizes = [0, 1, 500, 511, 512, 513, 5_000, 300_000, 3];
        let writer = std::thread::spawn(move || {
            for (i, size) in sizes.into_iter().enumerate() {
                let answer = [format!("${size}\r\n").as_bytes(), &vec![b'0' + i as u8; size], b"\r\n"].concat();
                for piece in answer.chunks(700) {
                    theirs.write_all(piece).unwrap();
                }
            }
        });
        let Wire::Own(mut own) = Wire::own(Stream::Unix(ours)) else { unreachable!() };
        for (i, size) in sizes.into_iter().enumerate() {
            let answer = own.receive(Moment::now().after(Duration::from_secs(20))).unwrap();
            assert_eq!(answer, Value::BulkString(vec![b'0' + i as u8; size]));
        }
        assert!(own.read.room.len() <= KEPT);
        writer.join().unwrap();
    }

    #[test]
    fn what_is_no_answer_is_an_error_at_its_first_byte() {
        for other in [&b"HTTP/1.1 400"[..], b"\x15\x03\x01", b"$x\r\n", b"*1\r\nx", b"$99999999999999999999\r\n"] {
            assert!(frame(other).is_err(), "{:?}", String::from_utf8_lossy(other));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = frame(&bytes);
        }

        #[test]
        fn no_lengths_make_it_panic(kind in "[*$%~>!=]", length: i64, rest: Vec<u8>) {
            let _ = frame(&[format!("{kind}{length}\r\n").as_bytes(), &rest].concat());
        }
    }
}

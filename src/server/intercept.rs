//! Takes what the redis crate would send, to be sent otherwise.
//!
//! A `Pipeline` or a script is run on this in the place of a connection. So its answers are typed as
//! usual, `ignore` and `atomic` included, and nothing of the redis crate is written again. A script is
//! asked for by its digest first and then loaded, which is when its source is seen; that costs no I/O.

use redis::{ConnectionLike, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};

use super::script::{Writes, pack};

/// Runs `run` with what it is asked to send. `S` is why nothing is answered.
pub(crate) struct Intercept<F, S> {
    run: F,
    /// Why the last call has no answer; the error that the redis crate gets says nothing.
    stopped: Option<S>,
    /// The script that was loaded last.
    source: Option<String>,
}

impl<F, S> Intercept<F, S>
where
    F: FnMut(&Writes<'_>) -> Result<Vec<Value>, S>,
{
    /// What `send` gets by sending here; the outer error is that of `run`.
    pub(crate) fn of<T>(run: F, send: impl FnOnce(&mut Self) -> RedisResult<T>) -> Result<RedisResult<T>, S> {
        let mut intercept = Intercept { run, stopped: None, source: None };
        let outcome = send(&mut intercept);
        match intercept.stopped {
            Some(stopped) => Err(stopped),
            None => Ok(outcome),
        }
    }

    fn run(&mut self, writes: &Writes<'_>) -> RedisResult<Vec<Value>> {
        (self.run)(writes).map_err(|stopped| {
            self.stopped = Some(stopped);
            RedisError::from((ErrorKind::Client, "stopped"))
        })
    }

    fn run_script(&mut self, parts: &[&[u8]]) -> RedisResult<Value> {
        let unknown = || RedisError::from((ErrorKind::Server(ServerErrorKind::NoScript), "not loaded yet"));
        let source = self.source.take().ok_or_else(unknown)?;
        let keys = parts.get(2).and_then(|count| str::from_utf8(count).ok()?.parse().ok());
        let (keys, args) = keys.and_then(|keys| parts.get(3..)?.split_at_checked(keys)).ok_or_else(not_packed)?;
        let script = Writes::Script { source: &source, keys: keys.to_vec(), args: args.to_vec() };
        let mut answers = self.run(&script)?;
        answers.pop().ok_or_else(not_packed)
    }

    fn load(&mut self, source: &[u8]) -> RedisResult<Value> {
        let source = str::from_utf8(source).map_err(|_| not_packed())?;
        self.source = Some(source.to_owned());
        Ok(Value::BulkString(redis::Script::new(source).get_hash().into()))
    }
}

fn not_packed() -> RedisError {
    RedisError::from((ErrorKind::Client, "this is not what the redis crate sends"))
}

impl<F, S> ConnectionLike for Intercept<F, S>
where
    F: FnMut(&Writes<'_>) -> Result<Vec<Value>, S>,
{
    fn req_packed_command(&mut self, cmd: &[u8]) -> RedisResult<Value> {
        let commands = pack::unpack(cmd).ok_or_else(not_packed)?;
        match commands.first().map(Vec::as_slice) {
            Some([b"EVALSHA", ..]) => self.run_script(&commands[0]),
            Some([b"SCRIPT", b"LOAD", source]) => self.load(source),
            _ => self.run(&Writes::Commands(commands))?.pop().ok_or_else(not_packed),
        }
    }

    fn req_packed_commands(&mut self, cmd: &[u8], offset: usize, _: usize) -> RedisResult<Vec<Value>> {
        let mut commands = pack::unpack(cmd).ok_or_else(not_packed)?;
        if offset == 0 {
            return self.run(&Writes::Commands(commands));
        }
        // MULTI and EXEC stand around it: a script is atomic by itself.
        commands.pop();
        let commands = commands.split_off(1.min(commands.len()));
        Ok(vec![Value::Array(self.run(&Writes::Commands(commands))?)])
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }
}

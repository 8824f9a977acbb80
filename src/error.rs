//! The error: what to do about it, whatever said it.

use std::{error::Error as StdError, fmt, sync::Arc};

use crate::keeping::LostReason;
use crate::nodes::Unwritten;
use crate::server::{Cause, Class, Failure};
use crate::waiting::Refusal;

/// A result whose error is an [`Error`], if no other is named.
///
/// ```no_run
/// fn main() -> distlock::Result<()> {
///     distlock::LockClient::open("redis://127.0.0.1/")?.ping()
/// }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call did not do what it was asked for.
///
/// [`kind`](Error::kind) says what to do about it; the text says what we did to which key of which
/// deployment, and what may be wrong with the set-up; [`source`](StdError::source) has the cause, which the text never repeats and whose type
/// is no promise. [`Debug`](fmt::Debug) reads like the text and the chain of causes, for
/// `main() -> Result<()>`.
///
/// ```
/// use distlock::{Error, ErrorKind};
///
/// /// What an HTTP service answers.
/// fn status(e: &Error) -> u16 {
///     match e.kind() {
///         ErrorKind::Taken => 409,
///         _ if e.is_transient() => 503,
///         _ => 500,
///     }
/// }
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    text: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What to do about an [`Error`]. Each method's `# Errors` says which kinds it has.
///
/// ```no_run
/// use distlock::{DistLock, ErrorKind};
///
/// fn lock(lock: &DistLock) -> distlock::Result<()> {
///     match lock.lock() {
///         Ok(guard) => guard.unlock(),
///         Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()), // asked to leave
///         Err(e) => Err(e),
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Somebody else has the lock: wait, or refuse.
    Taken,
    /// The lock was [lost](crate::guide::leases): the section was not covered to its end. Look at what was
    /// done under it, or undo it.
    Lost,
    /// The wait was [interrupted](crate::Interrupt): leave.
    Interrupted,
    /// Redis does not answer, or cannot be connected to: try later.
    Unreachable,
    /// No pooled connection became free, though Redis answers: the pool is too small. Try later.
    Exhausted,
    /// Redis answers that it cannot now (loading, read-only, out of memory …): try later.
    Unavailable,
    /// Redis refuses the credentials, or the user lacks a right: fix the set-up.
    Denied,
    /// The key holds something that is no lock, or a command of a guarded write met a key of another
    /// type: fix the key.
    WrongType,
    /// An option, an address, a key, or a command of a guarded write that cannot work: fix it. The text
    /// names the value and the limit, or the cause what Redis said.
    InvalidOption,
    /// An answer that Redis does not give: something else listens there, a proxy, or a bug.
    Protocol,
}

impl Error {
    /// What to do about it.
    ///
    /// ```
    /// use distlock::{DistLock, ErrorKind, LockClient};
    ///
    /// // Nobody listens on port 1.
    /// let lock = DistLock::new(&LockClient::open("redis://127.0.0.1:1/")?, "orders:42");
    /// let status = match lock.try_lock() {
    ///     Ok(guard) => return guard.unlock(),
    ///     Err(e) => match e.kind() {
    ///         ErrorKind::Taken => 409,
    ///         _ if e.is_transient() => 503,
    ///         _ => 500,
    ///     },
    /// };
    /// assert_eq!(status, 503);
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Does somebody else have the lock? [`optional`](crate::OptionalExt::optional) asks that, too.
    ///
    /// ```no_run
    /// # use distlock::{DistLock, LockClient};
    /// # fn main() -> distlock::Result<()> {
    /// # let lock = DistLock::new(&LockClient::open("redis://127.0.0.1/")?, "orders:42");
    /// match lock.try_lock() {
    ///     Ok(guard) => guard.unlock()?,
    ///     Err(e) if e.is_taken() => println!("another worker has it"),
    ///     Err(e) => return Err(e),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.kind() == ErrorKind::Taken
    }

    /// Could the same call succeed later, with nothing changed here? `Unreachable`, `Exhausted` and
    /// `Unavailable` could. (So could `Taken`, which has [a question of its own](Error::is_taken).)
    ///
    /// ```
    /// use distlock::{DistLock, LockClient};
    ///
    /// // Nobody listens on port 1: that may change.
    /// let lock = DistLock::new(&LockClient::open("redis://127.0.0.1:1/")?, "orders:42");
    /// assert!(lock.try_lock().unwrap_err().is_transient());
    /// // An address that is none stays so.
    /// assert!(!LockClient::open("10.0.0.7").unwrap_err().is_transient());
    /// # Ok::<(), distlock::Error>(())
    /// ```
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::Unreachable | ErrorKind::Exhausted | ErrorKind::Unavailable)
    }

    pub(crate) fn invalid(text: String) -> Error {
        Error::new(ErrorKind::InvalidOption, text, None)
    }

    /// A fence gate has seen a higher fence.
    pub(crate) fn stale(gate: impl fmt::Display, fence: u64, seen: u64) -> Error {
        let text = format!("fence {fence} is too late at {gate}, which has seen {seen}: its lock was lost");
        Error::new(ErrorKind::Lost, text, None)
    }

    /// A condition answered what it cannot.
    pub(crate) fn strange(place: impl fmt::Display, answer: &impl fmt::Debug) -> Error {
        Error::new(ErrorKind::Protocol, format!("a write {place} was answered with {answer:?}"), None)
    }

    pub(crate) fn caused(kind: ErrorKind, text: String, cause: impl StdError + Send + Sync + 'static) -> Error {
        Error::new(kind, text, Some(Box::new(cause)))
    }

    fn new(kind: ErrorKind, text: String, source: Option<Box<dyn StdError + Send + Sync>>) -> Error {
        Error(Box::new(Inner { kind, text, source }))
    }
}

/// The lock that an error is about.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) key: &'a Arc<str>,
    pub(crate) client: &'a Arc<str>,
}

impl About<'_> {
    pub(crate) fn refused(self, refusal: Refusal) -> Error {
        match refusal {
            Refusal::Taken => Error::new(ErrorKind::Taken, format!("{self} is taken"), None),
            Refusal::Interrupted => {
                Error::new(ErrorKind::Interrupted, format!("the wait for {self} was interrupted"), None)
            }
            Refusal::Failed(failure) => self.failed("acquire", failure),
            Refusal::Silent(after, failure) if after.is_zero() => self.failed("acquire", failure),
            Refusal::Silent(after, failure) => {
                let advice = advice(&failure);
                let text = format!("cannot acquire {self}: no useful answer for {after:.1?}{advice}");
                Error::new(kind_of(failure.class), text, cause_of(failure))
            }
        }
    }

    pub(crate) fn lost(self, loss: LostReason) -> Error {
        Error::new(ErrorKind::Lost, format!("{self} was lost: {}", loss.text()), None)
    }

    /// The hold of a token that was to be taken over is no more.
    pub(crate) fn gone(self) -> Error {
        Error::new(ErrorKind::Lost, format!("{self} is not held with this token any more"), None)
    }

    /// `doing` is a verb.
    pub(crate) fn failed(self, doing: &str, failure: Failure) -> Error {
        let text = format!("cannot {doing} {self}{}", advice(&failure));
        Error::new(kind_of(failure.class), text, cause_of(failure))
    }

    /// A copy of a client in a forked child.
    pub(crate) fn inherited(self) -> Error {
        Error::invalid(format!("{self} was made before a fork: the child process must open a client of its own"))
    }
}

impl fmt::Display for About<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock {:?} on {:?}", self.key, self.client)
    }
}

/// Why a guarded write has no answer for its user, other than that it was refused. `place` is where it
/// should have been written.
pub(crate) fn of_write(place: impl fmt::Display, unwritten: Unwritten) -> Error {
    let Unwritten { failure, ghost } = unwritten;
    if failure.is_server_answer() {
        return of_answer(place, failure);
    }
    let text = if ghost {
        format!("no answer to a write {place}: it may have been executed, or may yet be")
    } else {
        format!("cannot write {place}")
    };
    Error::new(kind_of(failure.class), text, cause_of(failure))
}

/// What the redis crate made of the answers to a guarded write.
pub(crate) fn of_answers(place: impl fmt::Display, e: redis::RedisError) -> Error {
    if let Some(first) = e.clone().into_server_errors().and_then(|errors| Some(errors.first()?.1.clone())) {
        // What to do is said by the first; the cause shows all.
        let class = Failure::from_server(first).class;
        return of_answer(place, Failure { cause: Some(Cause::Redis(e)), ..Failure::new(class) });
    }
    let text = format!("a write {place} was executed, and its answer is not of the type that was asked for");
    Error::new(ErrorKind::InvalidOption, text, Some(Box::new(Cause::Redis(e))))
}

/// Redis refused a command: what it says of an ordinary one means that the command cannot work.
fn of_answer(place: impl fmt::Display, failure: Failure) -> Error {
    let kind = match kind_of(failure.class) {
        ErrorKind::Protocol => ErrorKind::InvalidOption,
        kind => kind,
    };
    Error::new(kind, format!("a write {place} was refused or failed"), cause_of(failure))
}

/// An error about a deployment as a whole.
pub(crate) fn of_deployment(client: &str, failure: Failure) -> Error {
    let text = format!("redis {client:?} cannot be used for locks{}", advice(&failure));
    Error::new(kind_of(failure.class), text, cause_of(failure))
}

/// What is the matter and what to do, if there is anything to say that is not in the cause.
fn advice(failure: &Failure) -> String {
    let advice = match failure.class {
        _ if !failure.advice.is_empty() => failure.advice,
        Class::Exhausted => "no pooled connection became free, see ClientOptions::max_connections",
        Class::Unreachable => "it cannot be reached",
        _ => return String::new(),
    };
    format!(": {advice}")
}

fn kind_of(class: Class) -> ErrorKind {
    match class {
        Class::Unreachable => ErrorKind::Unreachable,
        Class::Exhausted => ErrorKind::Exhausted,
        Class::Role | Class::Unavailable | Class::Uncopied | Class::NoScript => ErrorKind::Unavailable,
        Class::Denied => ErrorKind::Denied,
        Class::WrongType => ErrorKind::WrongType,
        Class::Setup => ErrorKind::InvalidOption,
        Class::Protocol | Class::Astray => ErrorKind::Protocol,
    }
}

fn cause_of(failure: Failure) -> Option<Box<dyn StdError + Send + Sync>> {
    match failure.cause {
        Some(cause) => Some(Box::new(cause)),
        None if failure.class == Class::Exhausted => None,
        None => Some(Failure { advice: "", ..failure }.to_string().into()),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.0.kind)?;
        let mut cause = self.source();
        while let Some(e) = cause {
            write!(f, ": {e}")?;
            cause = e.source();
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn about() -> (Arc<str>, Arc<str>) {
        ("orders:42".into(), "reports".into())
    }

    #[test]
    fn an_error_is_eight_bytes_and_can_go_anywhere() {
        fn anywhere<T: Send + Sync + 'static>() {}
        anywhere::<Error>();
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn the_text_names_key_and_deployment_and_leaves_the_cause_to_source() {
        let (key, client) = about();
        let about = About { key: &key, client: &client };
        assert_eq!(about.refused(Refusal::Taken).to_string(), r#"lock "orders:42" on "reports" is taken"#);
        let failure = Failure::timeout(Duration::from_millis(250));
        let error = about.refused(Refusal::Silent(Duration::from_secs(30), failure));
        assert_eq!(
            error.to_string(),
            r#"cannot acquire lock "orders:42" on "reports": no useful answer for 30.0s: it cannot be reached"#
        );
        assert_eq!(error.source().unwrap().to_string(), "no answer within 250ms");
        let debug = format!("{error:?}");
        assert!(debug.ends_with("(Unreachable): no answer within 250ms"), "{debug}");
    }

    #[test]
    fn what_the_server_said_is_quoted_as_it_said_it() {
        let (key, client) = about();
        let redis = redis::make_extension_error("WRONGPASS".into(), Some("invalid username-password pair".into()));
        let error = About { key: &key, client: &client }.failed("acquire", Failure::from_redis(redis, Duration::ZERO));
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert_eq!(error.source().unwrap().to_string(), "WRONGPASS invalid username-password pair");
    }

    #[test]
    fn transient_is_what_may_pass_by_itself() {
        let (key, client) = about();
        let about = About { key: &key, client: &client };
        let table = [
            (Class::Unreachable, true),
            (Class::Exhausted, true),
            (Class::Role, true),
            (Class::Unavailable, true),
            (Class::Uncopied, true),
            (Class::Denied, false),
            (Class::WrongType, false),
            (Class::Setup, false),
            (Class::Protocol, false),
            (Class::Astray, false),
        ];
        for (class, transient) in table {
            assert_eq!(about.failed("acquire", Failure::new(class)).is_transient(), transient, "{class:?}");
        }
    }
}

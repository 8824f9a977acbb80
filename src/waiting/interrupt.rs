//! Ends waits from another thread.

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use crate::sync::{Mutex, Thread, current};

/// Ends waits for locks from another thread: for ctrl-c, for shutdown; Java's `lockInterruptibly`.
///
/// It goes one way and is shared by its clones. Once interrupted, every wait of every lock that has it
/// in its [options](crate::LockOptions::interrupt) ends with
/// [`Interrupted`](crate::ErrorKind::Interrupted), and new ones are refused, so that worker loops end
/// by themselves. [`try_lock`](crate::DistLock::try_lock) does not wait and is not refused, so that a
/// clean-up can still lock. What is held stays held.
///
/// Call [`interrupt`](Interrupt::interrupt) from a thread (the crate `ctrlc` has one), not inside a raw
/// signal handler: it takes a mutex.
///
/// ```
/// use distlock::{Interrupt, LockOptions};
///
/// let shutdown = Interrupt::new();
/// let options = LockOptions::new().interrupt(&shutdown);
/// shutdown.interrupt();
/// assert!(shutdown.is_interrupted());
/// # let _ = options;
/// ```
#[derive(Clone, Default)]
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    interrupted: AtomicBool,
    /// Guards who sleeps and wants to be woken.
    sleepers: Mutex<Vec<(u64, Thread)>>,
    tickets: AtomicU64,
}

impl Interrupt {
    /// Makes one that is not interrupted yet.
    ///
    /// ```
    /// use distlock::{Interrupt, LockOptions};
    ///
    /// let interrupt = Interrupt::new();
    /// let options = LockOptions::new().interrupt(&interrupt);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn new() -> Interrupt {
        Interrupt::default()
    }

    /// Ends all waits, now and from now on. Does not block; calling it again changes nothing.
    ///
    /// ```
    /// use std::thread;
    /// use distlock::Interrupt;
    ///
    /// let shutdown = Interrupt::new();
    /// let for_the_thread = shutdown.clone();
    /// thread::spawn(move || for_the_thread.interrupt()).join().unwrap();
    /// assert!(shutdown.is_interrupted());
    /// ```
    pub fn interrupt(&self) {
        self.shared.interrupted.store(true, Release);
        // A sleeper enters its name and then looks at the flag (`Sleeper::new`, then the wait loop):
        // either we find the name here, or it finds the flag there.
        for (_, thread) in self.shared.sleepers.lock().iter() {
            thread.unpark();
        }
    }

    /// Was it interrupted? Does not block.
    ///
    /// ```
    /// use distlock::Interrupt;
    ///
    /// let interrupt = Interrupt::new();
    /// assert!(!interrupt.is_interrupted());
    /// interrupt.interrupt();
    /// assert!(interrupt.is_interrupted());
    /// ```
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.shared.interrupted.load(Acquire)
    }

    /// The calling thread is woken by an interrupt while the value lives.
    pub(crate) fn sleeper(&self) -> Sleeper<'_> {
        let ticket = self.shared.tickets.fetch_add(1, Relaxed);
        self.shared.sleepers.lock().push((ticket, current()));
        Sleeper { interrupt: self, ticket }
    }
}

/// A thread that an interrupt wakes.
pub(crate) struct Sleeper<'a> {
    interrupt: &'a Interrupt,
    ticket: u64,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        self.interrupt.shared.sleepers.lock().retain(|(ticket, _)| *ticket != self.ticket);
    }
}

// A panic leaves nothing half changed here: its mutex guards a list, and user code never runs under it.
impl UnwindSafe for Interrupt {}
impl RefUnwindSafe for Interrupt {}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interrupt").field("interrupted", &self.is_interrupted()).finish_non_exhaustive()
    }
}

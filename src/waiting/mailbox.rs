//! Where a message for a waiter is kept until the thread that waits looks.
//!
//! It belongs to one token and goes with the seat from thread to thread. A message that arrives between
//! a look and the sleep after it is kept, and the sleep does not begin: `put` and `call` unpark whoever
//! owns it, and an unpark before a park ends that park.

use parking_lot::Mutex;

use crate::sync::{Thread, current};

/// A grant that was announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announced {
    /// The `wait` on which it rests.
    pub(crate) number: u64,
    /// For how many ms.
    pub(crate) px: u64,
    pub(crate) fence: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Mailbox(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    kept: Option<Announced>,
    called: bool,
    /// Who waits.
    owner: Option<Thread>,
}

/// What a thread finds that looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mail {
    Grant(Announced),
    /// Ask again: whether the server sees the listener may have changed.
    Call,
    Nothing,
}

impl Mailbox {
    /// The calling thread is the one that waits from now on.
    pub(crate) fn own(&self) {
        self.0.lock().owner = Some(current());
    }

    /// Of two messages the one that rests on the later `wait` is kept.
    pub(crate) fn put(&self, announced: Announced) {
        let mut state = self.0.lock();
        if state.kept.is_none_or(|kept| kept.number <= announced.number) {
            state.kept = Some(announced);
        }
        state.wake();
    }

    /// Has the waiter ask again.
    pub(crate) fn call(&self) {
        let mut state = self.0.lock();
        state.called = true;
        state.wake();
    }

    pub(crate) fn take(&self) -> Mail {
        let mut state = self.0.lock();
        if let Some(announced) = state.kept.take() {
            return Mail::Grant(announced);
        }
        if std::mem::take(&mut state.called) { Mail::Call } else { Mail::Nothing }
    }
}

impl State {
    fn wake(&self) {
        if let Some(owner) = &self.owner {
            owner.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_messages_the_later_is_kept_and_a_call_comes_after_it() {
        let mailbox = Mailbox::default();
        assert_eq!(mailbox.take(), Mail::Nothing);
        let announced = |number| Announced { number, px: 300, fence: 17 };
        mailbox.put(announced(5));
        mailbox.call();
        mailbox.put(announced(4));
        assert_eq!(mailbox.take(), Mail::Grant(announced(5)));
        assert_eq!(mailbox.take(), Mail::Call);
        assert_eq!(mailbox.take(), Mail::Nothing);
    }

    #[test]
    fn a_message_before_the_sleep_ends_it() {
        let mailbox = Mailbox::default();
        mailbox.own();
        mailbox.put(Announced { number: 1, px: 300, fence: 17 });
        std::thread::park();
        assert!(matches!(mailbox.take(), Mail::Grant(_)));
    }
}

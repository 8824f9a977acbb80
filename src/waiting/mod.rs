//! How we wait: one acquisition loop, and the in-process queue in front of it.

mod acquire;
mod asker;
mod backoff;
mod gate;
mod head;
mod interrupt;
mod listener;
mod local;
mod mailbox;
mod place;
mod polling;
mod saying;
mod seat;

pub(crate) use asker::{Asker, Manner, Refusal, Won};
pub use backoff::Backoff;
pub(crate) use gate::{Gate, Turn};
pub use interrupt::Interrupt;
pub(crate) use listener::Listener;
pub(crate) use local::{LocalKey, Locals, Shape};
pub(crate) use polling::{Poll, Polled};
pub(crate) use seat::Left;

//! How we keep it: leases and their ends, renewal, release.

mod agenda;
mod errand;
mod held;
mod keeper;
pub(crate) mod lease;
mod lost;
mod notifier;
mod release;
mod watchdog;

pub(crate) use errand::{Errand, longest_ghost};
pub(crate) use held::{Bystander, Enrolment, Grant, Held};
pub(crate) use keeper::Keeper;
pub use lease::Renew;
pub(crate) use lease::Terms;
pub(crate) use lost::OnLost;
pub use lost::{Lost, LostReason};
pub(crate) use release::Ended;
pub(crate) use watchdog::Watchdog;

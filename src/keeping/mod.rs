//! How we keep it: leases and their ends, renewal, release.

mod agenda;
mod errand;
mod held;
mod keeper;
pub(crate) mod lease;
mod release;
mod watchdog;

pub(crate) use errand::Errand;
pub(crate) use held::{Bystander, Grant, Held, Loss};
pub(crate) use keeper::Keeper;
pub use lease::Renew;
pub(crate) use lease::Terms;
pub(crate) use release::Ended;

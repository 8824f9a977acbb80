//! The integration suite: one binary, a module a subject, real servers.

mod support;

mod faults;
mod keeping;
mod laws;
mod processes;
mod scripts;
mod smoke;
mod sql;
mod std_mutex;
mod surface;
#[cfg(feature = "testing")]
mod testing;

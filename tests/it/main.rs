//! The integration suite: one binary, a module a subject, real servers.

mod support;

mod faults;
mod laws;
mod smoke;

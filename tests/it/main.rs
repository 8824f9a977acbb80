//! The integration suite: one binary, a module a subject, real servers.

mod support;

mod faults;
mod keeping;
mod laws;
mod processes;
mod smoke;

//! The integration suite: one binary, a module a subject, real servers.

#[path = "../../examples/demo_server/mod.rs"]
mod demo_server;
mod support;

mod cluster;
mod drift;
mod examples;
mod faults;
mod first_errors;
mod guide;
mod interop;
mod keeping;
mod laws;
mod load;
mod processes;
mod quorum;
mod replicas;
mod scripts;
mod sentinel;
mod smoke;
mod sql;
mod std_mutex;
mod surface;
#[cfg(feature = "testing")]
mod testing;
#[cfg(feature = "tls-rustls")]
mod tls;
mod turns;

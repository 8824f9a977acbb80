//! Fences: numbers that only grow for a key.
//!
//! A lease has a block of 17 of them, which the scripts reserve: the first is that of the guard that
//! got it from Redis, the others are for passing it on within the process.

/// Every fence is below this, so that Lua, JSON and a signed SQL column hold it exactly.
pub(crate) const LIMIT: u64 = 1 << 53;

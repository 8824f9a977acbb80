//! Fences: numbers that only grow for a key, and stay below 2^53.

/// Numbers that one lease has: the first for the guard that got it from Redis, one for each time
/// that it is passed on to another thread of the process (at most 16).
#[cfg(test)]
pub(crate) const BLOCK: u64 = 17;

/// Every fence is below this, so that Lua, JSON and a signed SQL column hold it exactly.
pub(crate) const LIMIT: u64 = 1 << 53;

//! What is promised under faults: lost and late messages, silent and restarted servers, error answers.

mod errors;
mod foreign_code;
mod late;
mod lost;
mod outage;
mod release;
mod renewal;
mod stale;
mod told;

pub(crate) use foreign_code::panicking_logger;

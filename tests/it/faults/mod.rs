//! What is promised under faults: lost and late messages, silent and restarted servers, error answers.

mod broken;
mod connections;
pub(crate) mod contender;
mod controls;
mod errors;
mod foreign_code;
mod kept;
mod late;
mod limits;
mod lost;
mod outage;
mod patience;
mod plan;
mod random;
mod release;
mod renewal;
mod restarts;
mod stale;
mod told;

pub(crate) use foreign_code::panicking_logger;

//! What is promised under faults: lost and late messages, silent and restarted servers, error answers.

pub(crate) mod contender;
mod errors;
mod late;
mod lost;
mod outage;
mod plan;
mod random;
mod release;
mod renewal;
mod stale;
mod told;

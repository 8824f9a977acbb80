//! A hold without a guard: one call each, by a token that is the caller's, with the scripts of every lock.
//! Nothing is remembered here, so what a call leaves behind must be over when it returns.

use std::{sync::Arc, thread, time::Duration};

use crate::client::LockClient;
use crate::clock::Moment;
use crate::error::{About, Error, Result};
use crate::keeping::{Keeper, lease, longest_ghost};
use crate::lock::check_key;
use crate::nodes::{Ask, Attempt, Attempted, NotAfter, Order, Outcome, Performed, Verdict};
use crate::options::check_ttl;
use crate::server::Failure;
use crate::waiting::LocalKey;

const LONGEST_TOKEN: usize = 256;

/// For the server's clock, which is estimated.
const CLOCK_SLACK: Duration = Duration::from_millis(50);

pub(super) struct Hold<'a> {
    keeper: Arc<Keeper>,
    local: Arc<LocalKey>,
    token: &'a str,
}

impl<'a> Hold<'a> {
    pub(super) fn of(client: &LockClient, key: &str, token: &'a str) -> Result<Hold<'a>> {
        let hold = Hold { keeper: Arc::clone(&client.keeper), local: client.locals.key(key), token };
        if hold.keeper.is_inherited() {
            return Err(hold.about().inherited());
        }
        check_key(key)?;
        check_token(token)?;
        Ok(hold)
    }

    pub(super) fn add(&self, ttl: Duration) -> Result<bool> {
        check_ttl(ttl)?;
        let io = self.keeper.io_timeout.min(ttl / 2);
        let mut attempted = self.attempt(ttl, io);
        if let (Ok(outcome), Some(ghost)) = (&attempted.outcome, attempted.ghost) {
            // A copy that is executed after the caller's release would be a hold that nobody knows of. Nor can
            // it be taken back: the token is the caller's, who may use it again.
            self.outlive(ghost, io);
            if !matches!(outcome, Outcome::Granted { .. }) {
                // It may have taken meanwhile what was another's.
                attempted = self.attempt(ttl, io);
            }
        }
        match self.said("acquire", attempted.outcome)? {
            Outcome::Granted { sent, .. } if Moment::now() < lease::valid_until(sent, ttl) => Ok(true),
            // It may have had more than this ttl before.
            Outcome::Granted { .. } => self.is_held(),
            Outcome::Taken { .. } | Outcome::Queued(..) => Ok(false),
        }
    }

    pub(super) fn release(&self) -> Result<bool> {
        let deadline = Moment::now().after(self.keeper.io_timeout);
        let order = Order::Release { key: &self.local.key, token: self.token };
        let first = self.keeper.nodes.perform(&order, self.keeper.io_timeout);
        let Performed { verdict, .. } = match &first.verdict {
            Err(failure) if failure.wants_fresh_connection() && Moment::now() < deadline => {
                self.keeper.nodes.perform(&order, Moment::now().until(deadline))
            }
            _ => first,
        };
        Ok(self.said("release", verdict)? == Verdict::Ours)
    }

    pub(super) fn is_held(&self) -> Result<bool> {
        let owner = self.keeper.nodes.owner(&self.local.key, self.keeper.io_timeout);
        Ok(self.said("look at", owner)?.is_some_and(|owner| owner.token == self.token))
    }

    fn attempt(&self, ttl: Duration, io: Duration) -> Attempted {
        self.keeper.nodes.acquire(&Attempt {
            key: &self.local.key,
            token: self.token,
            ttl: lease::server_millis(ttl),
            hint: self.local.hint(),
            io,
            ask: Ask::Try,
        })
    }

    /// Until no copy of an attempt can be executed.
    fn outlive(&self, ghost: NotAfter, io: Duration) {
        thread::sleep((self.keeper.nodes.until(ghost) + CLOCK_SLACK).min(longest_ghost(io)));
    }

    fn said<T>(&self, doing: &str, said: Result<T, Failure>) -> Result<T> {
        said.map_err(|failure| self.about().failed(doing, failure))
    }

    fn about(&self) -> About<'_> {
        About { key: &self.local.key.text, client: &self.keeper.name }
    }
}

fn check_token(token: &str) -> Result<()> {
    let length = token.len();
    if length == 0 || length > LONGEST_TOKEN {
        return Err(Error::invalid(format!("token of {length} bytes: 1 to {LONGEST_TOKEN} are possible")));
    }
    if token.contains(['\n', '\r']) {
        return Err(Error::invalid("a token with a line break: it must be one line".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_of_1_to_256_bytes() {
        for token in ["x", " ", "with space\0and nul", "é", &"x".repeat(256), "d1.like-one-of-ours"] {
            assert!(check_token(token).is_ok(), "{token:?}");
        }
        for token in ["", &"x".repeat(257), &"é".repeat(129), "a\nb", "a\r", "\n"] {
            assert!(check_token(token).is_err(), "{token:?}");
        }
    }
}

//! "Taken" as `None`, for those who want the `Option`.

use crate::error::Result;

/// Turns "taken" into `None`, for those who want the `Option`; the name that rusqlite and diesel use.
pub trait OptionalExt<T> {
    /// Turns `Err` of kind [`Taken`](crate::ErrorKind::Taken) into `Ok(None)`; other errors stay.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use distlock::{DistLock, LockClient, OptionalExt};
    /// # fn main() -> distlock::Result<()> {
    /// # let lock = DistLock::new(&LockClient::open("redis://127.0.0.1/")?, "orders:42");
    /// if let Some(guard) = lock.try_lock_for(Duration::from_secs(2)).optional()? {
    ///     // mine
    ///     guard.unlock()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Every error but `Taken`.
    fn optional(self) -> Result<Option<T>>;
}

impl<T> OptionalExt<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(e) if e.is_taken() => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::About;
    use crate::waiting::Refusal;

    #[test]
    fn optional_turns_taken_alone_into_none() {
        let (key, client) = ("orders:42".into(), "reports".into());
        let about = About { key: &key, client: &client };
        assert!(matches!(Err::<(), _>(about.refused(Refusal::Taken)).optional(), Ok(None)));
        assert!(matches!(Ok(7).optional(), Ok(Some(7))));
        assert!(Err::<(), _>(about.refused(Refusal::Interrupted)).optional().is_err());
    }
}

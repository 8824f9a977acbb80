//! Pages to read before, and after, the first lock. There is no code in here.
//!
//! - [`leases`]: **a lease can be lost**. What is promised, what is not, and what you see of each fault.
//! - [`from_mutex`]: moving a program that holds a `Mutex` today; what people get wrong.
//! - [`choosing`]: which lock for which need, and how to choose the options.
//! - [`operating`]: what stands in Redis, rights, settings, sizes, log lines; who holds, how to free.
//! - [`names`]: the names of `std`, `parking_lot`, `File::lock`, Java and Redisson, side by side with ours.
//!
//! Every program on these pages is printed whole: copied into a crate that depends on `distlock` it
//! compiles as it stands.

// Text only: the pages exist where documentation is made or tested.

#[doc = include_str!("guide/leases.md")]
pub mod leases {}

#[doc = include_str!("guide/from_mutex.md")]
pub mod from_mutex {}

#[doc = include_str!("guide/choosing.md")]
pub mod choosing {}

#[doc = include_str!("guide/operating.md")]
pub mod operating {}

#[doc = include_str!("guide/names.md")]
pub mod names {}

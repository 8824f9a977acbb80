//! Interleavings, model-checked: the gate and the interrupt are compiled here from the crate's own
//! source, against shuttle's mutex and threads and a clock that the model turns. A wake-up that gets
//! lost is a deadlock, which shuttle reports with the schedule that leads to it.

#[path = "../../src/waiting/gate.rs"]
#[allow(dead_code, reason = "not all of it needs a model")]
mod gate;
#[path = "../../src/waiting/interrupt.rs"]
#[allow(unreachable_pub, reason = "public in the crate")]
mod interrupt;

mod clock;
mod sync;

mod gate_laws;

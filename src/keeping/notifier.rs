//! One thread a client, only where a lock has an `on_lost`: ends of leases by the clock, and callbacks.
//!
//! It does no I/O and holds no mutex while a callback runs, so that neither a renewal that hangs nor a
//! slow callback delays anything but callbacks. A callback that panics is contained.

use std::{fmt, sync::Arc};

use log::warn;

use super::agenda::{Agenda, Jobs, contained};
use super::held::{Held, Told};
use super::lost::Lost;
use crate::clock::Moment;

pub(crate) struct Notifier {
    agenda: Arc<Agenda<Arc<Held>>>,
}

impl Notifier {
    pub(crate) fn new(name: &str) -> Notifier {
        Notifier { agenda: Arc::new(Agenda::new(&format!("distlock-tell {name}"))) }
    }

    /// Tells the hold's user, if there is one, when it is lost.
    pub(crate) fn watch(&self, held: &Arc<Held>) {
        let Some(told) = held.told() else { return };
        let end = held.valid();
        told.set_looked_at(end);
        self.agenda.enter((end, held.id), Arc::clone(held), || {
            let agenda = Arc::clone(&self.agenda);
            Box::new(move || work(&agenda))
        });
    }

    /// The hold was found to be lost: its user is told now, not at the end of its lease.
    pub(crate) fn hurry(&self, id: u64, told: &Told) {
        let sooner = self.agenda.change(|jobs| {
            // One that is missing is looked at right now, and entered again as lost.
            let Some(held) = jobs.remove(&(told.looked_at(), id)) else { return false };
            told.set_looked_at(Moment::PAST);
            jobs.insert((Moment::PAST, id), held);
            true
        });
        if sooner {
            self.agenda.look();
        }
    }

    /// The guard is gone. A loss that was found before is still told.
    pub(crate) fn forget(&self, held: &Held) {
        let Some(told) = held.told() else { return };
        if held.what_was_lost().is_none() {
            self.agenda.change(|jobs| jobs.remove(&(told.looked_at(), held.id)));
        }
    }

    pub(crate) fn close(&self) {
        self.agenda.close();
    }
}

/// The thread.
fn work(agenda: &Agenda<Arc<Held>>) {
    while let Some(next) = agenda.next(|jobs, _| jobs.pop_first()) {
        let Some((_, held)) = next else { continue };
        if held.is_valid() && !held.is_closed() {
            // Renewed meanwhile.
            drop(agenda.change(|jobs| look_again(jobs, held)));
            continue;
        }
        held.lose(None);
        if let (Some(told), Some(lost)) = (held.told(), held.what_was_lost()) {
            tell(told, &lost);
        }
    }
}

/// Enters a hold at the end of its lease; which is past, if it was lost since we looked. What is not
/// entered comes back.
fn look_again(jobs: &mut Jobs<Arc<Held>>, held: Arc<Held>) -> Option<Arc<Held>> {
    // Closed since we looked: `forget` found nothing here.
    if held.is_closed() {
        return Some(held);
    }
    let end = held.valid();
    if let Some(told) = held.told() {
        told.set_looked_at(end);
    }
    jobs.insert((end, held.id), held)
}

fn tell(told: &Told, lost: &Lost) {
    if !contained(|| (told.on_lost.0)(lost)) {
        warn!("the on_lost of lock {:?} panicked", lost.key);
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

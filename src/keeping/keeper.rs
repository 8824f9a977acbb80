//! What keeps the locks of one client: its nodes, its threads, its tokens. Shared by every lock and
//! guard; when the last of them is gone, the threads finish what they still have and end.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::held::{Bystander, Enrolment, Grant, Held, Place, Told};
use super::lease::Terms;
use super::lost::OnLost;
use super::notifier::Notifier;
use super::watchdog::Watchdog;
use crate::nodes::{Key, Nodes};
use crate::token::Mint;

#[derive(Debug)]
pub(crate) struct Keeper {
    /// What the deployment is called in errors, logs and thread names.
    pub(crate) name: Arc<str>,
    pub(crate) nodes: Arc<dyn Nodes>,
    pub(crate) watchdog: Arc<Watchdog>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) tokens: Mint,
    pub(crate) io_timeout: Duration,
    /// The process that made it. After a fork a child has a copy that must do nothing.
    pid: u32,
}

impl Keeper {
    pub(crate) fn new(name: &str, nodes: Arc<dyn Nodes>, io_timeout: Duration) -> Keeper {
        Keeper {
            name: name.into(),
            watchdog: Arc::new(Watchdog::new(name, Arc::clone(&nodes))),
            notifier: Arc::new(Notifier::new(name)),
            nodes,
            tokens: Mint::new(),
            io_timeout,
            pid: std::process::id(),
        }
    }

    /// Is this a copy that a forked child inherited?
    pub(crate) fn is_inherited(&self) -> bool {
        std::process::id() != self.pid
    }

    /// A hold that this keeper can renew and release.
    pub(crate) fn hold(
        &self,
        key: &Arc<Key>,
        name: (String, Option<Arc<dyn Enrolment>>),
        terms: Terms,
        grant: &Grant,
        bystander: Weak<dyn Bystander>,
        on_lost: Option<&OnLost>,
    ) -> Arc<Held> {
        Held::new(key, name, terms, grant, self.place(&terms, bystander, on_lost))
    }

    /// A hold of a lease that another thread passes on.
    pub(crate) fn hold_passed(
        &self,
        passed: &Held,
        bystander: Weak<dyn Bystander>,
        on_lost: Option<&OnLost>,
    ) -> Arc<Held> {
        passed.passed(self.place(&passed.terms, bystander, on_lost))
    }

    fn place(&self, terms: &Terms, bystander: Weak<dyn Bystander>, on_lost: Option<&OnLost>) -> Place {
        let told = on_lost.map(|on_lost| Told::new(on_lost.clone(), Arc::clone(&self.notifier)));
        Place { id: self.watchdog.next_id(), io: self.io(terms), bystander, told }
    }

    /// From now on the hold is kept by nobody: it is about to be passed on. `false` if it is lost.
    pub(crate) fn let_go(&self, held: &Held) -> bool {
        let good = held.close_good();
        if good {
            self.watchdog.forget(held);
            self.notifier.forget(held);
        }
        good
    }

    /// From now on the hold is renewed, and its user told if it is lost.
    pub(crate) fn keep(&self, held: &Arc<Held>) {
        self.watchdog.keep(held);
        self.notifier.watch(held);
        #[cfg(feature = "testing")]
        self.nodes.kept(&held.key, &held.token, Arc::<Held>::downgrade(held));
    }

    /// How long one call for a lock on these terms may take: a stall costs a retry, not the lease.
    pub(crate) fn io(&self, terms: &Terms) -> Duration {
        self.io_timeout.min(terms.first_ttl() / 2)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // A forked child has the watchdog's memory and not its thread; its mutex may be held for ever.
        if !self.is_inherited() {
            self.watchdog.close();
            self.notifier.close();
        }
    }
}

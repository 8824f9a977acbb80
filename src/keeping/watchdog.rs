//! One thread a client: renewals in batches, and the releases and take-backs that nobody waits for.
//!
//! What there is to do stands in an agenda, ordered by when it is due. The thread starts with the
//! first entry, takes what is due, performs it as one batch on a connection of its own, and enters
//! what is left to do again. One entry that fails changes nothing for another. The thread outlives
//! its client until the last release or take-back is done or its lease over.

use std::{
    fmt, mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use log::{debug, warn};

use super::agenda::{Agenda, Jobs, contained};
use super::errand::Errand;
use super::held::Held;
use super::lease::Renew;
use super::lost::LostReason;
use crate::clock::Moment;
use crate::nodes::{Nodes, Order, Performed, Verdict};

/// What is due so soon goes into the same batch.
const WINDOW: Duration = Duration::from_millis(20);
/// Entries of one batch: it must be written, executed and read within the timeout of one call.
const BATCH: usize = 512;

pub(crate) struct Watchdog {
    nodes: Arc<dyn Nodes>,
    agenda: Arc<Agenda<Job>>,
    ids: AtomicU64,
}

enum Job {
    Renew(Arc<Held>),
    Errand(u64, Errand),
}

impl Watchdog {
    pub(crate) fn new(name: &str, nodes: Arc<dyn Nodes>) -> Watchdog {
        let agenda = Arc::new(Agenda::new(&format!("distlock-dog {name}")));
        Watchdog { nodes, agenda, ids: AtomicU64::new(1) }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Relaxed)
    }

    /// Renews this hold from now on, if its terms say so.
    pub(crate) fn keep(&self, held: &Arc<Held>) {
        if held.terms.renew != Renew::Never {
            self.enter(held.due(), held.id, Job::Renew(Arc::clone(held)));
        }
    }

    /// Stops renewing a hold that was closed. One that is being renewed right now is not entered again.
    pub(crate) fn forget(&self, held: &Held) {
        if held.terms.renew != Renew::Never {
            self.agenda.change(|jobs| jobs.remove(&(held.due(), held.id)));
        }
    }

    /// Does this in the background.
    pub(crate) fn run(&self, mut errand: Errand) {
        let (first, id) = (errand.begin(&*self.nodes), self.next_id());
        self.enter(first, id, Job::Errand(id, errand));
    }

    fn enter(&self, due: Moment, id: u64, job: Job) {
        self.agenda.enter((due, id), job, || {
            let (agenda, nodes) = (Arc::clone(&self.agenda), Arc::clone(&self.nodes));
            Box::new(move || work(&agenda, &*nodes))
        });
    }

    pub(crate) fn close(&self) {
        self.agenda.close();
    }
}

/// The thread.
fn work(agenda: &Agenda<Job>, nodes: &dyn Nodes) {
    while let Some(mut jobs) = agenda.next(|jobs, now| take_due(jobs, now.after(WINDOW))) {
        let mut next = Vec::new();
        // A defect of ours must not end the renewal of all locks.
        if !contained(|| next = perform(nodes, &mut jobs)) {
            next = jobs.iter_mut().map(|job| job.again(nodes)).collect();
        }
        let over = agenda.change(|agenda| enter_again(agenda, jobs, next));
        drop(over);
    }
}

/// Enters what is due again, and gives back what is not.
fn enter_again(agenda: &mut Jobs<Job>, jobs: Vec<Job>, next: Vec<Option<Moment>>) -> Vec<Job> {
    let mut over = Vec::new();
    for (job, due) in jobs.into_iter().zip(next) {
        match (&job, due) {
            (_, None) => over.push(job),
            // Closed under this mutex or before it: then `forget` found nothing, and we must not enter it.
            (Job::Renew(held), _) if held.is_closed() => over.push(job),
            (Job::Renew(held), Some(due)) => {
                held.set_due(due);
                let slot = (due, held.id);
                agenda.insert(slot, job);
            }
            (&Job::Errand(id, _), Some(due)) => {
                agenda.insert((due, id), job);
            }
        }
    }
    over
}

/// Takes the jobs that are due by `by` out of the agenda: those whose calls may take about as long as
/// the first one's, since a batch has one deadline.
fn take_due(jobs: &mut Jobs<Job>, by: Moment) -> Vec<Job> {
    let later = jobs.split_off(&(by, 0));
    let due = mem::replace(jobs, later);
    let mut batch: Vec<Job> = Vec::new();
    for (slot, job) in due {
        let fits = batch.first().is_none_or(|first| job.io() <= 8 * first.io() && first.io() <= 8 * job.io());
        let room = batch.first().is_none_or(|first| batch.len() < limit(first.io()));
        if fits && room {
            batch.push(job);
        } else {
            jobs.insert(slot, job);
        }
    }
    batch
}

/// How many entries a batch may have whose calls may take `io`.
fn limit(io: Duration) -> usize {
    // About 20 µs an entry on a slow machine, in a fifth of the time.
    usize::try_from(io.as_millis() * 10).unwrap_or(BATCH).clamp(8, BATCH)
}

impl Job {
    fn io(&self) -> Duration {
        match self {
            Job::Renew(held) => held.io,
            Job::Errand(_, errand) => errand.io,
        }
    }

    /// When to try again after nothing was heard.
    fn again(&mut self, nodes: &dyn Nodes) -> Option<Moment> {
        match self {
            Job::Renew(held) => Some(held.retry_at(Moment::now())),
            Job::Errand(_, errand) => errand.again(nodes),
        }
    }
}

/// Performs a batch; for each job, when it is due again, if it is.
fn perform(nodes: &dyn Nodes, jobs: &mut [Job]) -> Vec<Option<Moment>> {
    let sent = Moment::now();
    let ttls: Vec<Option<Duration>> = jobs.iter().map(|job| ttl_of(job, sent)).collect();
    let (asked, orders): (Vec<usize>, Vec<Order<'_>>) =
        (0..jobs.len()).filter_map(|i| Some((i, order_of(&jobs[i], ttls[i])?))).unzip();
    let io = jobs.iter().map(Job::io).min().unwrap_or_default();
    let performed = if orders.is_empty() { Vec::new() } else { nodes.perform_all(&orders, io) };
    note_failures(&performed);
    let mut next: Vec<Option<Moment>> = jobs.iter().map(end_of).collect();
    for (i, performed) in asked.into_iter().zip(performed) {
        next[i] = match &mut jobs[i] {
            Job::Renew(held) => renewed(held, sent, ttls[i].unwrap_or_default(), performed),
            Job::Errand(_, errand) => errand.after(&performed, nodes),
        };
    }
    next
}

/// The ttl of a renewal; none for one that is not to be sent, because its lease is over or complete.
fn ttl_of(job: &Job, now: Moment) -> Option<Duration> {
    let Job::Renew(held) = job else { return None };
    if held.is_closed() {
        return None;
    }
    if now >= held.valid() {
        lost(held, None);
        return None;
    }
    held.next_ttl(now)
}

/// A lease that is not renewed any further is looked at once more, at its end.
fn end_of(job: &Job) -> Option<Moment> {
    let Job::Renew(held) = job else { return None };
    (!held.is_closed() && held.is_valid()).then(|| held.valid())
}

fn order_of(job: &Job, ttl: Option<Duration>) -> Option<Order<'_>> {
    match job {
        Job::Renew(held) => Some(held.renewal(ttl?)),
        Job::Errand(_, errand) => Some(errand.order()),
    }
}

/// One line a batch, so that an outage with many locks is no flood.
fn note_failures(performed: &[Performed]) {
    let failed = performed.iter().filter(|performed| performed.verdict.is_err()).count();
    if let Some(Err(failure)) = performed.iter().map(|performed| &performed.verdict).find(|verdict| verdict.is_err()) {
        let all = performed.len();
        contained(|| debug!("{failed} of {all} renewals and releases had no answer, again soon: {failure}"));
    }
}

fn renewed(held: &Arc<Held>, sent: Moment, ttl: Duration, performed: Performed) -> Option<Moment> {
    match performed.verdict {
        Ok(Verdict::Ours) if held.renewed(sent, ttl) => held.terms.due(sent),
        Ok(Verdict::Ours) => lost(held, None),
        Ok(Verdict::Gone) => lost(held, Some(LostReason::Deleted)),
        Ok(_) => lost(held, Some(LostReason::Taken)),
        // Unknown: again, until the lease ends by the clock, which the next look will find.
        Err(_) => Some(held.retry_at(Moment::now())),
    }
}

fn lost(held: &Held, loss: Option<LostReason>) -> Option<Moment> {
    if held.lose(loss) {
        let how = held.loss().map_or("it ended", LostReason::text);
        let key = &held.key.text;
        contained(|| {
            warn!("lock {key:?} was lost, {how}: its guard is invalid, the work under it may overlap another's");
        });
    }
    None
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").finish_non_exhaustive()
    }
}

//! What the nodes said to one order, and what that makes of it.

use super::{Heard, Quorum, judged};
use crate::nodes::{Order, Performed, Verdict};
use crate::server::script::{Left, Released, Renewed};
use crate::server::{Class, Failure, Reply};

/// One vote a node.
pub(super) struct Votes(Vec<Heard<Verdict>>);

impl Votes {
    pub(super) fn new(nodes: usize) -> Votes {
        Votes((0..nodes).map(|_| None).collect())
    }

    pub(super) fn put(&mut self, node: usize, order: &Order<'_>, reply: Reply) {
        self.0[node] = Some(match order {
            Order::Renew { .. } => judged(reply, |text| Renewed::parse(text).map(Verdict::from)),
            Order::Release { .. } => judged(reply, |text| Released::parse(text).map(Verdict::from)),
            Order::Leave { .. } => judged(reply, |text| Left::parse(text).map(Verdict::from)),
        });
    }

    pub(super) fn is(&self, node: usize, verdict: Verdict) -> bool {
        matches!(&self.0[node], Some((Ok(said), _)) if *said == verdict)
    }

    pub(super) fn nodes(&self, verdict: Verdict) -> impl Iterator<Item = usize> {
        (0..self.0.len()).filter(move |&node| self.is(node, verdict))
    }

    pub(super) fn count(&self, verdict: Verdict) -> usize {
        self.nodes(verdict).count()
    }

    pub(super) fn answered(&self) -> usize {
        self.0.iter().filter(|vote| matches!(vote, Some((Ok(_), _)))).count()
    }

    /// Some node may execute the order without an answer.
    pub(super) fn has_ghost(&self) -> bool {
        self.0.iter().any(|vote| matches!(vote, Some((_, true))))
    }

    /// Too few answered for a verdict.
    pub(super) fn unknown(&self, quorum: &Quorum) -> Performed {
        Performed { verdict: Err(quorum.failure(&self.0, said)), ghost: true }
    }
}

fn said(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Ours => "had it",
        Verdict::Gone => "has it no more",
        Verdict::Others => "has another's",
        Verdict::Final | Verdict::NotYet => "answered",
    }
}

/// What each node said, in one line; of the class of most of those that failed.
pub(super) fn failure<'a, T: 'a>(
    heard: impl Iterator<Item = (&'a str, &'a Heard<T>)>,
    say: impl Fn(&T) -> &'static str,
) -> Failure {
    let (mut classes, mut parts): (Vec<Class>, Vec<String>) = (Vec::new(), Vec::new());
    for (name, answer) in heard {
        parts.push(match answer {
            Some((Ok(answer), _)) => format!("{name} {}", say(answer)),
            Some((Err(failure), _)) => {
                classes.push(failure.class);
                format!("{name}: {failure}")
            }
            None => format!("{name} was not waited for"),
        });
    }
    let count = |class: &Class| classes.iter().filter(|other| *other == class).count();
    // Of as many, one that may pass.
    let most = classes.iter().max_by_key(|class| (count(class), matches!(class, Class::Unreachable)));
    Failure::with_text(most.copied().unwrap_or(Class::Unreachable), &parts.join("; "))
}

//! What an attempt makes of answers that a real server gives only when its clock steps: a link that says
//! what it was told to.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::*;
use crate::nodes::HandsOver;
use crate::server::{Health, script::Command};

const IO: Duration = Duration::from_millis(100);
/// The server's clock before the first attempt, and what it says later.
const BEFORE: u64 = 1_000_000_000_000_000;
const LATER: u64 = 2_000_000_000_000_000;

/// A scripted server.
#[derive(Debug, Default)]
struct Said {
    health: Health,
    /// Guards what it will answer.
    answers: Mutex<VecDeque<Reply>>,
    /// Guards the attempts that it saw.
    asked: Mutex<Vec<Asked>>,
}

#[derive(Debug)]
struct Asked {
    not_after: u64,
    at: Moment,
}

impl Link for Said {
    fn call(&self, command: &Command, _: Moment) -> Reply {
        let text = String::from_utf8_lossy(&command.bytes);
        let not_after = text.lines().last().unwrap().parse().unwrap();
        self.asked.lock().push(Asked { not_after, at: Moment::now() });
        self.answers.lock().pop_front().expect("another attempt than was foreseen")
    }

    fn call_once(&self, command: &Command, until: Moment) -> Reply {
        self.call(command, until)
    }

    fn call_together(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        self.call_all(commands, until)
    }

    fn call_all(&self, commands: &[Command], until: Moment) -> Vec<Reply> {
        commands.iter().map(|command| self.call(command, until)).collect()
    }

    fn health(&self) -> &Health {
        &self.health
    }
}

fn says(text: &str, ghost: bool) -> Reply {
    Reply { answer: Ok(Value::BulkString(format!("{text} 0").into())), ghost, at: Moment::now() }
}

/// One acquisition that gets these answers: what comes of it, and its attempts.
fn acquire(answers: impl IntoIterator<Item = Reply>) -> (Attempted, Vec<Asked>) {
    let said = Arc::new(Said { answers: Mutex::new(answers.into_iter().collect()), ..Said::default() });
    said.health.clock.set(BEFORE, Moment::now());
    let key = Key::new("k");
    let attempt = Attempt { key: &key, token: "token", ttl: 1000, hint: 0, io: IO, ask: Ask::Try };
    let attempted = Single::new(Arc::clone(&said) as Arc<dyn Link>).acquire(&attempt);
    assert!(said.answers.lock().is_empty());
    let asked = std::mem::take(&mut *said.asked.lock());
    (attempted, asked)
}

#[track_caller]
fn assert_about(not_after: u64, from: u64, ahead: Duration) {
    let least = from + ahead.as_micros() as u64;
    assert!((least..least + 1_000_000).contains(&not_after), "{not_after}, {least} expected");
}

#[test]
fn an_attempt_that_came_late_is_asked_again_by_the_clock_that_its_refusal_told() {
    let (attempted, asked) = acquire([says(&format!("late {LATER}"), false), says(&format!("held {LATER} 1"), false)]);
    let Ok(Outcome::Granted { fence: LATER, sent }) = attempted.outcome else { panic!("{attempted:?}") };
    assert!(asked[0].at < sent && sent < asked[1].at, "the lease counts from the attempt that won");
    assert_eq!(attempted.ghost, None);
    assert_eq!(asked.len(), 2);
    assert_about(asked[0].not_after, BEFORE, IO);
    assert_about(asked[1].not_after, LATER, IO);
}

#[test]
fn an_attempt_that_came_late_twice_gets_more_time_and_after_the_third_is_given_up() {
    let late = || says(&format!("late {LATER}"), false);
    let (attempted, asked) = acquire([late(), late(), late()]);
    assert_eq!(attempted.outcome.unwrap_err().class, Class::Unavailable);
    assert_eq!(asked.len(), 3);
    assert_eq!(asked[2].not_after, server_clock::generous(LATER, IO));
    let (attempted, _) = acquire([late(), late(), says("taken 500 -1 1", false)]);
    let remaining = Some(Duration::from_millis(500));
    assert_eq!(attempted.outcome.unwrap(), Outcome::Taken { remaining, hands_over: HandsOver::Foreign });
}

#[test]
fn what_may_be_executed_late_is_remembered_over_all_attempts() {
    let held = || says(&format!("held {LATER} 1"), false);
    let (attempted, asked) = acquire([says(&format!("late {LATER}"), true), held()]);
    assert_eq!(attempted.ghost, Some(NotAfter(asked[0].not_after)));
    let late = || says(&format!("late {LATER}"), true);
    let (attempted, asked) = acquire([late(), late(), late()]);
    assert_eq!(attempted.ghost, asked.iter().map(|asked| NotAfter(asked.not_after)).max());
    // An answer to another call says nothing of ours.
    let astray = || Reply { answer: Err(Failure::new(Class::Astray)), ghost: true, at: Moment::now() };
    let (attempted, asked) = acquire([astray(), held()]);
    assert!(matches!(attempted.outcome, Ok(Outcome::Granted { .. })));
    assert_eq!(attempted.ghost, Some(NotAfter(asked[0].not_after)));
    let (attempted, _) = acquire([astray(), astray()]);
    assert_eq!(attempted.outcome.unwrap_err().class, Class::Astray);
}

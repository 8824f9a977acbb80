//! What happened, as every process writes it down: a file a process, a line an event, one clock for
//! all of one machine. The referees judge what [`read`] makes of the files.
//!
//! A line is written at once and whole, so that a process that is killed leaves all that it did.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Nanoseconds of `CLOCK_MONOTONIC`, which processes of one machine share.
pub(crate) type Stamp = u64;

pub(crate) fn now() -> Stamp {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

pub(crate) fn nanos(d: Duration) -> Stamp {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A lease in somebody's hands.
#[derive(Clone, Default, Debug)]
pub(crate) struct Hold {
    pub(crate) key: String,
    pub(crate) token: String,
    pub(crate) fence: u64,
    /// The attempt that won was not sent before this.
    pub(crate) sent: Stamp,
    /// It was returned.
    pub(crate) acquired: Stamp,
    /// Its holder counted on it until then; less if it was released or seen to be lost.
    pub(crate) valid: Stamp,
    /// No lease of it is longer.
    pub(crate) ttl: Stamp,
    pub(crate) release: Option<Stamp>,
    pub(crate) lost: Option<Stamp>,
}

impl Hold {
    /// The end of what is promised to be its holder's alone.
    pub(crate) fn end(&self) -> Stamp {
        [self.release, self.lost].into_iter().flatten().fold(self.valid, Stamp::min)
    }
}

/// A call that should end in time.
#[derive(Clone, Default, Debug)]
pub(crate) struct Call {
    pub(crate) pid: u32,
    pub(crate) what: String,
    pub(crate) from: Stamp,
    pub(crate) to: Option<Stamp>,
    /// None: it waits for others, for as long as they hold.
    pub(crate) bound: Option<Stamp>,
}

/// The server forgot a key, or gave it to somebody, by no doing of a locker.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    /// None: all of them.
    pub(crate) key: Option<String>,
    pub(crate) from: Stamp,
    pub(crate) to: Stamp,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct Story {
    pub(crate) holds: Vec<Hold>,
    pub(crate) calls: Vec<Call>,
    pub(crate) losses: Vec<Loss>,
    /// Processes that stood still.
    pub(crate) stops: Vec<(u32, Stamp, Stamp)>,
    pub(crate) killed: Vec<u32>,
    /// The faults are over.
    pub(crate) calm: Stamp,
    /// Threads that outlived their clients.
    pub(crate) threads: Vec<String>,
}

/// Writes one process's file; threads share it.
pub(crate) struct Scribe {
    file: File,
    count: AtomicU64,
}

impl Scribe {
    pub(crate) fn to(path: &Path) -> Scribe {
        let file = File::options().create(true).append(true).open(path).expect("a file for what happens");
        Scribe { file, count: AtomicU64::new(1) }
    }

    /// Names a call or a hold in all files.
    pub(crate) fn id(&self) -> String {
        format!("{}-{}", std::process::id(), self.count.fetch_add(1, Relaxed))
    }

    /// A call begins; the answer is its name.
    pub(crate) fn asked(&self, what: &str, bound: Option<Duration>) -> String {
        let (id, bound) = (self.id(), bound.map_or(0, nanos));
        self.line(&format!("asked {id} {} {what} {} {bound}", std::process::id(), now()));
        id
    }

    pub(crate) fn answered(&self, call: &str) {
        self.line(&format!("answered {call} {}", now()));
    }

    /// A lease was acquired; the answer is its name.
    pub(crate) fn won(&self, hold: &Hold) -> String {
        let id = self.id();
        let Hold { key, token, fence, sent, acquired, valid, ttl, .. } = hold;
        self.line(&format!("won {id} {key} {token} {fence} {sent} {acquired} {valid} {ttl}"));
        id
    }

    pub(crate) fn valid(&self, hold: &str, until: Stamp) {
        self.line(&format!("valid {hold} {until}"));
    }

    pub(crate) fn lost(&self, hold: &str, at: Stamp) {
        self.line(&format!("lost {hold} {at}"));
    }

    /// Its release is about to be called.
    pub(crate) fn release(&self, hold: &str) {
        self.line(&format!("release {hold} {}", now()));
    }

    pub(crate) fn forgot(&self, key: Option<&str>, from: Stamp) {
        self.line(&format!("forgot {} {from} {}", key.unwrap_or("*"), now()));
    }

    pub(crate) fn stopped(&self, pid: u32, from: Stamp) {
        self.line(&format!("stopped {pid} {from} {}", now()));
    }

    pub(crate) fn killed(&self, pid: u32) {
        self.line(&format!("killed {pid}"));
    }

    pub(crate) fn calm(&self) {
        self.line(&format!("calm {}", now()));
    }

    pub(crate) fn thread_left(&self, name: &str) {
        self.line(&format!("thread {}", name.trim().replace(' ', "_")));
    }

    fn line(&self, text: &str) {
        (&self.file).write_all(format!("{text}\n").as_bytes()).expect("room for what happens");
    }
}

/// All that the files in this folder tell.
pub(crate) fn read(folder: &Path) -> Story {
    let files = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path());
    let text: String = files.map(|path| std::fs::read_to_string(path).expect("a file of lines")).collect();
    parse(&text)
}

/// What is told of by name, until all is read.
#[derive(Default)]
struct Reader<'a> {
    story: Story,
    holds: HashMap<&'a str, Hold>,
    calls: HashMap<&'a str, Call>,
}

fn parse(text: &str) -> Story {
    let mut reader = Reader::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(reader.call(&words) || reader.hold(&words) || reader.fault(&words), "no such line: {line}");
    }
    let Reader { story, holds, calls } = reader;
    Story { holds: holds.into_values().collect(), calls: calls.into_values().collect(), ..story }
}

fn n(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

fn pid(word: &str) -> u32 {
    u32::try_from(n(word)).expect("a process")
}

impl<'a> Reader<'a> {
    fn call(&mut self, words: &[&'a str]) -> bool {
        match *words {
            ["asked", id, of, what, from, bound] => {
                let bound = Some(n(bound)).filter(|&bound| bound > 0);
                let call = Call { pid: pid(of), what: what.to_owned(), from: n(from), to: None, bound };
                self.calls.insert(id, call);
            }
            ["answered", id, at] => self.calls.get_mut(id).expect("a call").to = Some(n(at)),
            _ => return false,
        }
        true
    }

    fn hold(&mut self, words: &[&'a str]) -> bool {
        match *words {
            ["won", id, key, token, fence, sent, acquired, valid, ttl] => {
                let (key, token) = (key.to_owned(), token.to_owned());
                let [fence, sent, acquired, valid, ttl] = [fence, sent, acquired, valid, ttl].map(n);
                self.holds.insert(id, Hold { key, token, fence, sent, acquired, valid, ttl, ..Hold::default() });
            }
            ["valid", id, until] => {
                let hold = self.known(id);
                hold.valid = hold.valid.max(n(until));
            }
            ["lost", id, at] => {
                let hold = self.known(id);
                hold.lost = hold.lost.or(Some(n(at)));
            }
            ["release", id, at] => self.known(id).release = Some(n(at)),
            _ => return false,
        }
        true
    }

    fn fault(&mut self, words: &[&str]) -> bool {
        let story = &mut self.story;
        match *words {
            ["forgot", key, from, to] => {
                let key = Some(key.to_owned()).filter(|key| key != "*");
                story.losses.push(Loss { key, from: n(from), to: n(to) });
            }
            ["stopped", of, from, to] => story.stops.push((pid(of), n(from), n(to))),
            ["killed", of] => story.killed.push(pid(of)),
            ["calm", at] => story.calm = n(at),
            ["thread", name] => story.threads.push(name.to_owned()),
            _ => return false,
        }
        true
    }

    fn known(&mut self, id: &str) -> &mut Hold {
        self.holds.get_mut(id).expect("a hold")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let folder = std::env::temp_dir().join(format!("distlock-story-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let scribe = Scribe::to(&folder.join("mine"));
        let call = scribe.asked("lock", None);
        let hold = Hold { key: "k".to_owned(), token: "t".to_owned(), fence: 5, valid: 70, ..Hold::default() };
        let hold = scribe.won(&hold);
        scribe.answered(&call);
        scribe.valid(&hold, 90);
        scribe.release(&hold);
        Scribe::to(&folder.join("another's")).forgot(None, 1);
        let story = read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!((story.holds.len(), story.calls.len(), story.losses.len()), (1, 1, 1));
        assert_eq!((story.holds[0].fence, story.holds[0].valid, story.holds[0].end()), (5, 90, 90));
        assert!(story.holds[0].release.is_some() && story.calls[0].to.is_some() && story.calls[0].bound.is_none());
    }
}

//! The names of a lock's keys in Redis: the lock itself, verbatim, and its three helpers.
//!
//! The helpers lie in the lock's cluster slot and never collide with another lock's: what stands in
//! braces after the prefix decides the slot, and the prefix's last character tells the three forms
//! apart (`:` the whole key in braces, `/` the key has a tag of its own, `{` a number that was looked
//! up). PROTOCOL section 1 has the rule; `names.tsv` beside the tests has names asked from a server.

/// Keys that begin so are some lock's bookkeeping and cannot be locked.
pub(crate) const RESERVED: [&str; 3] = ["distlock:fence", "distlock:queue", "distlock:waiters"];

/// The four keys of a lock, packed for the wire as they stand in every script call: `4` and the keys.
#[derive(Debug)]
pub(crate) struct Names {
    packed: Vec<u8>,
}

const COUNT: &[u8] = b"$1\r\n4\r\n";

impl Names {
    pub(crate) fn new(key: &str) -> Names {
        let mut packed = COUNT.to_vec();
        super::pack::bulk(&mut packed, key.as_bytes());
        let tag = Tag::of(key);
        for prefix in RESERVED {
            super::pack::bulk(&mut packed, tag.helper(prefix, key).as_bytes());
        }
        Names { packed }
    }

    pub(crate) fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// How many there are, and they themselves without their count.
    pub(crate) fn packed_keys(&self) -> (usize, &[u8]) {
        (4, &self.packed[COUNT.len()..])
    }
}

/// How a helper's name gets into the slot of its lock.
enum Tag {
    /// The key has a tag: appended, it decides.
    Own,
    /// The key has no `}` and becomes the tag.
    Whole,
    /// A number whose slot is the key's.
    Number(u32),
}

impl Tag {
    fn of(key: &str) -> Tag {
        if tag(key).is_some() {
            Tag::Own
        } else if !key.is_empty() && !key.contains('}') {
            Tag::Whole
        } else {
            Tag::Number(number_in_slot(slot(key)))
        }
    }

    fn helper(&self, prefix: &str, key: &str) -> String {
        match self {
            Tag::Own => format!("{prefix}/{key}"),
            Tag::Whole => format!("{prefix}:{{{key}}}"),
            Tag::Number(n) => format!("{prefix}{{{n}}}{key}"),
        }
    }
}

/// What stands between the first `{` and the next `}`, if that is not empty.
fn tag(key: &str) -> Option<&str> {
    let inside = &key[key.find('{')? + 1..];
    let tag = &inside[..inside.find('}')?];
    (!tag.is_empty()).then_some(tag)
}

pub(crate) fn slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % 16384
}

/// The smallest number whose digits lie in `slot`; below 110 000 for every slot.
fn number_in_slot(slot: u16) -> u32 {
    (0..).find(|n: &u32| crc16(n.to_string().as_bytes()) % 16384 == slot).unwrap_or_default()
}

/// CRC-16/XMODEM, the checksum of Redis Cluster.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(
            crc ^ (u16::from(byte) << 8),
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn helpers(key: &str) -> [String; 3] {
        let tag = Tag::of(key);
        RESERVED.map(|prefix| tag.helper(prefix, key))
    }

    /// The text of a JSON string.
    fn decoded(json: &str) -> String {
        let mut text = String::new();
        let mut chars = json.trim_matches('"').chars();
        while let Some(c) = chars.next() {
            text.push(match c {
                '\\' => match chars.next().unwrap() {
                    'n' => '\n',
                    't' => '\t',
                    'u' => {
                        let code: String = chars.by_ref().take(4).collect();
                        char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap()
                    }
                    plain => plain,
                },
                c => c,
            });
        }
        text
    }

    #[test]
    fn awkward_keys_have_the_names_and_the_slots_that_a_server_gave_them() {
        let table = include_str!("../../../tests/it/names.tsv");
        let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split('\t').collect()).collect();
        assert_eq!(rows.len(), 41);
        for row in rows {
            let (key, name) = (decoded(row[0]), decoded(row[2]));
            assert_eq!(slot(&key), row[1].parse::<u16>().unwrap(), "{key:?}");
            let names = helpers(&key);
            assert_eq!(names[0], name, "{key:?}");
            assert_eq!(names[1], name.replacen("fence", "queue", 1), "{key:?}");
            assert_eq!(names[2], name.replacen("fence", "waiters", 1), "{key:?}");
        }
    }

    #[test]
    fn every_slot_has_a_number_below_110_000() {
        let slots: HashSet<u16> = (0..110_000u32).map(|n| crc16(n.to_string().as_bytes()) % 16384).collect();
        assert_eq!(slots.len(), 16384);
    }

    /// Keys that are likely to be mistaken for each other.
    fn key() -> impl Strategy<Value = String> {
        "[{}:/ax0-9]{0,8}"
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        #[test]
        fn helper_keys_lie_in_the_slot_of_their_lock(key in key()) {
            for helper in helpers(&key) {
                prop_assert_eq!(slot(&helper), slot(&key), "{:?}", helper);
            }
        }

        #[test]
        fn no_two_locks_share_a_helper_key(a in key(), b in key()) {
            prop_assume!(a != b);
            let all: HashSet<String> = helpers(&a).into_iter().chain(helpers(&b)).collect();
            prop_assert_eq!(all.len(), 6, "{:?} {:?}", a, b);
        }

        #[test]
        fn no_helper_key_can_be_locked(key in key()) {
            for helper in helpers(&key) {
                prop_assert!(RESERVED.iter().any(|prefix| helper.starts_with(prefix)));
            }
        }
    }
}

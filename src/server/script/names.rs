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

impl Names {
    pub(crate) fn new(key: &str) -> Names {
        let mut packed = b"$1\r\n4\r\n".to_vec();
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

fn slot(key: &str) -> u16 {
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

//! What a release sends to the channel of the waiter whom it made the owner: `n px fence token key`.

use crate::fence;

/// A grant, as it was announced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message<'a> {
    /// The number of the `wait` on which the grant rests.
    pub(crate) number: u64,
    /// For how many ms the lock is its waiter's.
    pub(crate) px: u64,
    pub(crate) fence: u64,
    pub(crate) token: &'a str,
    /// Any text, spaces included.
    pub(crate) key: &'a str,
}

impl<'a> Message<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Message<'a>> {
        let mut words = text.splitn(5, ' ');
        let (number, px) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let fence = words.next()?.parse().ok().filter(|fence| (1..fence::LIMIT).contains(fence))?;
        Some(Message { number, px, fence, token: words.next()?, key: words.next()? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_read_whole_or_not_at_all() {
        let message = Message { number: 7, px: 1500, fence: 17, token: "d1.x-1", key: "a b\n c" };
        assert_eq!(Message::parse("7 1500 17 d1.x-1 a b\n c"), Some(message.clone()));
        assert_eq!(Message::parse("7 1500 17 d1.x-1 "), Some(Message { key: "", ..message }));
        for other in
            ["", "7", "7 1500 17 d1.x-1", "x 1500 17 t k", "7 -1 17 t k", "7 1 0 t k", "7 1 9007199254740992 t k"]
        {
            assert_eq!(Message::parse(other), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in ".*") {
            let _ = Message::parse(&text);
        }
    }
}

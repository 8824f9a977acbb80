//! Whole numbers as decimal text, without the formatting machinery: this is on the uncontended path.

/// Appends `n` to a text.
pub(crate) fn push(text: &mut String, n: u64) {
    let mut digits = [0; 20];
    text.push_str(str::from_utf8(write(&mut digits, n)).unwrap_or_default());
}

/// The digits of `n`, at the end of `digits`. Two at a time: a fence has sixteen.
pub(crate) fn write(digits: &mut [u8; 20], mut n: u64) -> &[u8] {
    let mut at = digits.len();
    while n >= 100 {
        let pair = (n % 100) as u8;
        n /= 100;
        at -= 2;
        digits[at] = b'0' + pair / 10;
        digits[at + 1] = b'0' + pair % 10;
    }
    if n >= 10 {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
    }
    at -= 1;
    digits[at] = b'0' + n as u8;
    &digits[at..]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn digits_are_those_of_the_standard_library(n: u64) {
            let mut text = String::from("n=");
            super::push(&mut text, n);
            prop_assert_eq!(text, format!("n={n}"));
        }
    }

    #[test]
    fn the_ends_of_the_range_are_written() {
        for n in [0, 9, 10, 99, 100, 999, 1000, u64::MAX] {
            let mut text = String::new();
            super::push(&mut text, n);
            assert_eq!(text, n.to_string());
        }
    }
}

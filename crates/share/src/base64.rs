//! Base64 for tickets: the URL-safe alphabet without padding, which needs no quoting in a shell.
//!
//! Decoding accepts only what encoding produces, so that a ticket has exactly one text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |all, at| all << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for index in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * index) & 63) as usize]));
        }
    }
    text
}

/// Decodes at most `max_bytes`. Returns `None` for characters outside the alphabet, an impossible length, and unused
/// bits that are set.
pub(crate) fn decode(text: &str, max_bytes: usize) -> Option<Vec<u8>> {
    if text.len() > max_bytes.div_ceil(3) * 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for at in 0..4 {
            let value = match group.get(at) {
                Some(letter) => ALPHABET.iter().position(|known| known == letter)? as u32,
                None => 0,
            };
            bits = bits << 6 | value;
        }
        let count = group.len().checked_sub(1).filter(|&count| count > 0)?;
        if bits & ((1 << (24 - 8 * count)) - 1) != 0 && count < 3 {
            return None;
        }
        bytes.extend(&bits.to_be_bytes()[1..=count]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn matches_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text, 100).unwrap(), bytes.as_bytes());
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
        for text in ["Z", "Zh", "Zm9", "Zm9v=", "Zm 9", "Zm+v", "ä"] {
            assert!(decode(text, 100).is_none(), "{text}");
        }
    }

    #[test]
    fn long_text_is_not_decoded() {
        assert!(decode("Zm9v", 3).is_some() && decode("Zm9vZm9v", 3).is_none());
    }

    proptest! {
        #[test]
        fn any_bytes_decode_again(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(decode(&encode(&bytes), 200), Some(bytes));
        }
    }
}

//! Parses sizes that users write, such as `512M`.

/// Parses a size in bytes: digits, optionally followed by K, M, G or T, optionally followed by B or iB.
pub fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    digits.trim_end().parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        let right = [("0", 0), ("12", 12), (" 3K ", 3 << 10), ("5 m", 5 << 20), ("7b", 7), ("2G", 2 << 30)];
        let long = [("512MB", 512 << 20), ("2GiB", 2 << 30), ("1 TiB", 1 << 40), ("9kb", 9 << 10)];
        for (text, bytes) in right.into_iter().chain(long) {
            assert_eq!(parse_bytes(text), Some(bytes), "{text:?}");
        }
        let wrong =
            ["", "G", "-1", "1.5G", "1P", "1iB", "5 5", "0x10", "99999999999999999999", "18014398509481984K"];
        for text in wrong {
            assert_eq!(parse_bytes(text), None, "{text:?}");
        }
    }
}

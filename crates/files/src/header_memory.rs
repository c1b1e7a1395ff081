//! Checks that there is memory for the contents of headers, which parsers allocate without a way to fail.

use tensorferry_core::{Result, emergency_pool};

/// The memory that a byte of a header takes at most, in what the parsers and this crate make of it. The worst are metadata of
/// empty strings and members of a zip. `tests/header_memory.rs` measures it.
const MEMORY_PER_HEADER_BYTE: usize = 32;

/// What an entry of a header takes beside its texts, in bytes of a header.
const ENTRY_BYTES: usize = 32;

/// Checks that there is memory to make a header of entries with texts of these sizes, or a list of them.
pub(crate) fn check_entries_memory(text_bytes: impl Iterator<Item = usize>) -> Result<()> {
    check_header_memory(text_bytes.map(|bytes| (bytes + ENTRY_BYTES) as u64).sum())
}

/// Checks that there is memory for the contents of a header, or of an index, of this size.
pub(crate) fn check_header_memory(header_bytes: u64) -> Result<()> {
    let bytes = usize::try_from(header_bytes).unwrap_or(usize::MAX).saturating_mul(MEMORY_PER_HEADER_BYTE);
    emergency_pool::check_memory(bytes)
        .map_err(|error| error.at(format_args!("a header of {header_bytes} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry_core::ErrorKind;

    #[test]
    fn impossible_contents_are_an_error_with_numbers_and_a_hint() {
        check_header_memory(100_000).unwrap();
        let error = check_header_memory(1 << 58).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(
            [1u64 << 58, 1 << 63].iter().all(|number| error.fact().contains(&number.to_string())),
            "{error}"
        );
        assert!(error.hint().is_some());
    }
}

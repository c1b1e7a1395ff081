//! CRC-32 checksums of zip members.

use crate::entry::ZipMember;
use crate::errors::invalid_file;
use crate::hints;
use crate::reading::file_source::FileSource;
use crc32fast::Hasher;
use tensorferry_core::Result;

/// Compares the checksum of what was read with the one that the member declares.
pub(super) fn check_crc32(hasher: Hasher, expected: u32) -> Result<()> {
    let found = hasher.finalize();
    if found != expected {
        return Err(invalid_file(format!("the CRC-32 of the data is {found:08x}, expected {expected:08x}"))
            .with_hint(hints::FETCH_DAMAGED_FILE));
    }
    Ok(())
}

/// Hashes the .npy header of a stored member, whose data begins at `data_offset`.
pub(super) fn hash_member_header(source: &FileSource, member: ZipMember, data_offset: u64) -> Result<Hasher> {
    let mut hasher = Hasher::new();
    hasher.update(&source.read_to_vec(member.start, (data_offset - member.start) as usize)?);
    Ok(hasher)
}

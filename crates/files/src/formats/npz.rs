//! .npz: a zip archive of .npy files.
//!
//! The `zip` crate reads the directory and compares it with the headers of the members. It accepts many kinds of zip files,
//! so [`check_end_of_directory`] validates the end of the file first. The directory must span from its declared start to the
//! end of the file, and its size must fit its number of entries. This excludes comments, second directories, leading and
//! trailing bytes, and entry counts that would cause huge allocations.
//!
//! The checks then run in this order:
//!
//! 1. names: no duplicates, no absolute path, no `..`;
//! 2. members: stored or deflated, not encrypted, not a link;
//! 3. offsets: no overlap, and no gap larger than the record that streaming writers leave;
//! 4. sizes: both sizes of a stored member are equal, a deflated member does not exceed deflate's ratio of 1032 to one, and
//!    the total does not exceed [`OpenOptions::max_decompressed_bytes`];
//! 5. .npy headers: each shape takes exactly the bytes that its member declares.
//!
//! Reading inflates no byte more than declared and verifies the CRC-32. A map of a stored member does not verify it, because
//! that would read everything.
//!
//! Members that are not tensors (strings, objects, other files) are listed as skipped.

use super::names::find_duplicate;
use super::npy::header::read_header;
use crate::entry::{DataLocation, FileContents, FileEntry, ZipMember};
use crate::errors::{escaped, from_library_io, invalid_argument, invalid_file, quoted, unsupported_dtype};
use crate::hints;
use crate::options::OpenOptions;
use crate::reading::file_source::{FileSource, RangeReader};
use crate::reading::inflate::Inflater;
use crate::spec::TensorSpec;
use std::io::BufReader;
use std::sync::Arc;
use tensorferry_core::{Error, ErrorKind, Result};
use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// The largest expansion that deflate can reach.
const MAX_DEFLATE_RATIO: u64 = 1032;
/// The size of the record after a member whose size was unknown when it was begun.
const DATA_DESCRIPTOR_BYTES: u64 = 24;
/// The smallest size of a directory entry.
const MIN_DIRECTORY_ENTRY_BYTES: u64 = 46;
/// The limit on the name of a written member. The format allows 65,535 bytes.
const MAX_WRITTEN_NAME_BYTES: usize = 60_000;

/// A member, as the directory lists it.
struct DirectoryEntry {
    name: String,
    header_offset: u64,
    data_offset: u64,
    compressed_bytes: u64,
    bytes: u64,
    is_deflated: bool,
    crc32: u32,
}

/// The tensors of a file.
pub(crate) fn read_contents(source: &Arc<FileSource>, options: &OpenOptions) -> Result<FileContents> {
    let directory_offset = check_end_of_directory(source)?;
    let members = list_members(source)?;
    check_names(&members)?;
    check_extents(&members, directory_offset)?;
    let inflated_bytes =
        members.iter().filter(|member| member.is_deflated).map(|member| u128::from(member.bytes)).sum();
    options.check_decompressed_bytes(inflated_bytes, source.size())?;
    let mut contents = FileContents::default();
    for member in members {
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name).to_owned();
        match read_member(source, member, &name, options) {
            Ok(entry) => contents.entries.push(entry),
            Err(error) if error.kind() == ErrorKind::UnsupportedDType => {
                contents.skipped.push((name, error));
            }
            Err(error) => return Err(error.at(format_args!("member {}", quoted(&name)))),
        }
    }
    Ok(contents)
}

/// Validates the records at the end of the file and returns the offset of the directory.
fn check_end_of_directory(source: &FileSource) -> Result<u64> {
    const END_BYTES: u64 = 22;
    const LOCATOR_BYTES: u64 = 20;
    const END64_BYTES: u64 = 56;
    let size = source.size();
    let invalid = |fact: &str| invalid_file(fact).with_hint(hints::REWRITE_NPZ);
    if size < END_BYTES {
        return Err(invalid(&format!("a file of {size} bytes is too short for a zip directory")));
    }
    let end = source.read_to_vec(size - END_BYTES, END_BYTES as usize)?;
    if end[..4] != *b"PK\x05\x06" || u16_at(&end, 20) != 0 {
        return Err(invalid("the zip directory is not at the end of the file"));
    }
    let (mut count, mut directory_bytes, mut start) = (u16_at(&end, 10), u32_at(&end, 12), u32_at(&end, 16));
    let mut directory_end = size - END_BYTES;
    // Nonzero if any disk number is, or if the counts of this disk and of all disks differ.
    let mut disks = u16_at(&end, 4) | u16_at(&end, 6) | (u16_at(&end, 8) ^ u16_at(&end, 10));
    if directory_end >= LOCATOR_BYTES + END64_BYTES {
        let locator = source.read_to_vec(directory_end - LOCATOR_BYTES, LOCATOR_BYTES as usize)?;
        if locator[..4] == *b"PK\x06\x07" {
            directory_end -= LOCATOR_BYTES + END64_BYTES;
            let end = source.read_to_vec(directory_end, END64_BYTES as usize)?;
            if end[..4] != *b"PK\x06\x06"
                || u64_at(&end, 4) != END64_BYTES - 12
                || u64_at(&locator, 8) != directory_end
            {
                return Err(invalid("the 64-bit end record of the zip directory is misplaced"));
            }
            disks = u32_at(&end, 16)
                | u32_at(&end, 20)
                | u32_at(&locator, 4)
                | (u64_at(&end, 24) ^ u64_at(&end, 32));
            (count, directory_bytes, start) = (u64_at(&end, 32), u64_at(&end, 40), u64_at(&end, 48));
        }
    }
    if disks != 0 {
        return Err(invalid("the zip archive spans several disks"));
    }
    if start.checked_add(directory_bytes) != Some(directory_end) {
        return Err(invalid(&format!(
            "the zip directory of {directory_bytes} bytes at byte {start} does not end at byte {directory_end}"
        )));
    }
    if count > directory_bytes / MIN_DIRECTORY_ENTRY_BYTES {
        return Err(invalid(&format!(
            "the zip directory has {directory_bytes} bytes, too few for {count} entries"
        )));
    }
    Ok(start)
}

fn u16_at(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..].first_chunk().map_or(0, |two: &[u8; 2]| u64::from(u16::from_le_bytes(*two)))
}

fn u32_at(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..].first_chunk().map_or(0, |four: &[u8; 4]| u64::from(u32::from_le_bytes(*four)))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..].first_chunk().map_or(0, |eight: &[u8; 8]| u64::from_le_bytes(*eight))
}

fn from_zip_error(error: ZipError) -> Error {
    match error {
        ZipError::Io(error) => from_library_io(error),
        error => invalid_file(format!("the zip archive is invalid: {}", escaped(&error.to_string()))),
    }
}

/// All members of the directory, compared with their own headers.
fn list_members(source: &FileSource) -> Result<Vec<DirectoryEntry>> {
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let reader = BufReader::new(RangeReader::new(source, 0, source.size()));
    let mut archive = ZipArchive::with_config(config, reader).map_err(from_zip_error)?;
    if archive.has_duplicate_names() {
        return Err(invalid_file("two members have the same name"));
    }
    archive.validate_header_consistency().map_err(from_zip_error)?;
    let mut members = Vec::new();
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(from_zip_error)?;
        let name = member.name().map_err(from_zip_error)?.into_owned();
        let invalid = |fact: &str| invalid_file(format!("member {} {fact}", quoted(&name)));
        if member.encrypted() {
            return Err(invalid("is encrypted").with_hint(hints::DECRYPT_FIRST));
        }
        if member.is_symlink() {
            return Err(invalid("is a symbolic link"));
        }
        let is_deflated = match member.compression() {
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            _ => return Err(invalid("has a compression method that .npz does not use")),
        };
        let data_offset = member.data_start().ok_or_else(|| invalid("has no data"))?;
        members.push(DirectoryEntry {
            header_offset: member.header_start(),
            data_offset,
            compressed_bytes: member.compressed_size(),
            bytes: member.size(),
            is_deflated,
            crc32: member.crc32(),
            name: name.clone(),
        });
    }
    Ok(members)
}

/// The end of the name of the pickle in a checkpoint of PyTorch.
const TORCH_PICKLE: &str = "/data.pkl";

/// The file is a checkpoint that `torch.save` wrote.
pub(super) fn torch_checkpoint() -> Error {
    invalid_file("the file is a PyTorch checkpoint with a pickle, which can run any code")
        .with_hint(hints::LOAD_TORCH_CHECKPOINT)
}

/// Whether the first member of a zip is the pickle of a PyTorch checkpoint, which `torch.save` writes first.
pub(super) fn is_torch_checkpoint(start: &[u8]) -> bool {
    // A local header has the length of the name at offset 26, and the name at offset 30.
    let Some(length) = start.get(26..).and_then(|rest| rest.first_chunk::<2>()) else { return false };
    let end = 30 + usize::from(u16::from_le_bytes(*length));
    start.get(30..end).is_some_and(|name| name.ends_with(TORCH_PICKLE.as_bytes()))
}

fn check_names(members: &[DirectoryEntry]) -> Result<()> {
    if members.iter().any(|member| member.name.ends_with(TORCH_PICKLE)) {
        return Err(torch_checkpoint());
    }
    let names = members.iter().map(|member| member.name.strip_suffix(".npy").unwrap_or(&member.name));
    if let Some(name) = find_duplicate(names) {
        return Err(invalid_file(format!("two members are named {}", quoted(name))));
    }
    match members.iter().find(|member| !is_relative_path(&member.name)) {
        Some(member) => Err(invalid_file(format!(
            "the path of member {} leads outside the archive",
            quoted(&member.name)
        ))),
        None => Ok(()),
    }
}

/// Whether a path stays inside the folder that it is unpacked into.
fn is_relative_path(name: &str) -> bool {
    !name.starts_with('/')
        && !name.contains(['\\', '\0'])
        && name.split('/').all(|component| component != "..")
        && name.as_bytes().get(1) != Some(&b':')
}

/// Checks that the members lie one after the other before the directory.
fn check_extents(members: &[DirectoryEntry], directory_offset: u64) -> Result<()> {
    let mut in_file_order: Vec<&DirectoryEntry> = members.iter().collect();
    in_file_order.sort_unstable_by_key(|member| member.header_offset);
    let mut end = 0;
    let max_gap = |end: u64| if end == 0 { 0 } else { DATA_DESCRIPTOR_BYTES };
    for member in in_file_order {
        let name = quoted(&member.name);
        if member.header_offset < end || member.data_offset < member.header_offset {
            return Err(invalid_file(format!("member {name} overlaps the previous member")));
        }
        let gap = member.header_offset - end;
        if gap > max_gap(end) {
            return Err(invalid_file(format!("{gap} unused bytes before member {name}")));
        }
        let data_end = member.data_offset.checked_add(member.compressed_bytes);
        end = data_end
            .filter(|&end| end <= directory_offset)
            .ok_or_else(|| invalid_file(format!("member {name} extends into the zip directory")))?;
        if !member.is_deflated && member.bytes != member.compressed_bytes {
            return Err(invalid_file(format!(
                "stored member {name} has {} bytes and declares {}",
                member.compressed_bytes, member.bytes
            )));
        }
        if member.is_deflated && member.bytes > member.compressed_bytes.saturating_mul(MAX_DEFLATE_RATIO) {
            return Err(invalid_file(format!(
                "member {name} declares {} bytes, more than {} compressed bytes can hold",
                member.bytes, member.compressed_bytes
            )));
        }
    }
    let gap = directory_offset - end;
    if gap > max_gap(end) {
        return Err(invalid_file(format!("{gap} unused bytes before the zip directory")));
    }
    Ok(())
}

/// Reads the .npy header of a member.
fn read_member(
    source: &Arc<FileSource>,
    member: DirectoryEntry,
    name: &str,
    options: &OpenOptions,
) -> Result<FileEntry> {
    if !member.name.ends_with(".npy") {
        return Err(unsupported_dtype(
            format!("member {} is not a .npy file", quoted(name)),
            hints::UNZIP_MEMBER,
        ));
    }
    let header = if member.is_deflated {
        let mut inflater = Inflater::new(source.clone(), member.data_offset, member.compressed_bytes);
        read_header(&mut inflater, member.bytes, options)?
    } else {
        let mut reader = RangeReader::new(&**source, member.data_offset, member.bytes);
        read_header(&mut reader, member.bytes, options)?
    };
    let location = if member.is_deflated {
        DataLocation::Deflated {
            offset: member.data_offset,
            compressed_bytes: member.compressed_bytes,
            header_bytes: header.bytes,
            crc32: member.crc32,
        }
    } else {
        DataLocation::Stored {
            file: 0,
            offset: member.data_offset + header.bytes,
            member: Some(ZipMember { start: member.data_offset, crc32: member.crc32 }),
        }
    };
    let spec = TensorSpec { name: name.to_owned(), ..header.spec };
    FileEntry::new(spec, member.bytes - header.bytes, location)
}

/// Validates the names of tensors for writing.
pub(crate) fn check_written_names(specs: &[TensorSpec]) -> Result<()> {
    if let Some(name) = find_duplicate(specs.iter().map(|spec| spec.name.as_str())) {
        return Err(invalid_argument(
            format!("two tensors are named {}", quoted(name)),
            hints::RENAME_TENSOR,
        ));
    }
    let is_valid =
        |name: &str| !name.is_empty() && is_relative_path(name) && name.len() <= MAX_WRITTEN_NAME_BYTES;
    match specs.iter().find(|spec| !is_valid(&spec.name)) {
        Some(spec) => Err(invalid_argument(
            format!("{} is not a valid name of a .npz member", quoted(&spec.name)),
            hints::CHOOSE_MEMBER_PATH,
        )),
        None => Ok(()),
    }
}

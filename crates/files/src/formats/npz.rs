//! .npz: a zip of .npy files.
//!
//! The `zip` crate reads the directory and checks it against the members' own headers. It is made for all zips there are, so
//! before it gets to see one, the end of the file is checked here: the directory must reach from where it is said to begin
//! to the end of the file, with as many entries as fit into it. That leaves no room for a comment, a second directory, bytes
//! in front or behind, or a count that would have memory taken for entries that are not there.
//!
//! Then, in this order: names (none twice; no absolute path, no `..`), members (stored or deflated; not encrypted; no link),
//! places (without overlap, and without a hole larger than the record that streaming writers leave), sizes (a stored member's
//! two are equal; a deflated one's is not more than deflate can hold in so many bytes, 1032 to one; all together not more
//! than [`OpenOptions::max_decompressed_bytes`]), and each member's .npy header, whose shape must take exactly what the member declares.
//! Reading inflates no byte more than declared, and checks the checksum. A map of a stored member does not check it: that
//! would read everything.
//!
//! Members that are no tensor (strings, objects, files that are no .npy) are skipped and said to be.

use crate::entry::{FileEntry, Member, Place, TensorSpec};
use crate::fault::{bad, quoted, unsupported, wrong};
use crate::inflate::Inflate;
use crate::json::twice;
use crate::npy;
use crate::open::{Found, OpenOptions};
use crate::source::{FileSource, Part};
use std::io::BufReader;
use std::sync::Arc;
use tensorferry_core::{Error, ErrorKind, Result};
use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

/// The most bytes that one byte of deflate stands for.
const MOST_RATIO: u64 = 1032;
/// The record behind a member whose size was not known when it was begun.
const DESCRIPTOR: u64 = 24;

/// A member, as the directory has it.
struct Listed {
    name: String,
    header: u64,
    data: u64,
    compressed: u64,
    size: u64,
    deflated: bool,
    crc: u32,
}

pub(crate) fn open(source: &Arc<FileSource>, options: &OpenOptions) -> Result<Found> {
    let directory = check_end(source)?;
    let listed = list(source)?;
    check_names(&listed)?;
    check_places(&listed, directory)?;
    let inflated = listed.iter().filter(|member| member.deflated).map(|member| u128::from(member.size)).sum();
    options.check_inflated(inflated, source.length())?;
    let mut found = Found::default();
    for member in listed {
        let name = member.name.strip_suffix(".npy").unwrap_or(&member.name).to_owned();
        match entry(source, member, &name, options) {
            Ok(entry) => found.entries.push(entry),
            Err(error) if error.kind() == ErrorKind::UnsupportedDType => found.skipped.push((name, error)),
            Err(error) => return Err(error.at(format_args!("member {}", quoted(&name)))),
        }
    }
    Ok(found)
}

/// Checks the records at the end of the file; where the directory begins.
fn check_end(source: &FileSource) -> Result<u64> {
    const END: u64 = 22;
    const LOCATOR: u64 = 20;
    const END64: u64 = 56;
    let length = source.length();
    let odd = |what: &str| {
        bad(format!("the directory of the zip {what}"))
            .with_advice("fetch it again, or write it again with numpy.savez")
    };
    if length < END {
        return Err(odd("is not there: the file is too short"));
    }
    let end = source.bytes(length - END, END as usize)?;
    let (two, four) =
        (|at: usize| u64::from(u16::from_le_bytes([end[at], end[at + 1]])), |at| word(&end, at));
    if end[..4] != *b"PK\x05\x06" || two(20) != 0 {
        return Err(odd("is not at the end of the file"));
    }
    let (mut count, mut size, mut start, mut before) = (two(10), four(12), four(16), length - END);
    let mut disks = two(4) | two(6) | (two(8) ^ two(10));
    if before >= LOCATOR + END64 {
        let locator = source.bytes(before - LOCATOR, LOCATOR as usize)?;
        if locator[..4] == *b"PK\x06\x07" {
            before -= LOCATOR + END64;
            let end = source.bytes(before, END64 as usize)?;
            if end[..4] != *b"PK\x06\x06" || long(&end, 4) != END64 - 12 || long(&locator, 8) != before {
                return Err(odd("has a 64-bit record that is not where it should be"));
            }
            disks = word(&end, 16) | word(&end, 20) | word(&locator, 4) | (long(&end, 24) ^ long(&end, 32));
            (count, size, start) = (long(&end, 32), long(&end, 40), long(&end, 48));
        }
    }
    if disks != 0 {
        return Err(odd("speaks of several disks"));
    }
    if start.checked_add(size) != Some(before) {
        return Err(odd("does not end where the file does"));
    }
    // An entry has at least 46 bytes.
    if count > size / 46 {
        return Err(odd(&format!("has {size} bytes for {count} entries")));
    }
    Ok(start)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |four: &[u8; 4]| u64::from(u32::from_le_bytes(*four)))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |eight: &[u8; 8]| u64::from_le_bytes(*eight))
}

fn of_zip(error: ZipError) -> Error {
    match error {
        ZipError::Io(error) => crate::stream::from_io(error),
        error => bad(format!("the zip is broken: {}", quoted(&error.to_string()).trim_matches('"'))),
    }
}

/// Everything that the directory lists, checked against the members' own headers.
fn list(source: &FileSource) -> Result<Vec<Listed>> {
    let config = Config { archive_offset: ArchiveOffset::Known(0) };
    let reader = BufReader::new(Part::new(source, 0, source.length()));
    let mut archive = ZipArchive::with_config(config, reader).map_err(of_zip)?;
    if archive.has_duplicate_names() {
        return Err(bad("two members of it have the same name"));
    }
    archive.validate_header_consistency().map_err(of_zip)?;
    let mut listed = Vec::new();
    for number in 0..archive.len() {
        let member = archive.by_index_raw(number).map_err(of_zip)?;
        let name = member.name().map_err(of_zip)?.into_owned();
        let at = |fact: &str| bad(format!("the member {} {fact}", quoted(&name)));
        if member.encrypted() {
            return Err(at("is encrypted").with_advice("decrypt it first"));
        }
        if member.is_symlink() {
            return Err(at("is a link"));
        }
        let deflated = match member.compression() {
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            _ => return Err(at("is compressed by a method that .npz does not use")),
        };
        let data = member.data_start().ok_or_else(|| at("has no data"))?;
        listed.push(Listed {
            header: member.header_start(),
            data,
            compressed: member.compressed_size(),
            size: member.size(),
            deflated,
            crc: member.crc32(),
            name: name.clone(),
        });
    }
    Ok(listed)
}

fn check_names(listed: &[Listed]) -> Result<()> {
    if listed.iter().any(|member| member.name.ends_with("/data.pkl")) {
        return Err(bad("it is a checkpoint of torch.save, with a pickle that can run any code")
            .with_advice("load it with torch.load(weights_only=True), and save it with safetensors"));
    }
    let names = listed.iter().map(|member| member.name.strip_suffix(".npy").unwrap_or(&member.name));
    if let Some(name) = twice(names) {
        return Err(bad(format!("two members of it are called {}", quoted(name))));
    }
    match listed.iter().find(|member| !is_plain(&member.name)) {
        Some(member) => {
            Err(bad(format!("the member {} has a name that leads out of the archive", quoted(&member.name))))
        }
        None => Ok(()),
    }
}

/// Whether a name stays below where it is unpacked.
fn is_plain(name: &str) -> bool {
    !name.starts_with('/')
        && !name.contains(['\\', '\0'])
        && name.split('/').all(|part| part != "..")
        && name.as_bytes().get(1) != Some(&b':')
}

fn check_places(listed: &[Listed], directory: u64) -> Result<()> {
    let mut order: Vec<&Listed> = listed.iter().collect();
    order.sort_unstable_by_key(|member| member.header);
    let mut last = 0;
    for member in order {
        let name = quoted(&member.name);
        if member.header < last || member.data < member.header {
            return Err(bad(format!("the member {name} overlaps the one before it")));
        }
        if member.header - last > if last == 0 { 0 } else { DESCRIPTOR } {
            return Err(bad(format!("before the member {name} there are bytes that belong to none")));
        }
        let end = member.data.checked_add(member.compressed).filter(|&end| end <= directory);
        last = end.ok_or_else(|| bad(format!("the member {name} reaches into the directory")))?;
        if !member.deflated && member.size != member.compressed {
            return Err(bad(format!(
                "the stored member {name} has {} bytes and declares {}",
                member.compressed, member.size
            )));
        }
        if member.deflated && member.size > member.compressed.saturating_mul(MOST_RATIO) {
            return Err(bad(format!(
                "the member {name} declares {} bytes, which {} compressed ones cannot hold",
                member.size, member.compressed
            )));
        }
    }
    if directory - last > if last == 0 { 0 } else { DESCRIPTOR } {
        return Err(bad("before its directory there are bytes that belong to no member"));
    }
    Ok(())
}

/// Reads the .npy header of a member.
fn entry(source: &Arc<FileSource>, member: Listed, name: &str, options: &OpenOptions) -> Result<FileEntry> {
    if !member.name.ends_with(".npy") {
        return Err(unsupported(format!("the member {} is no .npy", quoted(name)), "unpack it with unzip"));
    }
    let header = if member.deflated {
        let mut inflate = Inflate::new(source.clone(), member.data, member.compressed);
        npy::header(&mut inflate, member.size, options)?
    } else {
        npy::header(&mut Part::new(&**source, member.data, member.size), member.size, options)?
    };
    let place = if member.deflated {
        Place::Deflated {
            offset: member.data,
            compressed: member.compressed,
            header: header.length,
            crc: member.crc,
        }
    } else {
        Place::Stored {
            file: 0,
            offset: member.data + header.length,
            member: Some(Member { start: member.data, crc: member.crc }),
        }
    };
    FileEntry::new(TensorSpec { name: name.to_owned(), ..header.spec }, member.size - header.length, place)
}

/// What a writer asks of names.
pub(crate) fn check_specs(specs: &[TensorSpec]) -> Result<()> {
    if let Some(name) = twice(specs.iter().map(|spec| spec.name.as_str())) {
        return Err(wrong(format!("two tensors are called {}", quoted(name)), "choose another name"));
    }
    match specs.iter().find(|spec| spec.name.is_empty() || !is_plain(&spec.name) || spec.name.len() > 60_000)
    {
        Some(spec) => Err(wrong(
            format!("a member of a .npz cannot be called {}", quoted(&spec.name)),
            "choose a name that is a plain path: not empty, no .., no \\, not absolute",
        )),
        None => Ok(()),
    }
}

//! Hostile .npy, .npz and raw files, one test for each contradiction. The tests of .npy headers are beside the parser.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Folder, assert_invalid, hint_of, mapped_bytes, open_bytes, open_bytes_with, open_error, read};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::Write;
use tensorferry_core::{DType, ErrorKind};
use tensorferry_files::{MapMode, OpenOptions, hints, open};
use zip::write::{SimpleFileOptions, ZipWriter};

// .npy

fn npy(text: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes.extend(data);
    bytes
}

fn float32(shape: &str, data: &[u8]) -> Vec<u8> {
    npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"), data)
}

#[test]
fn npy_with_too_few_bytes() {
    assert_invalid(&open_error("x.npy", &float32("(3,)", &[0; 11])), hints::REWRITE_NPY, &[3, 12, 11]);
}

#[test]
fn npy_with_trailing_bytes() {
    assert_invalid(&open_error("x.npy", &float32("(3,)", &[0; 13])), hints::REWRITE_NPY, &[3, 12, 13]);
}

#[test]
fn npy_whose_shape_overflows() {
    for shape in [
        "(9223372036854775807, 9223372036854775807)",
        "(4611686018427387904,)",
        "(0, 9223372036854775807, 8)",
    ] {
        assert_invalid(&open_error("x.npy", &float32(shape, &[])), hints::REWRITE_NPY, &[]);
    }
}

#[test]
fn npy_of_huge_shape_is_rejected_before_allocation() {
    let error = open_error("x.npy", &float32("(1000000000000,)", &[0; 4]));
    assert_invalid(&error, hints::REWRITE_NPY, &[4_000_000_000_000, 4]);
}

// .npz

fn zip_of(members: &[(&str, &[u8])], options: SimpleFileOptions) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, data) in members {
        zip.start_file(*name, options).unwrap();
        zip.write_all(data).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn stored(members: &[(&str, &[u8])]) -> Vec<u8> {
    zip_of(members, SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored))
}

fn deflated(members: &[(&str, &[u8])]) -> Vec<u8> {
    zip_of(members, SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated))
}

fn two_floats() -> Vec<u8> {
    float32("(2,)", &[1; 8])
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

fn find_last(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).rposition(|window| window == what).unwrap()
}

#[test]
fn valid_npz_files_are_read() {
    for bytes in [stored(&[("a.npy", &two_floats())]), deflated(&[("a.npy", &two_floats())])] {
        let opened = open_bytes("x.npz", &bytes).unwrap();
        assert_eq!(read(&opened, opened.entry("a").unwrap(), 1).unwrap(), [1; 8]);
    }
}

#[test]
fn npz_with_a_name_twice() {
    // The library does not write duplicates, so the second name is changed in both of its headers.
    let mut bytes = stored(&[("a.npy", &two_floats()), ("b.npy", &two_floats())]);
    while let Some(at) = bytes.windows(5).position(|window| window == b"b.npy") {
        bytes[at] = b'a';
    }
    assert_invalid(&open_error("x.npz", &bytes), hints::RECREATE_FILE, &[]);
}

#[test]
fn npz_with_a_key_twice() {
    let bytes = stored(&[("a.npy", &two_floats()), ("a", &two_floats())]);
    assert_invalid(&open_error("x.npz", &bytes), hints::RECREATE_FILE, &[]);
}

#[test]
fn npz_with_paths_outside_the_archive() {
    for name in ["../a.npy", "/a.npy", "a/../../b.npy", "..", "a\\b.npy", "C:a.npy"] {
        assert_invalid(&open_error("x.npz", &stored(&[(name, &two_floats())])), hints::RECREATE_FILE, &[]);
    }
}

#[test]
fn npz_with_a_directory_past_the_end() {
    let bytes = stored(&[("a.npy", &two_floats())]);
    let end = bytes.len() - 22;
    for (at, value) in [(12, 0xff), (16, 0xff), (19, 0x7f), (10, 0xff), (4, 1), (20, 1)] {
        let mut bytes = bytes.clone();
        bytes[end + at] = value;
        assert_invalid(&open_error("x.npz", &bytes), hints::REWRITE_NPZ, &[]);
    }
}

#[test]
fn npz_with_leading_or_trailing_bytes() {
    let bytes = stored(&[("a.npy", &two_floats())]);
    let trailing = [&bytes[..], b"?"].concat();
    assert_invalid(&open_error("x.npz", &trailing), hints::REWRITE_NPZ, &[]);
    let leading = [&b"PK\x03\x04"[..], &bytes].concat();
    assert_eq!(open_error("x.npz", &leading).kind(), ErrorKind::InvalidFile);
}

#[test]
fn npz_with_a_gap_between_members() {
    let bytes = stored(&[("a.npy", &two_floats()), ("b.npy", &two_floats())]);
    // The directory omits the first member; its entries have equal lengths.
    let (first, second) = (find(&bytes, b"PK\x01\x02"), find_last(&bytes, b"PK\x01\x02"));
    let end = bytes.len() - 22;
    let mut bytes = [&bytes[..first], &bytes[second..]].concat();
    let end = end - (second - first);
    (bytes[end + 8], bytes[end + 10]) = (1, 1);
    bytes[end + 12..end + 16].copy_from_slice(&((end - first) as u32).to_le_bytes());
    assert_eq!(open_error("x.npz", &bytes).kind(), ErrorKind::InvalidFile);
}

#[test]
fn npz_with_members_that_overlap() {
    let mut bytes = stored(&[("a.npy", &two_floats()), ("b.npy", &two_floats())]);
    // Both directory entries point to the first member.
    let second = find_last(&bytes, b"PK\x01\x02");
    bytes[second + 42..second + 46].copy_from_slice(&[0; 4]);
    let error = open_error("x.npz", &bytes);
    assert_eq!(error.kind(), ErrorKind::InvalidFile, "{error}");
}

/// Changes the sizes of the one member, in both of its headers.
fn with_sizes(mut bytes: Vec<u8>, compressed: Option<u32>, size: Option<u32>) -> Vec<u8> {
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [18, central + 20] {
        if let Some(compressed) = compressed {
            bytes[at..at + 4].copy_from_slice(&compressed.to_le_bytes());
        }
        if let Some(size) = size {
            bytes[at + 4..at + 8].copy_from_slice(&size.to_le_bytes());
        }
    }
    bytes
}

#[test]
fn npz_whose_stored_sizes_differ() {
    let bytes = with_sizes(stored(&[("a.npy", &two_floats())]), None, Some(1000));
    assert_eq!(open_error("x.npz", &bytes).kind(), ErrorKind::InvalidFile);
}

#[test]
fn npz_that_declares_more_than_deflate_can_hold() {
    let data = float32("(250000000,)", &[]);
    let bytes = with_sizes(deflated(&[("a.npy", &data)]), None, Some(1_000_000_000 + data.len() as u32));
    let declared = 1_000_000_000 + data.len() as u64;
    assert_invalid(&open_error("x.npz", &bytes), hints::RECREATE_FILE, &[declared]);
}

#[test]
fn npz_decompression_bomb() {
    let data = float32("(25000000,)", &vec![0; 100_000_000]);
    let bytes = deflated(&[("a.npy", &data)]);
    assert!(bytes.len() < 200_000);
    assert!(open_bytes("x.npz", &bytes).is_ok(), "100 MB are allowed");
    let options = OpenOptions { max_decompressed_bytes: Some(50_000_000), ..OpenOptions::default() };
    let error = open_bytes_with("x.npz", &bytes, &options).unwrap_err();
    assert_invalid(
        &error,
        hints::RAISE_DECOMPRESSION_LIMIT,
        &[bytes.len() as u64, data.len() as u64, 50_000_000],
    );
}

#[test]
fn npz_that_inflates_to_less_or_more() {
    let data = two_floats();
    for size in [data.len() as u32 + 4, data.len() as u32 - 4] {
        let shape = if size > data.len() as u32 { "(3,)" } else { "(1,)" };
        let changed = [&float32(shape, &[])[..], &data[data.len() - 8..]].concat();
        let bytes = with_sizes(deflated(&[("a.npy", &changed)]), None, Some(size));
        let opened = open_bytes("x.npz", &bytes).unwrap();
        let error = read(&opened, &opened.entries()[0], 1).unwrap_err();
        assert_invalid(&error, hints::RECREATE_FILE, &[]);
    }
}

#[test]
fn npz_with_a_wrong_checksum() {
    let mut bytes = stored(&[("a.npy", &two_floats())]);
    let data_offset = find(&bytes, b"NUMPY") + two_floats().len() - 5;
    bytes[data_offset] ^= 1;
    let opened = open_bytes("x.npz", &bytes).unwrap();
    let entry = &opened.entries()[0];
    assert_invalid(&read(&opened, entry, 1).unwrap_err(), hints::FETCH_DAMAGED_FILE, &[]);
    let mut stream = opened.stream(entry).unwrap();
    let error = stream.read(&mut [std::mem::MaybeUninit::uninit(); 8]).unwrap_err();
    assert_invalid(&error, hints::FETCH_DAMAGED_FILE, &[]);

    let mut bytes = deflated(&[("a.npy", &two_floats())]);
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [14, central + 16] {
        bytes[at] ^= 1;
    }
    let opened = open_bytes("x.npz", &bytes).unwrap();
    let error = read(&opened, &opened.entries()[0], 1).unwrap_err();
    assert_invalid(&error, hints::FETCH_DAMAGED_FILE, &[]);
}

#[test]
fn npz_whose_member_is_shorter_than_its_shape() {
    let error = open_error("x.npz", &stored(&[("a.npy", &float32("(3,)", &[0; 4]))]));
    assert_invalid(&error, hints::RECREATE_FILE, &[3, 12, 4]);
}

#[test]
fn npz_that_is_encrypted() {
    let mut bytes = stored(&[("a.npy", &two_floats())]);
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [6, central + 8] {
        bytes[at] |= 1;
    }
    assert_invalid(&open_error("x.npz", &bytes), hints::DECRYPT_FIRST, &[]);
}

#[test]
fn npz_with_another_compression() {
    let mut bytes = stored(&[("a.npy", &two_floats())]);
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [8, central + 10] {
        bytes[at] = 14;
    }
    assert_invalid(&open_error("x.npz", &bytes), hints::RECREATE_FILE, &[]);
}

#[test]
fn npz_with_64_bit_records() {
    let options =
        SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored).large_file(true);
    let bytes = zip_of(&[("a.npy", &two_floats())], options);
    let opened = open_bytes("x.npz", &bytes).unwrap();
    assert_eq!(read(&opened, &opened.entries()[0], 1).unwrap(), [1; 8]);
}

#[test]
fn npz_with_a_contradictory_64_bit_end_record() {
    // A directory of one entry, with a 64-bit end record that declares a trillion entries.
    let bytes = stored(&[("a.npy", &two_floats())]);
    let end = bytes.len() - 22;
    let start = u64::from(u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap()));
    let build = |count: u64, size: u64, start: u64| {
        let mut long = bytes[..end].to_vec();
        long.extend(b"PK\x06\x06");
        long.extend(44u64.to_le_bytes());
        long.extend([45, 0, 45, 0]);
        long.extend([0; 8]);
        for number in [count, count, size, start] {
            long.extend(number.to_le_bytes());
        }
        long.extend(b"PK\x06\x07\0\0\0\0");
        long.extend((end as u64).to_le_bytes());
        long.extend(1u32.to_le_bytes());
        long.extend(&bytes[end..end + 8]);
        long.extend([0xff; 12]);
        long.extend([0, 0]);
        long
    };
    let size = end as u64 - start;
    assert!(open_bytes("x.npz", &build(1, size, start)).is_ok());
    for (count, size, start) in
        [(1 << 40, size, start), (1, u64::MAX, start), (1 << 40, u64::MAX - 5, 6), (2, size, start)]
    {
        assert_eq!(open_error("x.npz", &build(count, size, start)).kind(), ErrorKind::InvalidFile);
    }
}

// raw bytes

#[test]
fn raw_bytes_must_be_as_many_as_the_shape_takes() {
    let options = |shape: Option<&[i64]>| OpenOptions {
        dtype: Some(DType::Int16),
        shape: shape.map(<[i64]>::to_vec),
        ..OpenOptions::default()
    };
    assert!(open_bytes_with("x.bin", &[0; 4], &options(Some(&[2]))).is_ok());
    assert!(open_bytes_with("x.bin", &[0; 5], &options(Some(&[2]))).is_err());
    assert!(open_bytes_with("x.bin", &[0; 3], &options(Some(&[2]))).is_err());
    assert!(open_bytes_with("x.bin", &[0; 4], &options(Some(&[-2, -1]))).is_err());
    assert_eq!(open_bytes_with("x.bin", &[0; 6], &options(None)).unwrap().entries()[0].shape(), [3]);
    assert!(open_bytes_with("x.bin", &[0; 5], &options(None)).is_err());
    assert_eq!(hint_of(&open_error("x.bin", &[0; 4])), hints::DESCRIBE_RAW_BYTES);
}

// files of any format

#[test]
fn paths_that_are_not_regular_files() {
    let folder = Folder::new();
    let error = open(&folder.0, &OpenOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::EISDIR)));
    let error = open(folder.path("missing.npy"), &OpenOptions::default()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
    mknodat(CWD, folder.path("pipe.npy"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let error = open(folder.path("pipe.npy"), &OpenOptions::default()).unwrap_err();
    assert_eq!(hint_of(&error), hints::PASS_REGULAR_FILE);
    assert!(open("/dev/zero", &OpenOptions::default()).is_err());
}

#[test]
fn files_that_are_truncated_while_open() {
    let folder = Folder::new();
    let path = folder.put("x.npy", &float32("(1000,)", &[0; 4000]));
    let opened = open(&path, &OpenOptions::default()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let entry = &opened.entries()[0];
    let hint = hints::REPLACE_INSTEAD_OF_OVERWRITING;
    assert_invalid(&read(&opened, entry, 1).unwrap_err(), hint, &[]);
    assert_invalid(&opened.map(entry, MapMode::ReadOnly).unwrap_err(), hint, &[]);
}

#[test]
fn entries_of_another_file_are_rejected() {
    let large = open_bytes("x.npy", &float32("(1000,)", &[0; 4000])).unwrap();
    let small = open_bytes("x.npy", &float32("(1,)", &[0; 4])).unwrap();
    let entry = &large.entries()[0];
    assert!(small.map(entry, MapMode::ReadOnly).is_err() && small.map(entry, MapMode::CopyOnWrite).is_err());
    assert!(read(&small, entry, 2).is_err());
}

#[test]
fn writes_to_a_map_reach_neither_the_file_nor_other_maps() {
    let folder = Folder::new();
    let path = folder.put("x.npy", &float32("(1000,)", &[7; 4000]));
    let opened = open(&path, &OpenOptions::default()).unwrap();
    let entry = &opened.entries()[0];
    let (one, two) =
        (opened.map(entry, MapMode::CopyOnWrite).unwrap(), opened.map(entry, MapMode::CopyOnWrite).unwrap());
    drop(opened.stream(entry));
    // SAFETY: `write_bytes` needs `length` writable bytes that nobody else uses. `one` keeps them mapped, a copy-on-write
    // map may be written, and only this thread has its address.
    unsafe { one.data().write_bytes(9, one.length()) };
    assert_eq!(mapped_bytes(&two), [7; 4000]);
    assert_eq!(read(&opened, entry, 1).unwrap(), [7; 4000]);
    drop(opened);
    std::fs::remove_file(&path).unwrap();
    // The map outlives the file.
    assert_eq!(mapped_bytes(&two), [7; 4000]);
}

//! Files that lie, one test for each lie. Those of .npy headers are with the parser.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Folder, open_bytes, open_bytes_with, read, refused};
use std::io::Write;
use std::os::unix::fs::symlink;
use tensorferry_core::{DType, ErrorKind};
use tensorferry_files::{Dialect, Format, MapKind, Options, Spec, WriteOptions, Writer, open};
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
    let error = refused("x.npy", &float32("(3,)", &[0; 11]));
    assert_eq!(error.fact(), "x.npy: float32 of shape [3] takes 12 bytes, and there are 11");
    assert_eq!(error.kind(), ErrorKind::BadFile);
}

#[test]
fn npy_with_trailing_bytes() {
    assert!(refused("x.npy", &float32("(3,)", &[0; 13])).fact().contains("there are 13"));
}

#[test]
fn npy_whose_shape_overflows() {
    for shape in [
        "(9223372036854775807, 9223372036854775807)",
        "(4611686018427387904,)",
        "(0, 9223372036854775807, 8)",
    ] {
        assert!(refused("x.npy", &float32(shape, &[])).fact().contains("overflows"), "{shape}");
    }
}

#[test]
fn npy_of_huge_shape_takes_no_memory() {
    assert!(refused("x.npy", &float32("(1000000000000,)", &[0; 4])).fact().contains("there are 4"));
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

fn one() -> Vec<u8> {
    float32("(2,)", &[1; 8])
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

fn find_last(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).rposition(|window| window == what).unwrap()
}

#[test]
fn npz_that_is_right() {
    for bytes in [stored(&[("a.npy", &one())]), deflated(&[("a.npy", &one())])] {
        let opened = open_bytes("x.npz", &bytes).unwrap();
        assert_eq!(read(&opened, opened.entry("a").unwrap(), 1).unwrap(), [1; 8]);
    }
}

#[test]
fn npz_with_a_name_twice() {
    // The library does not write one; so the second name is changed in both of its headers.
    let mut bytes = stored(&[("a.npy", &one()), ("b.npy", &one())]);
    while let Some(at) = bytes.windows(5).position(|window| window == b"b.npy") {
        bytes[at] = b'a';
    }
    assert!(refused("x.npz", &bytes).fact().contains("same name"));
}

#[test]
fn npz_with_a_key_twice() {
    assert!(refused("x.npz", &stored(&[("a.npy", &one()), ("a", &one())])).fact().contains("called \"a\""));
}

#[test]
fn npz_with_names_that_lead_out() {
    for name in ["../a.npy", "/a.npy", "a/../../b.npy", "..", "a\\b.npy", "C:a.npy"] {
        let error = refused("x.npz", &stored(&[(name, &one())]));
        assert!(error.fact().contains("leads out"), "{name}: {error}");
    }
}

#[test]
fn npz_with_a_directory_past_the_end() {
    let bytes = stored(&[("a.npy", &one())]);
    let end = bytes.len() - 22;
    for (at, value) in [(12, 0xff), (16, 0xff), (19, 0x7f), (10, 0xff), (4, 1), (20, 1)] {
        let mut bytes = bytes.clone();
        bytes[end + at] = value;
        assert!(refused("x.npz", &bytes).fact().contains("directory of the zip"), "{at}");
    }
}

#[test]
fn npz_with_bytes_behind_or_in_front() {
    let bytes = stored(&[("a.npy", &one())]);
    assert!(refused("x.npz", &[&bytes[..], b"?"].concat()).fact().contains("directory"));
    let front = [&b"PK\x03\x04"[..], &bytes].concat();
    assert_eq!(refused("x.npz", &front).kind(), ErrorKind::BadFile);
}

#[test]
fn npz_with_a_hole_between_members() {
    let bytes = stored(&[("a.npy", &one()), ("b.npy", &one())]);
    // The first member is left out of the directory, whose entries are of one length.
    let (first, second) = (find(&bytes, b"PK\x01\x02"), find_last(&bytes, b"PK\x01\x02"));
    let end = bytes.len() - 22;
    let mut bytes = [&bytes[..first], &bytes[second..]].concat();
    let end = end - (second - first);
    (bytes[end + 8], bytes[end + 10]) = (1, 1);
    bytes[end + 12..end + 16].copy_from_slice(&((end - first) as u32).to_le_bytes());
    assert_eq!(refused("x.npz", &bytes).kind(), ErrorKind::BadFile);
}

#[test]
fn npz_with_members_that_overlap() {
    let mut bytes = stored(&[("a.npy", &one()), ("b.npy", &one())]);
    // Both directory entries point to the first member.
    let second = find_last(&bytes, b"PK\x01\x02");
    bytes[second + 42..second + 46].copy_from_slice(&[0; 4]);
    let error = refused("x.npz", &bytes);
    assert_eq!(error.kind(), ErrorKind::BadFile, "{error}");
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
    let bytes = with_sizes(stored(&[("a.npy", &one())]), None, Some(1000));
    assert_eq!(refused("x.npz", &bytes).kind(), ErrorKind::BadFile);
}

#[test]
fn npz_that_declares_more_than_deflate_can_hold() {
    let data = float32("(250000000,)", &[]);
    let bytes = with_sizes(deflated(&[("a.npy", &data)]), None, Some(1_000_000_000 + data.len() as u32));
    let error = refused("x.npz", &bytes);
    assert!(error.fact().contains("cannot hold"), "{error}");
}

#[test]
fn npz_bomb() {
    let data = float32("(25000000,)", &vec![0; 100_000_000]);
    let bytes = deflated(&[("a.npy", &data)]);
    assert!(bytes.len() < 200_000);
    assert!(open_bytes("x.npz", &bytes).is_ok(), "100 MB are allowed");
    let options = Options { most_inflated: Some(50_000_000), ..Options::default() };
    let error = open_bytes_with("x.npz", &bytes, &options).unwrap_err();
    assert!(error.fact().contains("more than 50000000") && error.hint().unwrap().contains("limit"));
}

#[test]
fn npz_that_inflates_to_less_or_more() {
    let data = one();
    for (size, word) in
        [(data.len() as u32 + 4, "less than it declares"), (data.len() as u32 - 4, "more than it declares")]
    {
        let shape = if size > data.len() as u32 { "(3,)" } else { "(1,)" };
        let changed = [&float32(shape, &[])[..], &data[data.len() - 8..]].concat();
        let bytes = with_sizes(deflated(&[("a.npy", &changed)]), None, Some(size));
        let opened = open_bytes("x.npz", &bytes).unwrap();
        let error = read(&opened, &opened.entries()[0], 1).unwrap_err();
        assert!(error.fact().contains(word), "{error}");
    }
}

#[test]
fn npz_with_a_wrong_checksum() {
    let at = |bytes: &[u8]| find(bytes, b"NUMPY") + one().len() - 5;
    let mut bytes = stored(&[("a.npy", &one())]);
    let place = at(&bytes);
    bytes[place] ^= 1;
    let opened = open_bytes("x.npz", &bytes).unwrap();
    let entry = &opened.entries()[0];
    assert!(read(&opened, entry, 1).unwrap_err().fact().contains("checksum"));
    let mut stream = opened.stream(entry).unwrap();
    assert!(stream.read(&mut [std::mem::MaybeUninit::uninit(); 8]).unwrap_err().fact().contains("checksum"));

    let mut bytes = deflated(&[("a.npy", &one())]);
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [14, central + 16] {
        bytes[at] ^= 1;
    }
    let opened = open_bytes("x.npz", &bytes).unwrap();
    assert!(read(&opened, &opened.entries()[0], 1).unwrap_err().fact().contains("checksum"));
}

#[test]
fn npz_whose_member_is_shorter_than_its_shape() {
    let error = refused("x.npz", &stored(&[("a.npy", &float32("(3,)", &[0; 4]))]));
    assert_eq!(error.fact(), "x.npz: member \"a\": float32 of shape [3] takes 12 bytes, and there are 4");
}

#[test]
fn npz_that_is_encrypted() {
    let mut bytes = stored(&[("a.npy", &one())]);
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [6, central + 8] {
        bytes[at] |= 1;
    }
    assert!(refused("x.npz", &bytes).fact().contains("encrypted"));
}

#[test]
fn npz_with_another_compression() {
    let mut bytes = stored(&[("a.npy", &one())]);
    let central = find_last(&bytes, b"PK\x01\x02");
    for at in [8, central + 10] {
        bytes[at] = 14;
    }
    assert!(refused("x.npz", &bytes).fact().contains("method"));
}

#[test]
fn npz_with_64_bit_records() {
    let options =
        SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored).large_file(true);
    let bytes = zip_of(&[("a.npy", &one())], options);
    let opened = open_bytes("x.npz", &bytes).unwrap();
    assert_eq!(read(&opened, &opened.entries()[0], 1).unwrap(), [1; 8]);
}

#[test]
fn npz_with_a_64_bit_end_that_lies() {
    // A directory of one entry, with a 64-bit end that claims a trillion of them.
    let bytes = stored(&[("a.npy", &one())]);
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
        assert_eq!(refused("x.npz", &build(count, size, start)).kind(), ErrorKind::BadFile);
    }
}

// safetensors

fn safe(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn tensor(name: &str, dtype: &str, shape: &str, start: u64, end: u64) -> String {
    format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}")
}

fn unsafe_fact(tensors: &[String], data: &[u8]) -> String {
    let error = refused("x.safetensors", &safe(&format!("{{{}}}", tensors.join(",")), data));
    assert_eq!(error.kind(), ErrorKind::BadFile);
    error.fact().to_owned()
}

#[test]
fn safetensors_that_are_right() {
    let header = format!("{{{},{}}}   ", tensor("b", "U8", "[2]", 4, 6), tensor("a", "F32", "[]", 0, 4));
    let opened = open_bytes("x.safetensors", &safe(&header, &[1, 2, 3, 4, 5, 6])).unwrap();
    assert_eq!(opened.entries()[0].name(), "b");
    assert_eq!(read(&opened, opened.entry("b").unwrap(), 1).unwrap(), [5, 6]);
    assert_eq!(open_bytes("x.safetensors", &safe("{}", &[])).unwrap().entries().len(), 0);
}

#[test]
fn safetensors_with_a_header_past_the_end() {
    for length in [3u64, 100, 100_000_000] {
        let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
        assert!(refused("x.safetensors", &bytes).fact().contains("follow"), "{length}");
    }
}

#[test]
fn safetensors_with_a_header_of_more_than_100_megabytes() {
    for length in [100_000_001u64, u64::MAX, 1 << 63] {
        let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
        assert!(refused("x.safetensors", &bytes).fact().contains("allows 100000000"), "{length}");
    }
}

#[test]
fn safetensors_shorter_than_their_length() {
    for length in 0..8 {
        assert_eq!(refused("x.safetensors", &[0; 8][..length]).kind(), ErrorKind::BadFile);
    }
}

#[test]
fn safetensors_whose_header_is_no_object() {
    for header in ["[]", " {}", "\"a\"", "", "{", "{}x", "{\"a\":1}", "{\"a\":{}}", "\u{feff}{}", "{}\0"] {
        assert_eq!(refused("x.safetensors", &safe(header, &[])).kind(), ErrorKind::BadFile, "{header}");
    }
    let bytes = [&10u64.to_le_bytes()[..], b"{\"\xff\xff\": {}}"].concat();
    assert_eq!(refused("x.safetensors", &bytes).kind(), ErrorKind::BadFile);
}

#[test]
fn safetensors_nested_deeply() {
    let header = format!("{{\"a\":{}", "{\"a\":".repeat(100_000));
    assert!(refused("x.safetensors", &safe(&header, &[])).fact().contains("header"));
    let header = format!("{{\"a\":{{\"x\":{}", "[".repeat(1_000_000));
    // What nobody asked for is passed over, without recursion.
    assert!(refused("x.safetensors", &safe(&header, &[])).fact().contains("header"));
}

#[test]
fn safetensors_with_a_name_twice() {
    let both = [tensor("a", "U8", "[1]", 0, 1), tensor("a", "U8", "[1]", 1, 2)];
    assert!(unsafe_fact(&both, &[0; 2]).contains("\"a\" is in it twice"));
    let escaped = [tensor("a", "U8", "[1]", 0, 1), tensor("\\u0061", "U8", "[1]", 1, 2)];
    assert!(unsafe_fact(&escaped, &[0; 2]).contains("twice"));
    let metadata = "\"__metadata__\":{\"a\":\"b\"}".to_owned();
    assert!(unsafe_fact(&[metadata.clone(), metadata], &[]).contains("twice"));
    assert!(unsafe_fact(&["\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}".to_owned()], &[]).contains("twice"));
}

#[test]
fn safetensors_with_metadata_that_is_no_text() {
    unsafe_fact(&["\"__metadata__\":{\"a\":1}".to_owned()], &[]);
    unsafe_fact(&["\"__metadata__\":[]".to_owned()], &[]);
}

#[test]
fn safetensors_that_overlap() {
    let both = [tensor("a", "U8", "[4]", 0, 4), tensor("b", "U8", "[4]", 2, 6)];
    assert!(unsafe_fact(&both, &[0; 6]).contains("within the one before"));
    let same = [tensor("a", "U8", "[4]", 0, 4), tensor("b", "U8", "[4]", 0, 4)];
    assert!(unsafe_fact(&same, &[0; 4]).contains("within the one before"));
}

#[test]
fn safetensors_with_a_hole() {
    assert!(unsafe_fact(&[tensor("a", "U8", "[4]", 1, 5)], &[0; 5]).contains("hole of 1"));
    let both = [tensor("a", "U8", "[1]", 0, 1), tensor("b", "U8", "[1]", 3, 4)];
    assert!(unsafe_fact(&both, &[0; 4]).contains("hole of 2"));
}

#[test]
fn safetensors_that_end_before_they_begin() {
    assert!(unsafe_fact(&[tensor("a", "U8", "[4]", 4, 0)], &[0; 4]).contains("before it begins"));
}

#[test]
fn safetensors_with_trailing_bytes() {
    assert!(unsafe_fact(&[tensor("a", "U8", "[4]", 0, 4)], &[0; 5]).contains("1 bytes that are none"));
    assert!(unsafe_fact(&[], &[0; 5]).contains("5 bytes that are none"));
}

#[test]
fn safetensors_that_are_cut_off() {
    assert!(unsafe_fact(&[tensor("a", "U8", "[4]", 0, 4)], &[0; 3]).contains("take 4 bytes, and it has 3"));
    unsafe_fact(&[tensor("a", "U8", "[4]", 0, u64::MAX)], &[0; 4]);
}

#[test]
fn safetensors_whose_shape_and_size_differ() {
    let fact = unsafe_fact(&[tensor("a", "F32", "[2]", 0, 4)], &[0; 4]);
    assert_eq!(fact, "x.safetensors: tensor \"a\": float32 of shape [2] takes 8 bytes, and there are 4");
}

#[test]
fn safetensors_whose_shape_overflows() {
    let huge = u64::MAX;
    assert!(unsafe_fact(&[tensor("a", "F32", &format!("[{huge}]"), 0, 4)], &[0; 4]).contains("overflows"));
    let shape = "[4294967296,4294967296,4294967296]";
    assert!(unsafe_fact(&[tensor("a", "F32", shape, 0, 4)], &[0; 4]).contains("overflows"));
    unsafe_fact(&[tensor("a", "F32", "[-1]", 0, 4)], &[0; 4]);
    unsafe_fact(&[tensor("a", "F32", "[1.0]", 0, 4)], &[0; 4]);
    let shape = format!("[{}1]", "1,".repeat(64));
    assert!(unsafe_fact(&[tensor("a", "U8", &shape, 0, 1)], &[0; 1]).contains("65 dimensions"));
}

#[test]
fn safetensors_of_a_type_that_nobody_knows() {
    assert!(unsafe_fact(&[tensor("a", "Q7", "[1]", 0, 1)], &[0]).contains("unknown variant"));
}

#[test]
fn safetensors_of_packed_types_are_skipped() {
    let header = format!("{{{},{}}}", tensor("a", "F4", "[4]", 0, 2), tensor("b", "U8", "[1]", 2, 3));
    let opened = open_bytes("x.safetensors", &safe(&header, &[1, 2, 3])).unwrap();
    assert_eq!((opened.entries().len(), opened.skipped()[0].0.as_str()), (1, "a"));
    let error = opened.entry("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
}

#[test]
fn safetensors_of_packed_types_with_a_wrong_size() {
    for (shape, end) in [("[4]", 3), ("[3]", 2), ("[3]", 1), ("[9223372036854775807,3]", 2)] {
        let fact = unsafe_fact(&[tensor("a", "F4", shape, 0, end)], &vec![0; end as usize]);
        assert!(fact.contains("does not take"), "{fact}");
    }
}

#[test]
fn safetensors_that_claim_to_carry_what_they_cannot() {
    let carried =
        |name: &str| format!("\"__metadata__\":{{\"tensorferry.dtypes\":\"{{\\\"a\\\":\\\"{name}\\\"}}\"}}");
    for (claim, dtype, shape) in [
        ("complex128", "F64", "[2,1]"),
        ("complex128", "F32", "[2,2]"),
        ("complex128", "F64", "[]"),
        ("int4", "I8", "[4]"),
        ("float32", "U8", "[4]"),
        ("nonsense", "U8", "[4]"),
    ] {
        let item = if dtype == "F64" {
            8
        } else if dtype == "F32" {
            4
        } else {
            1
        };
        let count: u64 = serde_json::from_str::<Vec<u64>>(shape).unwrap().iter().product();
        let header = format!("{{{},{}}}", carried(claim), tensor("a", dtype, shape, 0, item * count));
        let bytes = safe(&header, &vec![0; (item * count) as usize]);
        assert!(refused("x.safetensors", &bytes).fact().contains("tensorferry.dtypes"), "{claim}");
        let options = Options { as_stored: true, ..Options::default() };
        assert!(open_bytes_with("x.safetensors", &bytes, &options).is_ok());
    }
    let header = "{\"__metadata__\":{\"tensorferry.dtypes\":\"[]\"}}";
    assert!(refused("x.safetensors", &safe(header, &[])).fact().contains("tensorferry.dtypes"));
}

// the index

fn shard(folder: &Folder, name: &str, tensor: &str) {
    let mut writer = Writer::create(
        folder.path(name),
        Format::Safetensors,
        &[Spec::new(tensor, DType::UInt8, &[3])],
        WriteOptions { durable: false, ..WriteOptions::default() },
    )
    .unwrap();
    writer.put(0, tensor.repeat(3).as_bytes()).unwrap();
    writer.finish().unwrap();
}

fn index(folder: &Folder, text: &str) -> tensorferry_core::Result<tensorferry_files::Opened> {
    open(folder.put("model.safetensors.index.json", text.as_bytes()), &Options::default())
}

#[test]
fn index_that_is_right() {
    let folder = Folder::new();
    shard(&folder, "1.safetensors", "a");
    shard(&folder, "2.safetensors", "b");
    let opened = index(&folder, r#"{"weight_map": {"b": "2.safetensors", "a": "1.safetensors"}}"#).unwrap();
    let names: Vec<_> = opened.entries().iter().map(|entry| entry.name()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(common::read_every_way(&opened, opened.entry("b").unwrap()), b"bbb");
}

#[test]
fn index_with_names_that_are_paths() {
    let folder = Folder::new();
    shard(&folder, "1.safetensors", "a");
    std::fs::create_dir(folder.path("sub")).unwrap();
    for name in [
        "../x.safetensors",
        "/etc/passwd",
        "sub/../1.safetensors",
        "./1.safetensors",
        "..",
        ".",
        "",
        "a\\\\b",
        "a\\u0000b",
    ] {
        let error = index(&folder, &format!(r#"{{"weight_map": {{"a": "{name}"}}}}"#)).unwrap_err();
        assert!(error.fact().contains("no plain file name"), "{name}: {error}");
    }
}

#[test]
fn index_with_a_link_out_of_its_folder() {
    let (folder, other) = (Folder::new(), Folder::new());
    shard(&other, "1.safetensors", "a");
    symlink(other.path("1.safetensors"), folder.path("1.safetensors")).unwrap();
    let text = r#"{"weight_map": {"a": "1.safetensors"}}"#;
    assert!(index(&folder, text).unwrap_err().fact().contains("link out of its folder"));
    // A cache of a model hub: the index is a link into the same folder.
    other.put("index", text.as_bytes());
    std::fs::remove_file(folder.path("model.safetensors.index.json")).unwrap();
    symlink(other.path("index"), folder.path("model.safetensors.index.json")).unwrap();
    let opened = open(folder.path("model.safetensors.index.json"), &Options::default()).unwrap();
    assert_eq!(common::read_every_way(&opened, &opened.entries()[0]), b"aaa");
}

#[test]
fn index_with_a_link_within_its_folder() {
    let folder = Folder::new();
    shard(&folder, "real.safetensors", "a");
    symlink("real.safetensors", folder.path("1.safetensors")).unwrap();
    assert!(index(&folder, r#"{"weight_map": {"a": "1.safetensors"}}"#).is_ok());
}

#[test]
fn index_of_files_that_are_not_there() {
    let error = index(&Folder::new(), r#"{"weight_map": {"a": "1.safetensors"}}"#).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::FileFailed, Some(libc::ENOENT)));
}

#[test]
fn index_with_a_tensor_that_its_file_lacks() {
    let folder = Folder::new();
    shard(&folder, "1.safetensors", "a");
    let error =
        index(&folder, r#"{"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}}"#).unwrap_err();
    assert!(error.fact().contains("which lacks it"));
}

#[test]
fn index_that_leaves_a_tensor_out() {
    let folder = Folder::new();
    shard(&folder, "1.safetensors", "a");
    shard(&folder, "2.safetensors", "a");
    let opened = index(&folder, r#"{"weight_map": {"a": "2.safetensors"}}"#).unwrap();
    assert_eq!((opened.entries().len(), opened.skipped().len()), (1, 0));
    shard(&folder, "1.safetensors", "b");
    shard(&folder, "3.safetensors", "a");
    let text = r#"{"weight_map": {"b": "1.safetensors", "a": "3.safetensors"}}"#;
    assert_eq!(index(&folder, text).unwrap().entries().len(), 2);
    let mut writer = Writer::create(
        folder.path("1.safetensors"),
        Format::Safetensors,
        &[Spec::new("b", DType::UInt8, &[0]), Spec::new("a", DType::UInt8, &[0])],
        WriteOptions::default(),
    )
    .unwrap();
    writer.put(0, &[]).unwrap();
    writer.put(1, &[]).unwrap();
    writer.finish().unwrap();
    let opened = index(&folder, text).unwrap();
    assert_eq!((opened.entries().len(), opened.skipped()[0].0.as_str()), (2, "a"));
}

#[test]
fn index_that_is_broken() {
    let folder = Folder::new();
    for text in [
        "{}",
        r#"{"weight_map": []}"#,
        r#"{"weight_map": {"a": 1}}"#,
        r#"{"weight_map": {"a": "1", "a": "2"}}"#,
        r#"{"weight_map": {}, "weight_map": {}}"#,
        r#"{"weight_map": {}"#,
        r#"{"weight_map": {}} x"#,
    ] {
        assert_eq!(index(&folder, text).unwrap_err().kind(), ErrorKind::BadFile, "{text}");
    }
    let deep = format!(r#"{{"x": {}"#, "[".repeat(1_000_000));
    assert_eq!(index(&folder, &deep).unwrap_err().kind(), ErrorKind::BadFile);
    let deep = format!(r#"{{"metadata": {{"a": {}"#, "{\"a\":".repeat(1_000_000));
    assert_eq!(index(&folder, &deep).unwrap_err().kind(), ErrorKind::BadFile);
    assert!(index(&folder, r#"{"weight_map": {}, "other": [1, {"a": null}]}"#).is_ok());
}

#[test]
fn index_of_itself() {
    let error =
        index(&Folder::new(), r#"{"weight_map": {"a": "model.safetensors.index.json"}}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadFile);
}

// TensorProto

fn proto(bytes: &[u8]) -> tensorferry_core::Error {
    refused("x.pb", bytes)
}

/// ONNX: dims 2, float, and then.
fn onnx(rest: &[u8]) -> Vec<u8> {
    [&[0x08, 2, 0x10, 1][..], rest].concat()
}

/// TensorFlow: float of shape 2, and then.
fn tensorflow(rest: &[u8]) -> Vec<u8> {
    [&[0x08, 1, 0x12, 4, 0x12, 2, 0x08, 2][..], rest].concat()
}

const RAW: [u8; 10] = [0x4a, 8, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40];

#[test]
fn protos_that_are_right() {
    let opened = open_bytes("x.pb", &onnx(&RAW)).unwrap();
    assert_eq!((opened.dialect(), opened.entries()[0].shape()), (Some(Dialect::Onnx), &[2][..]));
    let mut content = RAW;
    content[0] = 0x22;
    let opened = open_bytes("x.pb", &tensorflow(&content)).unwrap();
    assert_eq!((opened.dialect(), opened.entries()[0].bytes()), (Some(Dialect::TensorFlow), 8));
    // Unpacked, and in two pieces.
    let opened = open_bytes("x.pb", &onnx(&[0x25, 0, 0, 0x80, 0x3f, 0x22, 4, 0, 0, 0, 0x40])).unwrap();
    assert_eq!(common::read_every_way(&opened, &opened.entries()[0]), RAW[2..]);
}

#[test]
fn protos_that_tell_nothing() {
    assert!(proto(&[]).hint().unwrap().contains("dialect="));
    assert!(proto(&[0x08, 1]).hint().unwrap().contains("dialect="));
}

#[test]
fn protos_cut_off_anywhere() {
    let whole = onnx(&RAW);
    for length in 1..whole.len() {
        assert!(open_bytes("x.pb", &whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn protos_with_lengths_past_the_end() {
    assert!(proto(&onnx(&[0x4a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1])).fact().contains("are left"));
    assert!(
        proto(&onnx(&[0x4a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]))
            .fact()
            .contains("are left")
    );
}

#[test]
fn protos_with_numbers_of_more_than_64_bits() {
    assert!(
        proto(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).fact().contains("64 bits")
    );
    assert!(proto(&[0x80; 20]).fact().contains("64 bits"));
}

#[test]
fn protos_with_groups_and_fields_of_number_zero() {
    assert!(proto(&onnx(&[0x0b])).fact().contains("wire type 3"));
    assert!(proto(&onnx(&[0x00, 1])).fact().contains("number 0"));
}

#[test]
fn protos_with_a_field_twice() {
    assert!(proto(&onnx(&[0x10, 1])).fact().contains("twice"));
    assert!(proto(&onnx(&[RAW, RAW].concat())).fact().contains("twice"));
    assert!(proto(&tensorflow(&[0x12, 0])).fact().contains("twice"));
}

#[test]
fn protos_with_values_in_two_fields() {
    assert!(proto(&onnx(&[&RAW[..], &[0x25, 0, 0, 0, 0]].concat())).fact().contains("two fields"));
    assert!(proto(&onnx(&[0x25, 0, 0, 0, 0, 0x28, 1])).fact().contains("two fields"));
}

#[test]
fn protos_with_values_in_the_field_of_another_type() {
    assert!(proto(&onnx(&[0x28, 1, 0x28, 1])).fact().contains("in field 5"));
    assert!(proto(&onnx(&[0x20, 1, 0x20, 1])).fact().contains("not what belongs"));
}

#[test]
fn protos_with_too_few_or_too_many_values() {
    assert!(proto(&onnx(&[0x25, 0, 0, 0, 0])).fact().contains("takes 2 values, and there are 1"));
    assert!(proto(&onnx(&[])).fact().contains("there are 0"));
    assert!(proto(&onnx(&[0x22, 3, 0, 0, 0])).fact().contains("not what belongs"));
    assert!(
        proto(&tensorflow(&[0x2a, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])).fact().contains("there are 3")
    );
    assert!(proto(&onnx(&RAW[..9])).fact().contains("are left"));
    assert!(proto(&onnx(&[0x4a, 4, 0, 0, 0, 0])).fact().contains("takes 8 bytes, and there are 4"));
}

#[test]
fn protos_with_dimensions_that_are_negative_or_huge() {
    let minus = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0x10, 1];
    assert!(proto(&minus).fact().contains("negative: -1"));
    let huge = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert!(proto(&[&huge[..], &huge, &[0x10, 1]].concat()).fact().contains("overflows"));
    let many = [&[0x08, 1].repeat(65)[..], &[0x10, 1]].concat();
    assert!(proto(&many).fact().contains("65 dimensions"));
}

#[test]
fn protos_that_repeat_a_value_beyond_measure() {
    // A trillion floats from one.
    let dims = [0x08, 1, 0x12, 9, 0x12, 7, 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    let error = proto(&[&dims[..], &[0x2a, 4, 0, 0, 0x80, 0x3f]].concat());
    assert!(error.fact().contains("declare to become 4398046511104"), "{error}");
}

#[test]
fn protos_with_values_that_do_not_fit() {
    // int8 of shape 1: 128; bool: 2; float16 bits: 65536.
    for (dtype, value) in [(3, [0x80, 1].as_slice()), (9, &[2]), (10, &[0x80, 0x80, 4]), (2, &[0x80, 2])] {
        let bytes = [&[0x08, 1, 0x10, dtype, 0x28][..], value].concat();
        let opened = open_bytes("x.pb", &bytes).unwrap();
        assert!(read(&opened, &opened.entries()[0], 1).unwrap_err().fact().contains("none of"), "{dtype}");
    }
}

#[test]
fn protos_of_unknown_rank() {
    assert!(proto(&[0x08, 1, 0x12, 2, 0x18, 1]).fact().contains("not known"));
}

#[test]
fn protos_whose_names_are_no_text() {
    assert!(proto(&onnx(&[&RAW[..], &[0x42, 1, 0xff]].concat())).fact().contains("UTF-8"));
}

// raw bytes

#[test]
fn raw_bytes_must_be_as_many_as_the_shape_takes() {
    let options = |shape: Option<&[i64]>| Options {
        dtype: Some(DType::Int16),
        shape: shape.map(<[i64]>::to_vec),
        ..Options::default()
    };
    assert!(open_bytes_with("x.bin", &[0; 4], &options(Some(&[2]))).is_ok());
    assert!(open_bytes_with("x.bin", &[0; 5], &options(Some(&[2]))).is_err());
    assert!(open_bytes_with("x.bin", &[0; 3], &options(Some(&[2]))).is_err());
    assert!(open_bytes_with("x.bin", &[0; 4], &options(Some(&[-2, -1]))).is_err());
    assert_eq!(open_bytes_with("x.bin", &[0; 6], &options(None)).unwrap().entries()[0].shape(), [3]);
    assert!(open_bytes_with("x.bin", &[0; 5], &options(None)).is_err());
    assert!(refused("x.bin", &[0; 4]).hint().unwrap().contains("dtype="));
}

// files of any format

#[test]
fn files_that_are_none() {
    let folder = Folder::new();
    let error = open(&folder.0, &Options::default()).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::FileFailed, Some(libc::EISDIR)));
    let error = open(folder.path("missing.npy"), &Options::default()).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
    let pipe = std::ffi::CString::new(folder.path("pipe.npy").to_str().unwrap()).unwrap();
    // SAFETY: a string that ends with zero.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let error = open(folder.path("pipe.npy"), &Options::default()).unwrap_err();
    assert!(error.fact().contains("no regular file"));
    assert!(open("/dev/zero", &Options::default()).is_err());
}

#[test]
fn files_that_become_shorter() {
    let folder = Folder::new();
    let path = folder.put("x.npy", &float32("(1000,)", &[0; 4000]));
    let opened = open(&path, &Options::default()).unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(100).unwrap();
    let entry = &opened.entries()[0];
    assert!(read(&opened, entry, 1).unwrap_err().fact().contains("shorter"));
    assert!(opened.map(entry, MapKind::ReadOnly).unwrap_err().fact().contains("shorter"));
}

#[test]
fn entries_of_another_file_are_refused_or_harmless() {
    let large = open_bytes("x.npy", &float32("(1000,)", &[0; 4000])).unwrap();
    let small = open_bytes("x.npy", &float32("(1,)", &[0; 4])).unwrap();
    let entry = &large.entries()[0];
    assert!(small.map(entry, MapKind::ReadOnly).is_err() && small.map(entry, MapKind::CopyOnWrite).is_err());
    assert!(read(&small, entry, 2).is_err());
}

#[test]
fn copies_on_write_do_not_reach_the_file_nor_each_other() {
    let folder = Folder::new();
    let path = folder.put("x.npy", &float32("(1000,)", &[7; 4000]));
    let opened = open(&path, &Options::default()).unwrap();
    let entry = &opened.entries()[0];
    let (one, two) =
        (opened.map(entry, MapKind::CopyOnWrite).unwrap(), opened.map(entry, MapKind::CopyOnWrite).unwrap());
    drop(opened.stream(entry));
    // SAFETY: both are mapped, may be written, and are used by this thread alone.
    unsafe {
        one.data().write_bytes(9, one.length());
        assert_eq!(two.data().read(), 7);
    }
    assert_eq!(read(&opened, entry, 1).unwrap(), [7; 4000]);
    drop(opened);
    std::fs::remove_file(&path).unwrap();
    // SAFETY: as above; the map outlives the file.
    assert_eq!(unsafe { two.data().add(3999).read() }, 7);
}

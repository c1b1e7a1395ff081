//! safetensors and indices that lie, one test for each lie.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Folder, open_bytes, open_bytes_with, read, refused};
use std::os::unix::fs::symlink;
use tensorferry_core::{DType, ErrorKind};
use tensorferry_files::{FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, open};

// safetensors

fn safe(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn tensor(name: &str, dtype: &str, shape: &str, start: u64, end: u64) -> String {
    format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}")
}

fn unsafe_fact(tensors: &[String], data: &[u8]) -> String {
    let error = refused("x.safetensors", &safe(&format!("{{{}}}", tensors.join(",")), data));
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
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
        assert_eq!(refused("x.safetensors", &[0; 8][..length]).kind(), ErrorKind::InvalidFile);
    }
}

#[test]
fn safetensors_whose_header_is_no_object() {
    for header in ["[]", " {}", "\"a\"", "", "{", "{}x", "{\"a\":1}", "{\"a\":{}}", "\u{feff}{}", "{}\0"] {
        assert_eq!(refused("x.safetensors", &safe(header, &[])).kind(), ErrorKind::InvalidFile, "{header}");
    }
    let bytes = [&10u64.to_le_bytes()[..], b"{\"\xff\xff\": {}}"].concat();
    assert_eq!(refused("x.safetensors", &bytes).kind(), ErrorKind::InvalidFile);
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
        let options = OpenOptions { as_stored: true, ..OpenOptions::default() };
        assert!(open_bytes_with("x.safetensors", &bytes, &options).is_ok());
    }
    let header = "{\"__metadata__\":{\"tensorferry.dtypes\":\"[]\"}}";
    assert!(refused("x.safetensors", &safe(header, &[])).fact().contains("tensorferry.dtypes"));
}

// the index

fn shard(folder: &Folder, name: &str, tensor: &str) {
    let mut writer = FileWriter::create(
        folder.path(name),
        FileFormat::Safetensors,
        &[TensorSpec::new(tensor, DType::UInt8, &[3])],
        WriteOptions { durable: false, ..WriteOptions::default() },
    )
    .unwrap();
    writer.put(0, tensor.repeat(3).as_bytes()).unwrap();
    writer.finish().unwrap();
}

fn index(folder: &Folder, text: &str) -> tensorferry_core::Result<tensorferry_files::TensorFile> {
    open(folder.put("model.safetensors.index.json", text.as_bytes()), &OpenOptions::default())
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
    let opened = open(folder.path("model.safetensors.index.json"), &OpenOptions::default()).unwrap();
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
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::ENOENT)));
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
    let mut writer = FileWriter::create(
        folder.path("1.safetensors"),
        FileFormat::Safetensors,
        &[TensorSpec::new("b", DType::UInt8, &[0]), TensorSpec::new("a", DType::UInt8, &[0])],
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
        assert_eq!(index(&folder, text).unwrap_err().kind(), ErrorKind::InvalidFile, "{text}");
    }
    let deep = format!(r#"{{"x": {}"#, "[".repeat(1_000_000));
    assert_eq!(index(&folder, &deep).unwrap_err().kind(), ErrorKind::InvalidFile);
    let deep = format!(r#"{{"metadata": {{"a": {}"#, "{\"a\":".repeat(1_000_000));
    assert_eq!(index(&folder, &deep).unwrap_err().kind(), ErrorKind::InvalidFile);
    assert!(index(&folder, r#"{"weight_map": {}, "other": [1, {"a": null}]}"#).is_ok());
}

#[test]
fn index_of_itself() {
    let error =
        index(&Folder::new(), r#"{"weight_map": {"a": "model.safetensors.index.json"}}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
}

//! Hostile safetensors files and indices, one test for each contradiction.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{
    Folder, assert_invalid, assert_numbers, hint_of, open_bytes, open_bytes_with, open_error, read,
};
use std::os::unix::fs::symlink;
use tensorferry_core::{DType, ErrorKind};
use tensorferry_files::{FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, hints, open};

// safetensors

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn tensor(name: &str, dtype: &str, shape: &str, start: u64, end: u64) -> String {
    format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}")
}

/// Checks that a file is rejected, with these numbers in the message.
fn assert_rejected(tensors: &[String], data: &[u8], numbers: &[u64]) {
    let error = open_error("x.safetensors", &safetensors(&format!("{{{}}}", tensors.join(",")), data));
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
    assert_numbers(&error, numbers);
}

#[test]
fn valid_safetensors_are_read() {
    let header = format!("{{{},{}}}   ", tensor("b", "U8", "[2]", 4, 6), tensor("a", "F32", "[]", 0, 4));
    let opened = open_bytes("x.safetensors", &safetensors(&header, &[1, 2, 3, 4, 5, 6])).unwrap();
    assert_eq!(opened.entries()[0].name(), "b");
    assert_eq!(read(&opened, opened.entry("b").unwrap(), 1).unwrap(), [5, 6]);
    assert_eq!(open_bytes("x.safetensors", &safetensors("{}", &[])).unwrap().entries().len(), 0);
}

#[test]
fn safetensors_with_a_header_past_the_end() {
    for length in [3u64, 100, 100_000_000] {
        let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
        let error = open_error("x.safetensors", &bytes);
        assert_invalid(&error, hints::FETCH_TRUNCATED_FILE, &[length, 2]);
    }
}

#[test]
fn safetensors_with_a_header_of_more_than_100_megabytes() {
    for length in [100_000_001u64, u64::MAX, 1 << 63] {
        let bytes = [&length.to_le_bytes()[..], b"{}"].concat();
        let error = open_error("x.safetensors", &bytes);
        assert_invalid(&error, hints::RECREATE_FILE, &[length, 100_000_000]);
    }
}

#[test]
fn safetensors_shorter_than_their_length() {
    for length in 0..8 {
        assert_eq!(open_error("x.safetensors", &[0; 8][..length]).kind(), ErrorKind::InvalidFile);
    }
}

#[test]
fn safetensors_whose_header_is_not_an_object() {
    for header in ["[]", " {}", "\"a\"", "", "{", "{}x", "{\"a\":1}", "{\"a\":{}}", "\u{feff}{}", "{}\0"] {
        assert_eq!(
            open_error("x.safetensors", &safetensors(header, &[])).kind(),
            ErrorKind::InvalidFile,
            "{header}"
        );
    }
    let bytes = [&10u64.to_le_bytes()[..], b"{\"\xff\xff\": {}}"].concat();
    assert_eq!(open_error("x.safetensors", &bytes).kind(), ErrorKind::InvalidFile);
}

#[test]
fn safetensors_nested_deeply() {
    let header = format!("{{\"a\":{}", "{\"a\":".repeat(100_000));
    assert_invalid(&open_error("x.safetensors", &safetensors(&header, &[])), hints::RECREATE_FILE, &[]);
    let header = format!("{{\"a\":{{\"x\":{}", "[".repeat(1_000_000));
    // Unknown members are skipped without recursion.
    assert_invalid(&open_error("x.safetensors", &safetensors(&header, &[])), hints::RECREATE_FILE, &[]);
}

#[test]
fn safetensors_with_a_name_twice() {
    let both = [tensor("a", "U8", "[1]", 0, 1), tensor("a", "U8", "[1]", 1, 2)];
    assert_rejected(&both, &[0; 2], &[]);
    let escaped = [tensor("a", "U8", "[1]", 0, 1), tensor("\\u0061", "U8", "[1]", 1, 2)];
    assert_rejected(&escaped, &[0; 2], &[]);
    let metadata = "\"__metadata__\":{\"a\":\"b\"}".to_owned();
    assert_rejected(&[metadata.clone(), metadata], &[], &[]);
    assert_rejected(&["\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}".to_owned()], &[], &[]);
}

#[test]
fn safetensors_with_metadata_that_is_not_text() {
    assert_rejected(&["\"__metadata__\":{\"a\":1}".to_owned()], &[], &[]);
    assert_rejected(&["\"__metadata__\":[]".to_owned()], &[], &[]);
}

#[test]
fn safetensors_that_overlap() {
    let both = [tensor("a", "U8", "[4]", 0, 4), tensor("b", "U8", "[4]", 2, 6)];
    assert_rejected(&both, &[0; 6], &[2, 4]);
    let same = [tensor("a", "U8", "[4]", 0, 4), tensor("b", "U8", "[4]", 0, 4)];
    assert_rejected(&same, &[0; 4], &[0, 4]);
}

#[test]
fn safetensors_with_a_gap() {
    assert_rejected(&[tensor("a", "U8", "[4]", 1, 5)], &[0; 5], &[1]);
    let both = [tensor("a", "U8", "[1]", 0, 1), tensor("b", "U8", "[1]", 3, 4)];
    assert_rejected(&both, &[0; 4], &[2]);
}

#[test]
fn safetensors_that_end_before_they_begin() {
    assert_rejected(&[tensor("a", "U8", "[4]", 4, 0)], &[0; 4], &[4, 0]);
}

#[test]
fn safetensors_with_trailing_bytes() {
    assert_rejected(&[tensor("a", "U8", "[4]", 0, 4)], &[0; 5], &[1]);
    assert_rejected(&[], &[0; 5], &[5]);
}

#[test]
fn truncated_safetensors() {
    assert_rejected(&[tensor("a", "U8", "[4]", 0, 4)], &[0; 3], &[4, 3]);
    assert_rejected(&[tensor("a", "U8", "[4]", 0, u64::MAX)], &[0; 4], &[u64::MAX, 4]);
}

#[test]
fn safetensors_whose_shape_and_size_differ() {
    assert_rejected(&[tensor("a", "F32", "[2]", 0, 4)], &[0; 4], &[2, 8, 4]);
}

#[test]
fn safetensors_whose_shape_overflows() {
    let huge = u64::MAX;
    assert_rejected(&[tensor("a", "F32", &format!("[{huge}]"), 0, 4)], &[0; 4], &[huge]);
    let shape = "[4294967296,4294967296,4294967296]";
    assert_rejected(&[tensor("a", "F32", shape, 0, 4)], &[0; 4], &[]);
    assert_rejected(&[tensor("a", "F32", "[-1]", 0, 4)], &[0; 4], &[]);
    assert_rejected(&[tensor("a", "F32", "[1.0]", 0, 4)], &[0; 4], &[]);
    let shape = format!("[{}1]", "1,".repeat(64));
    assert_rejected(&[tensor("a", "U8", &shape, 0, 1)], &[0; 1], &[65, 64]);
}

#[test]
fn safetensors_of_an_unknown_type() {
    assert_rejected(&[tensor("a", "Q7", "[1]", 0, 1)], &[0], &[]);
}

#[test]
fn safetensors_of_packed_types_are_skipped() {
    let header = format!("{{{},{}}}", tensor("a", "F4", "[4]", 0, 2), tensor("b", "U8", "[1]", 2, 3));
    let opened = open_bytes("x.safetensors", &safetensors(&header, &[1, 2, 3])).unwrap();
    assert_eq!((opened.entries().len(), opened.skipped()[0].0.as_str()), (1, "a"));
    let error = opened.entry("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
}

#[test]
fn safetensors_of_packed_types_with_a_wrong_size() {
    for (shape, end) in [("[4]", 3), ("[3]", 2), ("[3]", 1), ("[9223372036854775807,3]", 2)] {
        assert_rejected(&[tensor("a", "F4", shape, 0, end)], &vec![0; end as usize], &[end]);
    }
}

#[test]
fn safetensors_that_claim_a_type_they_cannot_carry() {
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
        let bytes = safetensors(&header, &vec![0; (item * count) as usize]);
        assert_invalid(&open_error("x.safetensors", &bytes), hints::OPEN_AS_STORED, &[]);
        let options = OpenOptions { as_stored: true, ..OpenOptions::default() };
        assert!(open_bytes_with("x.safetensors", &bytes, &options).is_ok());
    }
    let header = "{\"__metadata__\":{\"tensorferry.dtypes\":\"[]\"}}";
    assert_invalid(&open_error("x.safetensors", &safetensors(header, &[])), hints::RECREATE_FILE, &[]);
}

// the index

fn write_shard(folder: &Folder, name: &str, tensor: &str) {
    let mut writer = FileWriter::create(
        folder.path(name),
        FileFormat::Safetensors,
        &[TensorSpec::new(tensor, DType::UInt8, &[3])],
        WriteOptions { durable: false, ..WriteOptions::default() },
    )
    .unwrap();
    writer.write_tensor(0, tensor.repeat(3).as_bytes()).unwrap();
    writer.finish().unwrap();
}

fn open_index(folder: &Folder, text: &str) -> tensorferry_core::Result<tensorferry_files::TensorFile> {
    open(folder.put("model.safetensors.index.json", text.as_bytes()), &OpenOptions::default())
}

#[test]
fn valid_indices_are_read() {
    let folder = Folder::new();
    write_shard(&folder, "1.safetensors", "a");
    write_shard(&folder, "2.safetensors", "b");
    let opened =
        open_index(&folder, r#"{"weight_map": {"b": "2.safetensors", "a": "1.safetensors"}}"#).unwrap();
    let names: Vec<_> = opened.entries().iter().map(|entry| entry.name()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(common::read_by_all_methods(&opened, opened.entry("b").unwrap()), b"bbb");
}

#[test]
fn index_with_names_that_are_paths() {
    let folder = Folder::new();
    write_shard(&folder, "1.safetensors", "a");
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
        let error = open_index(&folder, &format!(r#"{{"weight_map": {{"a": "{name}"}}}}"#)).unwrap_err();
        assert_invalid(&error, hints::RECREATE_FILE, &[]);
    }
}

#[test]
fn index_with_a_link_out_of_its_folder() {
    let (folder, other) = (Folder::new(), Folder::new());
    write_shard(&other, "1.safetensors", "a");
    symlink(other.path("1.safetensors"), folder.path("1.safetensors")).unwrap();
    let text = r#"{"weight_map": {"a": "1.safetensors"}}"#;
    assert_invalid(&open_index(&folder, text).unwrap_err(), hints::PUT_SHARD_BESIDE_INDEX, &[]);
    // As in the cache of a model hub, the index is a link into the same folder.
    other.put("index", text.as_bytes());
    std::fs::remove_file(folder.path("model.safetensors.index.json")).unwrap();
    symlink(other.path("index"), folder.path("model.safetensors.index.json")).unwrap();
    let opened = open(folder.path("model.safetensors.index.json"), &OpenOptions::default()).unwrap();
    assert_eq!(common::read_by_all_methods(&opened, &opened.entries()[0]), b"aaa");
}

#[test]
fn index_with_a_link_within_its_folder() {
    let folder = Folder::new();
    write_shard(&folder, "real.safetensors", "a");
    symlink("real.safetensors", folder.path("1.safetensors")).unwrap();
    assert!(open_index(&folder, r#"{"weight_map": {"a": "1.safetensors"}}"#).is_ok());
}

#[test]
fn index_of_missing_files() {
    let error = open_index(&Folder::new(), r#"{"weight_map": {"a": "1.safetensors"}}"#).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::ENOENT)));
}

#[test]
fn index_with_a_tensor_that_its_file_lacks() {
    let folder = Folder::new();
    write_shard(&folder, "1.safetensors", "a");
    let error =
        open_index(&folder, r#"{"weight_map": {"a": "1.safetensors", "b": "1.safetensors"}}"#).unwrap_err();
    assert_eq!(hint_of(&error), hints::FETCH_ALL_SHARDS);
}

#[test]
fn index_that_leaves_a_tensor_out() {
    let folder = Folder::new();
    write_shard(&folder, "1.safetensors", "a");
    write_shard(&folder, "2.safetensors", "a");
    let opened = open_index(&folder, r#"{"weight_map": {"a": "2.safetensors"}}"#).unwrap();
    assert_eq!((opened.entries().len(), opened.skipped().len()), (1, 0));
    write_shard(&folder, "1.safetensors", "b");
    write_shard(&folder, "3.safetensors", "a");
    let text = r#"{"weight_map": {"b": "1.safetensors", "a": "3.safetensors"}}"#;
    assert_eq!(open_index(&folder, text).unwrap().entries().len(), 2);
    let mut writer = FileWriter::create(
        folder.path("1.safetensors"),
        FileFormat::Safetensors,
        &[TensorSpec::new("b", DType::UInt8, &[0]), TensorSpec::new("a", DType::UInt8, &[0])],
        WriteOptions::default(),
    )
    .unwrap();
    writer.write_tensor(0, &[]).unwrap();
    writer.write_tensor(1, &[]).unwrap();
    writer.finish().unwrap();
    let opened = open_index(&folder, text).unwrap();
    assert_eq!((opened.entries().len(), opened.skipped()[0].0.as_str()), (2, "a"));
}

#[test]
fn index_with_invalid_json() {
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
        assert_eq!(open_index(&folder, text).unwrap_err().kind(), ErrorKind::InvalidFile, "{text}");
    }
    let deep = format!(r#"{{"x": {}"#, "[".repeat(1_000_000));
    assert_eq!(open_index(&folder, &deep).unwrap_err().kind(), ErrorKind::InvalidFile);
    let deep = format!(r#"{{"metadata": {{"a": {}"#, "{\"a\":".repeat(1_000_000));
    assert_eq!(open_index(&folder, &deep).unwrap_err().kind(), ErrorKind::InvalidFile);
    assert!(open_index(&folder, r#"{"weight_map": {}, "other": [1, {"a": null}]}"#).is_ok());
}

#[test]
fn index_of_itself() {
    let error =
        open_index(&Folder::new(), r#"{"weight_map": {"a": "model.safetensors.index.json"}}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
}

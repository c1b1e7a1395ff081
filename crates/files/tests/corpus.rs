//! Files that other programs wrote (`tests/files/make_corpus.py`) are read exactly.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{hint_of, read_by_all_methods, to_row_major_native};
use serde_json::Value;
use std::path::PathBuf;
use tensorferry_core::DType;
use tensorferry_files::{OpenOptions, open};

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn every_corpus_file_is_read() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/files/corpus");
    let text = std::fs::read_to_string(folder.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let mut checked = 0;
    for (file, expected_file) in expected.as_object().unwrap() {
        if file == "versions" {
            continue;
        }
        let options = OpenOptions {
            dtype: expected_file["dtype"].as_str().and_then(DType::from_name),
            shape: expected_file["shape"]
                .as_array()
                .map(|shape| shape.iter().map(|n| n.as_i64().unwrap()).collect()),
            ..OpenOptions::default()
        };
        let opened = open(folder.join(file), &options);
        if let Some(key) = expected_file["hint"].as_str() {
            let error = opened.expect_err(file);
            assert_eq!(hint_of(&error).name(), key, "{file}: {error}");
            checked += 1;
            continue;
        }
        let opened = opened.unwrap_or_else(|error| panic!("{file}: {error}"));
        let tensors = expected_file["tensors"].as_array().unwrap();
        for tensor in tensors {
            let entry = opened.entry(tensor["name"].as_str().unwrap()).unwrap();
            assert_eq!(entry.dtype().name(), tensor["dtype"].as_str().unwrap(), "{file}");
            let shape: Vec<i64> =
                tensor["shape"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
            assert_eq!(entry.shape(), shape, "{file}");
            let bytes = read_by_all_methods(&opened, entry);
            assert_eq!(
                to_row_major_native(entry, &bytes),
                unhex(tensor["bytes"].as_str().unwrap()),
                "{file} {}",
                entry.name()
            );
        }
        let mut count = tensors.len();
        for (name, size) in expected_file["zeros"].as_object().into_iter().flatten() {
            let bytes = read_by_all_methods(&opened, opened.entry(name).unwrap());
            assert!(bytes.len() as u64 == size.as_u64().unwrap() && bytes.iter().all(|&byte| byte == 0));
            count += 1;
        }
        assert_eq!(opened.entries().len(), count, "{file}");
        let skipped: Vec<&str> = opened.skipped().iter().map(|skipped| skipped.0.as_str()).collect();
        let expected: Vec<&str> = expected_file["skipped"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(skipped, expected, "{file}");
        for (key, value) in expected_file["metadata"].as_object().into_iter().flatten() {
            let found = opened.metadata().iter().find(|pair| pair.0 == *key).unwrap();
            assert_eq!(found.1, value.as_str().unwrap());
        }
        checked += 1;
    }
    assert!(checked > 200, "{checked}");
}

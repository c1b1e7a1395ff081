//! Hostile TensorProtos, one test for each contradiction.

mod common;

use common::{assert_invalid, assert_numbers, hint_of, open_bytes, open_error, read};
use tensorferry_core::{Error, ErrorKind};
use tensorferry_files::{Dialect, hints};

fn error_of(bytes: &[u8]) -> Error {
    open_error("x.pb", bytes)
}

fn assert_rejected(bytes: &[u8], numbers: &[u64]) {
    assert_invalid(&error_of(bytes), hints::RECREATE_FILE, numbers);
}

/// ONNX: shape 2, float, and these fields.
fn onnx(rest: &[u8]) -> Vec<u8> {
    [&[0x08, 2, 0x10, 1][..], rest].concat()
}

/// TensorFlow: float of shape 2, and these fields.
fn tensorflow(rest: &[u8]) -> Vec<u8> {
    [&[0x08, 1, 0x12, 4, 0x12, 2, 0x08, 2][..], rest].concat()
}

const RAW_FIELD: [u8; 10] = [0x4a, 8, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40];

#[test]
fn valid_protos_are_read() {
    let opened = open_bytes("x.pb", &onnx(&RAW_FIELD)).unwrap();
    assert_eq!((opened.dialect(), opened.entries()[0].shape()), (Some(Dialect::Onnx), &[2][..]));
    let mut content = RAW_FIELD;
    content[0] = 0x22;
    let opened = open_bytes("x.pb", &tensorflow(&content)).unwrap();
    assert_eq!((opened.dialect(), opened.entries()[0].bytes()), (Some(Dialect::TensorFlow), 8));
    // Unpacked, and in two occurrences of the field.
    let opened = open_bytes("x.pb", &onnx(&[0x25, 0, 0, 0x80, 0x3f, 0x22, 4, 0, 0, 0, 0x40])).unwrap();
    assert_eq!(common::read_by_all_methods(&opened, &opened.entries()[0]), RAW_FIELD[2..]);
}

#[test]
fn protos_of_either_dialect() {
    assert_eq!(hint_of(&error_of(&[])), hints::NAME_DIALECT);
    assert_eq!(hint_of(&error_of(&[0x08, 1])), hints::NAME_DIALECT);
}

#[test]
fn truncated_protos() {
    let whole = onnx(&RAW_FIELD);
    for length in 1..whole.len() {
        assert!(open_bytes("x.pb", &whole[..length]).is_err(), "{length}");
    }
}

#[test]
fn protos_with_lengths_past_the_end() {
    assert_rejected(&onnx(&[0x4a, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]), &[9, u64::from(u32::MAX), 1]);
    let longest = [0x4a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    assert_rejected(&onnx(&longest), &[9, u64::MAX, 0]);
}

#[test]
fn protos_with_numbers_of_more_than_64_bits() {
    assert_rejected(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], &[64]);
    assert_rejected(&[0x80; 20], &[64]);
}

#[test]
fn protos_with_groups_and_fields_of_number_zero() {
    assert_rejected(&onnx(&[0x0b]), &[1, 3]);
    assert_rejected(&onnx(&[0x00, 1]), &[0]);
}

#[test]
fn protos_with_a_field_twice() {
    assert_rejected(&onnx(&[0x10, 1]), &[2]);
    assert_rejected(&onnx(&[RAW_FIELD, RAW_FIELD].concat()), &[9]);
    assert_rejected(&tensorflow(&[0x12, 0]), &[2]);
}

#[test]
fn protos_with_values_in_two_fields() {
    assert_rejected(&onnx(&[&RAW_FIELD[..], &[0x25, 0, 0, 0, 0]].concat()), &[]);
    assert_rejected(&onnx(&[0x25, 0, 0, 0, 0, 0x28, 1]), &[]);
}

#[test]
fn protos_with_values_in_the_field_of_another_type() {
    assert_rejected(&onnx(&[0x28, 1, 0x28, 1]), &[5, 4]);
    assert_rejected(&onnx(&[0x20, 1, 0x20, 1]), &[4]);
}

#[test]
fn protos_with_too_few_or_too_many_values() {
    assert_rejected(&onnx(&[0x25, 0, 0, 0, 0]), &[2, 1]);
    assert_rejected(&onnx(&[]), &[2, 0]);
    assert_rejected(&onnx(&[0x22, 3, 0, 0, 0]), &[4]);
    assert_rejected(&tensorflow(&[0x2a, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), &[2, 3]);
    assert_rejected(&onnx(&RAW_FIELD[..9]), &[9, 8, 7]);
    assert_rejected(&onnx(&[0x4a, 4, 0, 0, 0, 0]), &[8, 4]);
}

#[test]
fn protos_with_dimensions_that_are_negative_or_huge() {
    let minus = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0x10, 1];
    assert_rejected(&minus, &[0, 1]);
    let huge = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    assert_rejected(&[&huge[..], &huge, &[0x10, 1]].concat(), &[]);
    let many = [&[0x08, 1].repeat(65)[..], &[0x10, 1]].concat();
    assert_rejected(&many, &[65, 64]);
}

#[test]
fn protos_that_repeat_a_value_beyond_the_limit() {
    // A trillion floats from one.
    let dims = [0x08, 1, 0x12, 9, 0x12, 7, 0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20];
    let error = error_of(&[&dims[..], &[0x2a, 4, 0, 0, 0x80, 0x3f]].concat());
    assert_invalid(&error, hints::RAISE_DECOMPRESSION_LIMIT, &[4398046511104, 4 << 30]);
}

#[test]
fn protos_with_values_out_of_range() {
    // int8 of shape 1: 128; bool: 2; float16 bits: 65536.
    for (dtype, value, number) in
        [(3, [0x80, 1].as_slice(), 128), (9, &[2], 2), (10, &[0x80, 0x80, 4], 65536), (2, &[0x80, 2], 256)]
    {
        let bytes = [&[0x08, 1, 0x10, dtype, 0x28][..], value].concat();
        let opened = open_bytes("x.pb", &bytes).unwrap();
        let error = read(&opened, &opened.entries()[0], 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidFile);
        assert_numbers(&error, &[number]);
    }
}

#[test]
fn protos_of_unknown_rank() {
    assert_rejected(&[0x08, 1, 0x12, 2, 0x18, 1], &[]);
}

#[test]
fn protos_whose_name_is_not_utf_8() {
    assert_rejected(&onnx(&[&RAW_FIELD[..], &[0x42, 1, 0xff]].concat()), &[8]);
}

//! TensorProtos that lie, one test for each lie.

mod common;

use common::{open_bytes, read, refused};
use tensorferry_files::Dialect;

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
    assert!(proto(&[]).to_string().contains("dialect="));
    assert!(proto(&[0x08, 1]).to_string().contains("dialect="));
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

//! Arrow columns: every type that Arrow has returns, and columns without a tensor are errors.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use support::dense;
use tensorferry::arrow::{ArrowArray, ArrowSchema};
use tensorferry::files::{FileFormat, OpenOptions, TensorFile};
use tensorferry::{ByteOrder, DType, ErrorKind, Result, Tensor};

fn import(mut schema: ArrowSchema, mut array: ArrowArray) -> Result<Tensor> {
    // SAFETY: both structs are valid: an export of this crate made them, or `column` did over buffers that live for the test.
    let imported = unsafe { Tensor::from_arrow(&raw mut schema, &raw mut array) };
    assert!(schema.release.is_none() && array.release.is_none(), "both are moved");
    imported
}

#[test]
fn every_type_returns() {
    let mut types = 0;
    for dtype in DType::all() {
        for shape in [&[6][..], &[3, 2], &[2, 3, 2], &[0], &[2, 0]] {
            let tensor = dense(dtype, shape);
            let bytes = tensor.as_bytes().unwrap().to_vec();
            let address = tensor.as_bytes().unwrap().as_ptr();
            let (schema, array) = match tensor.into_arrow("x") {
                Ok(exported) => exported,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
                    assert!(error.hint().is_some());
                    continue;
                }
            };
            types += 1;
            let mut imported = import(schema, array).unwrap();
            assert_eq!((imported.dtype(), imported.shape()), (dtype, shape));
            assert_eq!(imported.as_bytes().unwrap(), bytes);
            assert!(imported.is_empty() || imported.as_bytes().unwrap().as_ptr() == address);
            assert!(imported.as_bytes_mut().is_err(), "columns are read-only");
        }
    }
    assert_eq!(types, 21 * 5, "all but complex numbers and types of 4 and 6 bits");
}

#[test]
fn tensors_without_rows_and_strided_ones_are_errors() {
    let matrix = dense(DType::Int32, &[2, 3]);
    let error = matrix.permute(&[1, 0]).unwrap().into_arrow("x").unwrap_err();
    assert!(error.hint().unwrap().contains("pack()"));
    assert!(dense(DType::Int32, &[]).into_arrow("x").unwrap_err().hint().unwrap().contains("reshape"));
    assert!(matrix.into_arrow("a\0b").is_err());
}

#[test]
fn the_other_byte_order_is_named() {
    let path = std::env::temp_dir().join(format!("tensorferry-columns-{}.raw", std::process::id()));
    std::fs::write(&path, [0; 8]).unwrap();
    let options = OpenOptions::new().format(FileFormat::Raw).dtype(DType::Int32);
    let options = options.shape(&[2]).unwrap().byte_order(ByteOrder::Swapped);
    let file = TensorFile::open_with(&path, &options).unwrap();
    std::fs::remove_file(&path).unwrap();
    let error = file.entry("").unwrap().read().unwrap().into_arrow("x").unwrap_err();
    assert!(error.fact().contains("byte order") && error.hint().unwrap().contains("pack()"), "{error}");
}

static RELEASED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: `column` made the format with `CString::into_raw`, and the callback runs once.
    unsafe {
        drop(CString::from_raw((*schema).format.cast_mut()));
        (*schema).release = None;
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: `column` made the buffers with `Box::into_raw`, and the callback runs once.
    unsafe {
        drop(Box::from_raw((*array).buffers.cast::<[*const c_void; 2]>()));
        (*array).release = None;
    }
    RELEASED.fetch_add(1, Ordering::SeqCst);
}

/// A column over static buffers, as another library exports it.
fn column(
    format: &str,
    length: i64,
    validity: Option<&'static [u8]>,
    values: &'static [u8],
) -> (ArrowSchema, ArrowArray) {
    let buffers: Box<[*const c_void; 2]> =
        Box::new([validity.map_or(ptr::null(), |bits| bits.as_ptr().cast()), values.as_ptr().cast()]);
    let schema = ArrowSchema {
        format: CString::new(format).unwrap().into_raw(),
        flags: 2,
        release: Some(release_schema),
        ..ArrowSchema::released()
    };
    let array = ArrowArray {
        length,
        null_count: if validity.is_some() { -1 } else { 0 },
        n_buffers: 2,
        buffers: Box::into_raw(buffers).cast(),
        release: Some(release_array),
        ..ArrowArray::released()
    };
    (schema, array)
}

#[test]
fn columns_of_other_producers() {
    let (schema, array) = column("b", 10, None, &[0b0100_1101, 0b10]);
    let bits = import(schema, array).unwrap();
    assert_eq!(
        bits.as_slice::<bool>().unwrap(),
        [true, false, true, true, false, false, true, false, false, true]
    );
    static VALUES: [u8; 3] = [7, 8, 9];
    let (schema, array) = column("C", 3, None, &VALUES);
    let released = RELEASED.load(Ordering::SeqCst);
    let numbers = import(schema, array).unwrap();
    assert_eq!(numbers.as_slice::<u8>().unwrap().as_ptr(), VALUES.as_ptr(), "shared");
    assert_eq!(numbers.as_slice::<u8>().unwrap(), VALUES);
    let view = numbers.narrow(0, 1, 1).unwrap();
    drop(numbers);
    assert_eq!(RELEASED.load(Ordering::SeqCst), released, "a handle is left");
    drop(view);
    assert_eq!(RELEASED.load(Ordering::SeqCst), released + 1);

    let (schema, array) = column("C", 3, Some(&[0b101]), &VALUES);
    let error = import(schema, array).unwrap_err();
    assert!(error.fact().contains("1 null") && error.hint().is_some(), "{error}");
    assert_eq!(RELEASED.load(Ordering::SeqCst), released + 2, "a refused array is released");
    let (schema, array) = column("u", 0, None, &VALUES);
    assert!(import(schema, array).is_err());
    // SAFETY: null pointers are allowed.
    assert!(unsafe { Tensor::from_arrow(ptr::null_mut(), ptr::null_mut()) }.is_err());
}

//! Exports: what is exported is imported again, and the owner lives as long as one of the structs.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::sync::Arc;
use tensorferry_arrow::abi::{ArrowArray, ArrowSchema, FLAG_NULLABLE};
use tensorferry_arrow::{
    Array, ArrayStream, Column, ColumnExport, Encoding, Field, Owned, TableExport, hints,
};
use tensorferry_core::error::Hint;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor};

/// A tensor of the bytes 0, 1, 2 and so on; booleans alternate.
fn tensor(dtype: DType, shape: &[i64]) -> (Tensor<Arc<HostBlock>>, std::sync::Weak<HostBlock>) {
    let layout = Layout::dense(dtype.size(), shape).unwrap();
    let block = Arc::new(HostBlock::new(layout.bytes()).unwrap());
    let (data, weak) = (block.data(), Arc::downgrade(&block));
    for index in 0..layout.bytes() {
        // SAFETY: the block has as many bytes.
        unsafe { data.add(index).write(if dtype == DType::Bool { index % 2 } else { index } as u8) };
    }
    // SAFETY: the block has the size of the layout, is written, and is the owner.
    let tensor =
        unsafe { Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadOnly, block) };
    (tensor.unwrap(), weak)
}

fn import(mut schema: ArrowSchema, mut array: ArrowArray) -> (Field, Array) {
    // SAFETY: the export made both structs, and nothing else uses them.
    unsafe {
        let field = Field::from_schema(&Owned::take(&raw mut schema).unwrap()).unwrap();
        let array = Array::new(Owned::take(&raw mut array).unwrap(), &field).unwrap();
        (field, array)
    }
}

#[test]
fn every_type_returns() {
    for dtype in DType::all() {
        let (tensor, weak) = tensor(dtype, &[3, 2, 2]);
        let data = tensor.data();
        let Ok(column) = ColumnExport::new("x", tensor) else {
            assert!(
                matches!(dtype.name(), name if name.contains('4') || name.contains('6') || name.starts_with("complex"))
            );
            continue;
        };
        let (field, array) = import(column.schema(), column.array());
        drop(column);
        assert_eq!((field.name.as_str(), field.dtype(), field.row_shape()), ("x", Some(dtype), vec![2, 2]));
        let imported = array.as_tensor().unwrap().unwrap();
        assert_eq!((imported.data(), imported.layout().shape()), (data, &[3, 2, 2][..]));
        drop(array);
        assert!(weak.upgrade().is_some());
        drop(imported);
        assert!(weak.upgrade().is_none());
    }
}

#[test]
fn nulls_return() {
    let (values, weak_values) = tensor(DType::Int16, &[9]);
    let (bits, weak_bits) = tensor(DType::UInt8, &[2]);
    let column = ColumnExport::new("x", values).unwrap().with_validity(bits).unwrap();
    let (_, array) = import(column.schema(), column.array());
    drop(column);
    // The bits are the bytes 0 and 1.
    assert_eq!((array.count_nulls(), array.slice(8, 1).count_nulls()), (8, 0));
    drop(array);
    assert!(weak_values.upgrade().is_none());
    assert!(weak_bits.upgrade().is_none());
    let (values, _) = tensor(DType::Int16, &[17]);
    let (bits, _) = tensor(DType::UInt8, &[2]);
    assert!(ColumnExport::new("x", values).unwrap().with_validity(bits).is_err());
}

#[test]
fn bits_return() {
    for shape in [&[11][..], &[3, 5], &[3, 2, 2], &[0], &[2, 0]] {
        let (bits, weak_bits) = tensor(DType::UInt8, &[2]);
        let (validity, weak_validity) = tensor(DType::UInt8, &[2]);
        let column = ColumnExport::of_bits("x", shape, bits).unwrap().with_validity(validity).unwrap();
        let (field, array) = import(column.schema(), column.array());
        drop(column);
        assert_eq!((field.dtype(), field.row_shape()), (Some(DType::Bool), shape[1..].to_vec()));
        assert_eq!((array.encoding(), array.len() as i64), (Encoding::Bits, shape[0]));
        // The bits are the bytes 0 and 1: all rows but the ninth are null.
        assert_eq!(array.count_nulls() as i64, if shape[0] > 8 { shape[0] - 1 } else { shape[0] });
        drop(array);
        assert!(weak_bits.upgrade().is_none() && weak_validity.upgrade().is_none());
    }
    assert!(ColumnExport::of_bits("x", &[17], tensor(DType::UInt8, &[2]).0).is_err());
    assert!(ColumnExport::of_bits("x", &[1], tensor(DType::Int16, &[2]).0).is_err());
    assert!(ColumnExport::of_bits("x", &[], tensor(DType::UInt8, &[1]).0).is_err());
}

#[test]
fn columns_and_their_elements_are_nullable() {
    let columns = vec![ColumnExport::new("x", tensor(DType::Int16, &[2, 2]).0).unwrap()];
    let mut schema = TableExport::new(columns).unwrap().schema();
    // SAFETY: the structs of an export have children, and are released once.
    unsafe {
        let column = *schema.children;
        let item = *(*column).children;
        assert_eq!((schema.flags, (*column).flags, (*item).flags), (0, FLAG_NULLABLE, FLAG_NULLABLE));
        drop(Owned::take(&raw mut schema).unwrap());
    }
}

#[test]
fn tables_and_streams() {
    let (first, weak_first) = tensor(DType::Int32, &[4]);
    let (second, weak_second) = tensor(DType::Float32, &[4, 3]);
    let columns = vec![ColumnExport::new("a", first).unwrap(), ColumnExport::new("b", second).unwrap()];
    let table = Arc::new(TableExport::new(columns).unwrap());
    let (field, array) = import(table.schema(), table.array());
    assert!(matches!(&field.column, Column::Structs(fields) if fields.len() == 2));
    let mut stream = table.stream();
    drop(table);
    // SAFETY: the export made the stream, and nothing else uses it.
    let mut stream = unsafe { ArrayStream::new(Owned::take(&raw mut stream).unwrap()).unwrap() };
    assert_eq!(stream.field(), &field);
    let streamed = stream.next_array().unwrap().unwrap();
    assert!(stream.next_array().unwrap().is_none() && stream.next_array().unwrap().is_none());
    drop((stream, streamed));
    assert_eq!(array.columns()[1].as_tensor().unwrap().unwrap().layout().shape(), [4, 3]);
    assert!(weak_first.upgrade().is_some());
    drop(array);
    assert!(weak_first.upgrade().is_none() && weak_second.upgrade().is_none());
}

#[test]
fn children_outlive_their_parent() {
    let (values, weak) = tensor(DType::Int16, &[2, 2]);
    let column = ColumnExport::new("x", values).unwrap();
    let mut array = column.array();
    drop(column);
    // SAFETY: a consumer may move a child away, as `take` does, and release its parent.
    unsafe {
        let child = Owned::take(*array.children).unwrap();
        drop(Owned::take(&raw mut array).unwrap());
        assert!(weak.upgrade().is_some());
        drop(child);
    }
    assert!(weak.upgrade().is_none());
}

#[test]
fn what_cannot_be_exported() {
    let scalar = ColumnExport::new("x", tensor(DType::Int8, &[]).0).unwrap_err();
    assert!(scalar.fact().contains("no rows"));
    let name = ColumnExport::new("a\0b", tensor(DType::Int8, &[1]).0).unwrap_err();
    assert!(matches!(name.hint(), Some(Hint::Key(key, _)) if *key == hints::EXPORT_NAME_BYTES));
    let same = || ColumnExport::new("a", tensor(DType::Int8, &[1]).0).unwrap();
    assert!(TableExport::new(vec![same(), same()]).unwrap_err().fact().contains("'a'"));
    let too_long = ColumnExport::new("x", tensor(DType::Int8, &[0, 1 << 31]).0).unwrap_err();
    assert!(too_long.fact().contains("2147483648 elements"));
    assert!(ColumnExport::new("x", tensor(DType::Int8, &[0, i64::from(i32::MAX)]).0).is_ok());
    assert!(ColumnExport::new("x", tensor(DType::Int8, &[2, 0, 1 << 31]).0).is_ok());
    let complex = ColumnExport::new("x", tensor(DType::Complex64, &[1]).0).unwrap_err();
    assert!(complex.fact().contains("no type complex64"));
    let (short, long) = (tensor(DType::Int8, &[1]).0, tensor(DType::Int8, &[2]).0);
    let columns = vec![ColumnExport::new("a", short).unwrap(), ColumnExport::new("b", long).unwrap()];
    assert!(TableExport::new(columns).unwrap_err().fact().contains("rows"));
}

//! Written tensors are read back unchanged, for all types, shapes, orders and formats.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Folder, read_by_all_methods};
use proptest::prelude::*;
use tensorferry_core::{ByteOrder, DType, ErrorKind};
use tensorferry_files::{Dialect, FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, open};

fn dtype() -> impl Strategy<Value = DType> {
    proptest::sample::select(DType::all().collect::<Vec<_>>())
}

fn shape() -> impl Strategy<Value = Vec<i64>> {
    proptest::collection::vec(0i64..6, 0..5)
}

fn spec(orders: bool) -> impl Strategy<Value = TensorSpec> {
    (dtype(), shape(), any::<bool>(), any::<bool>()).prop_map(move |(dtype, shape, swapped, fortran)| {
        TensorSpec {
            order: if orders && swapped && dtype.swap_unit() > 1 {
                ByteOrder::Swapped
            } else {
                ByteOrder::Native
            },
            fortran: orders && fortran,
            ..TensorSpec::new("", dtype, &shape)
        }
    })
}

/// Several specs with distinct names.
fn specs(orders: bool) -> impl Strategy<Value = Vec<TensorSpec>> {
    proptest::collection::vec((spec(orders), "[a-z\u{e4}\u{4e2d}\"/ .]{0,8}"), 0..6).prop_map(|specs| {
        let named = |(number, (spec, name)): (usize, (TensorSpec, String))| TensorSpec {
            name: format!("n{name}{number}").replace("..", "."),
            ..spec
        };
        specs.into_iter().enumerate().map(named).collect()
    })
}

fn bytes(spec: &TensorSpec, seed: u8) -> Vec<u8> {
    let count = spec.layout().unwrap().bytes();
    (0..count).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// Writes in chunks, last tensor first, and reads back.
fn check_round_trip(format: FileFormat, specs: &[TensorSpec], options: WriteOptions, reading: OpenOptions) {
    let folder = Folder::new();
    let path =
        folder.path(&format!("x.{}", if format == FileFormat::TensorProto { "pb" } else { format.name() }));
    let mut writer =
        FileWriter::create(&path, format, specs, WriteOptions { durable: false, ..options }).unwrap();
    for (number, spec) in specs.iter().enumerate().rev() {
        writer.begin(number).unwrap();
        for chunk in bytes(spec, number as u8).chunks(13) {
            writer.write(chunk).unwrap();
        }
    }
    assert_eq!(folder.names(), [""; 0]);
    writer.finish().unwrap();
    assert_eq!(folder.names().len(), 1);
    let opened = open(&path, &reading).unwrap();
    assert_eq!((opened.format(), opened.entries().len()), (format, specs.len()));
    for (number, spec) in specs.iter().enumerate() {
        let entry = if format.is_single() { &opened.entries()[0] } else { opened.entry(&spec.name).unwrap() };
        assert_eq!((entry.dtype(), entry.shape()), (spec.dtype, spec.shape.as_slice()));
        assert_eq!((entry.order(), entry.is_fortran()), (spec.order, spec.fortran));
        assert_eq!(read_by_all_methods(&opened, entry), bytes(spec, number as u8));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn npy(spec in spec(true)) {
        check_round_trip(FileFormat::Npy, &[spec], WriteOptions::default(), OpenOptions::default());
    }

    #[test]
    fn npz(specs in specs(true), level in proptest::option::of(1u8..9)) {
        let options = WriteOptions { compression: level, ..WriteOptions::default() };
        check_round_trip(FileFormat::Npz, &specs, options, OpenOptions::default());
    }

    #[test]
    fn safetensors(specs in specs(false)) {
        check_round_trip(FileFormat::Safetensors, &specs, WriteOptions::default(), OpenOptions::default());
    }

    #[test]
    fn tensorproto(spec in spec(false), onnx in any::<bool>()) {
        let dialect = if onnx { Dialect::Onnx } else { Dialect::TensorFlow };
        let options = WriteOptions { dialect, ..WriteOptions::default() };
        let folder = Folder::new();
        match FileWriter::create(folder.path("x.pb"), FileFormat::TensorProto, std::slice::from_ref(&spec), options.clone()) {
            Ok(_) => check_round_trip(FileFormat::TensorProto, &[spec], options, OpenOptions::default()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnsupportedDType),
        }
    }

    #[test]
    fn raw(spec in spec(true)) {
        let reading = OpenOptions {
            dtype: Some(spec.dtype), shape: Some(spec.shape.clone()), order: spec.order, fortran: spec.fortran,
            ..OpenOptions::default()
        };
        check_round_trip(FileFormat::Raw, &[spec], WriteOptions::default(), reading);
    }
}

#[test]
fn maps_are_aligned_to_64_bytes_where_the_format_allows() {
    let folder = Folder::new();
    let mut specs: Vec<TensorSpec> =
        (0..9).map(|at| TensorSpec::new(format!("t{at}"), DType::Float32, &[16 * (at % 3 + 1)])).collect();
    specs.push(TensorSpec::new("odd", DType::Int8, &[3]));
    specs.insert(0, TensorSpec::new("wide", DType::Float64, &[3]));
    for format in [FileFormat::Npz, FileFormat::Safetensors] {
        let path = folder.path(&format!("x.{format}"));
        let mut writer = FileWriter::create(&path, format, &specs, WriteOptions::default()).unwrap();
        for (number, spec) in specs.iter().enumerate() {
            writer.write_tensor(number, &bytes(spec, 1)).unwrap();
        }
        writer.finish().unwrap();
        for entry in open(&path, &OpenOptions::default()).unwrap().entries() {
            let align = if entry.name().starts_with('t') || format == FileFormat::Npz {
                64
            } else {
                entry.dtype().size()
            };
            assert_eq!(entry.offset().unwrap() % align as u64, 0, "{format} {}", entry.name());
        }
    }
}

#[test]
fn metadata_is_kept_and_carried_types_are_restored() {
    let folder = Folder::new();
    let path = folder.path("x.safetensors");
    let metadata = vec![("format".to_owned(), "pt".to_owned()), ("q\"\n".to_owned(), "\u{4e2d}".to_owned())];
    let specs = [TensorSpec::new("z", DType::Complex128, &[2]), TensorSpec::new("i", DType::Int4, &[3])];
    let options = WriteOptions { metadata: metadata.clone(), ..WriteOptions::default() };
    let mut writer = FileWriter::create(&path, FileFormat::Safetensors, &specs, options).unwrap();
    writer.write_tensor(0, &[1; 32]).unwrap();
    writer.write_tensor(1, &[7; 3]).unwrap();
    writer.finish().unwrap();
    assert_eq!(open(&path, &OpenOptions::default()).unwrap().metadata(), metadata);
    let stored = open(&path, &OpenOptions { as_stored: true, ..OpenOptions::default() }).unwrap();
    assert_eq!((stored.entries()[0].dtype(), stored.entries()[0].shape()), (DType::Float64, &[2, 2][..]));
    assert_eq!((stored.entries()[1].dtype(), stored.metadata().len()), (DType::UInt8, 3));
}

#[test]
fn large_tensors_are_read_and_written_by_several_threads() {
    let folder = Folder::new();
    let spec = TensorSpec::new("x", DType::UInt8, &[(20 << 20) + 5]);
    let data = bytes(&spec, 3);
    for format in [FileFormat::Npy, FileFormat::Npz, FileFormat::Safetensors] {
        let path = folder.path(&format!("x.{format}"));
        let options = WriteOptions { threads: 4, durable: false, ..WriteOptions::default() };
        let mut writer = FileWriter::create(&path, format, std::slice::from_ref(&spec), options).unwrap();
        writer.write_tensor(0, &data).unwrap();
        writer.finish().unwrap();
        let opened = open(&path, &OpenOptions::default()).unwrap();
        assert!(common::read(&opened, &opened.entries()[0], 4).unwrap() == data);
    }
}

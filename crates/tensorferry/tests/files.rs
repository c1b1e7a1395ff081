//! Files: every format and type returns, files of other writers are read, maps and writers keep their contracts.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use std::path::Path;
use support::{Folder, bytes_of, dense};
use tensorferry::files::{
    FileFormat, FileWriter, MapMode, OpenOptions, TensorFile, TensorSpec, WriteOptions, save,
};
use tensorferry::{ByteOrder, DType, ErrorKind, Result, Tensor};

/// As `save`, without the wait for the disk.
fn save_not_durable(path: &Path, tensor: &Tensor) -> Result<()> {
    let specs = [TensorSpec::new("x", tensor.dtype(), tensor.shape())];
    let mut writer = FileWriter::create(path, &specs, WriteOptions::new().durable(false))?;
    writer.write("x", tensor)?;
    writer.finish()
}

#[test]
fn every_type_returns_from_every_format() {
    let folder = Folder::new();
    for extension in ["safetensors", "npy", "npz"] {
        for dtype in DType::all() {
            for shape in [&[2, 3][..], &[], &[4, 0, 2]] {
                let path = folder.file(&format!("x.{extension}"));
                let tensor = dense(dtype, shape);
                match save_not_durable(&path, &tensor) {
                    Ok(()) => {}
                    Err(error) => {
                        assert!(error.hint().is_some(), "{error}");
                        continue;
                    }
                }
                // NumPy's formats do not name the types of other packages.
                let is_unnamed = extension != "safetensors" && dtype.typestr().is_none();
                let options = if is_unnamed { OpenOptions::new().dtype(dtype) } else { OpenOptions::new() };
                let file = TensorFile::open_with(&path, &options).unwrap();
                let [entry] = &file.entries().collect::<Vec<_>>()[..] else { unreachable!() };
                assert_eq!((entry.dtype(), entry.shape()), (dtype, shape), "{extension}");
                let read = entry.read().unwrap();
                assert_eq!(read.as_bytes().unwrap(), tensor.as_bytes().unwrap());
                assert!(read.is_writable());
                // SAFETY: nothing writes the file: `save` replaces it.
                let mapped = unsafe { entry.map(MapMode::ReadOnly) }.unwrap();
                assert_eq!(mapped.as_bytes().unwrap(), tensor.as_bytes().unwrap());
            }
        }
    }
}

/// A .npy file as NumPy writes it.
fn npy(descr: &str, is_fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if is_fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    header.push_str(&" ".repeat(63 - (10 + header.len()) % 64));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.into_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn swapped_bytes_and_fortran_order() {
    let folder = Folder::new();
    let path = folder.file("x.npy");
    let big_endian: Vec<u8> = (1..=6i32).flat_map(|value| value.to_be_bytes()).collect();
    std::fs::write(&path, npy(">i4", true, "(2, 3)", &big_endian)).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let entry = file.entry("").unwrap();
    // SAFETY: nothing writes the file.
    let mapped = unsafe { entry.map(MapMode::ReadOnly) }.unwrap();
    for tensor in [entry.read().unwrap(), mapped] {
        assert_eq!((tensor.byte_order(), tensor.shape()), (ByteOrder::Swapped, &[2, 3][..]));
        assert_eq!(tensor.to_vec::<i32>().unwrap(), [1, 3, 5, 2, 4, 6]);
        assert_eq!(tensor.select(0, 1).unwrap().to_vec::<i32>().unwrap(), [2, 4, 6]);
        assert!(tensor.as_slice::<i32>().is_err() && tensor.as_ndarray::<i32>().is_err());
        let dense_row = tensor.select(1, 0).unwrap();
        assert!(dense_row.is_dense());
        let error = dense_row.as_slice::<i32>().unwrap_err();
        assert!(error.fact().contains("byte order") && error.hint().unwrap().contains("pack()"));
        assert!(dense_row.into_dlpack().unwrap_err().hint().unwrap().contains("pack()"));
        // A writer stores the values, not the bytes.
        let copy = folder.file("y.safetensors");
        save(&copy, [("y", &tensor)]).unwrap();
        let read = TensorFile::open(&copy).unwrap().entry("y").unwrap().read().unwrap();
        assert_eq!(read.as_slice::<i32>().unwrap(), [1, 3, 5, 2, 4, 6]);
    }
}

#[test]
fn an_unaligned_map_is_not_a_slice() {
    let folder = Folder::new();
    let path = folder.file("x.safetensors");
    // The header has 8 + 65 bytes, so that the floats start at an odd offset.
    let header = br#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#;
    let mut bytes = (header.len() as u64 + 11).to_le_bytes().to_vec();
    bytes.extend(header);
    bytes.extend([b' '; 11]);
    bytes.extend([1.5f32, -2.0].iter().flat_map(|value| value.to_le_bytes()));
    std::fs::write(&path, &bytes).unwrap();
    let file = TensorFile::open(&path).unwrap();
    // SAFETY: nothing writes the file.
    let mapped = unsafe { file.entry("x").unwrap().map(MapMode::ReadOnly) }.unwrap();
    for error in [mapped.as_slice::<f32>().unwrap_err(), mapped.as_ndarray::<f32>().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::UnsupportedLayout);
        assert!(error.hint().unwrap().contains("pack()"));
    }
    assert_eq!(mapped.to_vec::<f32>().unwrap(), [1.5, -2.0]);
    assert_eq!(file.entry("x").unwrap().read().unwrap().as_slice::<f32>().unwrap(), [1.5, -2.0]);
}

#[test]
fn maps_outlive_the_file_and_never_write_it() {
    let folder = Folder::new();
    let path = folder.file("x.npy");
    save(&path, [("", &dense(DType::UInt8, &[5000]))]).unwrap();
    let before = std::fs::read(&path).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let entry = file.entry("").unwrap();
    // SAFETY: nothing writes the file. It is deleted below, which the contract allows.
    let (mut shared, mut private) =
        unsafe { (entry.map(MapMode::ReadOnly).unwrap(), entry.map(MapMode::CopyOnWrite).unwrap()) };
    assert!(!shared.is_writable() && shared.as_mut_slice::<u8>().is_err());
    private.as_mut_slice::<u8>().unwrap().fill(9);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    drop(file);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(shared.as_slice::<u8>().unwrap(), bytes_of(DType::UInt8, 5000));
    assert_eq!(private.as_slice::<u8>().unwrap(), [9; 5000]);
}

#[test]
fn compressed_tensors_are_read_and_not_mapped() {
    let folder = Folder::new();
    let path = folder.file("x.npz");
    let options = WriteOptions::new().compression(6);
    let tensor = dense(DType::Int16, &[1000]);
    let specs = [TensorSpec::new("a", DType::Int16, &[1000])];
    let mut writer = FileWriter::create(&path, &specs, options).unwrap();
    writer.write("a", &tensor).unwrap();
    writer.finish().unwrap();
    let file = TensorFile::open(&path).unwrap();
    let entry = file.entry("a").unwrap();
    assert!(!entry.can_map());
    // SAFETY: nothing writes the file.
    let error = unsafe { entry.map(MapMode::ReadOnly) }.unwrap_err();
    assert!(error.hint().unwrap().contains("FileEntry::read"));
    assert_eq!(entry.read().unwrap().as_bytes().unwrap(), tensor.as_bytes().unwrap());
}

#[test]
fn writers_check_what_they_are_given() {
    let folder = Folder::new();
    let path = folder.file("x.safetensors");
    let specs = [TensorSpec::new("a", DType::Int16, &[2]), TensorSpec::new("b", DType::Int16, &[1])];
    let create = || FileWriter::create(&path, &specs, WriteOptions::default()).unwrap();
    let mut writer = create();
    assert!(writer.write("c", &dense(DType::Int16, &[2])).is_err());
    for other in [dense(DType::UInt16, &[2]), dense(DType::Int16, &[1, 2])] {
        let error = writer.write("a", &other).unwrap_err();
        assert!(error.fact().contains("int16 [2]") && error.hint().is_some(), "{error}");
    }
    writer.write("a", &dense(DType::Int16, &[2])).unwrap();
    assert!(writer.write("a", &dense(DType::Int16, &[2])).is_err());
    assert!(writer.finish().unwrap_err().fact().contains('b'));
    assert!(!path.exists());
    let mut writer = create();
    writer.write("b", &dense(DType::Int16, &[1])).unwrap();
    writer.write("a", &dense(DType::Int16, &[2])).unwrap();
    writer.finish().unwrap();
    let names: Vec<String> =
        TensorFile::open(&path).unwrap().entries().map(|entry| entry.name().to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    let error = save(folder.file("x.unknown"), [("a", &dense(DType::Int8, &[1]))]).unwrap_err();
    assert!(error.hint().unwrap().contains("create_as"));
}

#[test]
fn errors_have_advice_in_terms_of_this_crate() {
    let folder = Folder::new();
    let missing = TensorFile::open(folder.file("x.npy")).unwrap_err();
    assert_eq!((missing.kind(), missing.errno()), (ErrorKind::Io, Some(2)));
    assert_eq!(missing.hint().unwrap(), "check the path");
    let raw = folder.file("x.bin");
    std::fs::write(&raw, [1, 0, 2, 0]).unwrap();
    let error = TensorFile::open(&raw).unwrap_err();
    assert!(error.hint().unwrap().contains("OpenOptions::"), "{error}");
    let options = OpenOptions::new().format(FileFormat::Raw).dtype(DType::Int16).shape(&[2]).unwrap();
    let file = TensorFile::open_with(&raw, &options).unwrap();
    let entry = file.entries().next().unwrap();
    assert_eq!(entry.read().unwrap().as_slice::<i16>().unwrap(), [1, 2]);
    let path = folder.file("y.safetensors");
    save(&path, [("weight", &dense(DType::Int8, &[1]))]).unwrap();
    let error = TensorFile::open(&path).unwrap().entry("weights").unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    std::fs::write(&path, b"not a file of tensors").unwrap();
    let error = TensorFile::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
    assert!(error.hint().is_some());
}

#[test]
fn a_file_of_several_tensors() {
    let folder = Folder::new();
    let path = folder.file("x.safetensors");
    let (first, second) = (dense(DType::Float32, &[3, 4]), dense(DType::BFloat16, &[5]));
    let transposed = first.permute(&[1, 0]).unwrap();
    let options = WriteOptions::new().metadata([("format".to_owned(), "pt".to_owned())]);
    let specs = [
        TensorSpec::new("t", DType::Float32, transposed.shape()),
        TensorSpec::new("b", DType::BFloat16, second.shape()),
    ];
    let mut writer = FileWriter::create(&path, &specs, options).unwrap();
    writer.write("t", &transposed).unwrap();
    writer.write("b", &second).unwrap();
    writer.finish().unwrap();
    let file = TensorFile::open(&path).unwrap();
    assert_eq!(file.metadata(), [("format".to_owned(), "pt".to_owned())]);
    assert_eq!((file.format(), file.skipped().len(), file.entries().len()), (FileFormat::Safetensors, 0, 2));
    let read: Tensor = file.entry("t").unwrap().read().unwrap();
    assert_eq!(read.as_slice::<f32>().unwrap(), transposed.to_vec::<f32>().unwrap());
    assert_eq!(file.entry("b").unwrap().spec(), specs[1]);
}

#[test]
fn shapes_that_overflow_are_invalid_arguments() {
    let folder = Folder::new();
    for extension in ["safetensors", "npy", "npz"] {
        for shape in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[1 << 62]] {
            let specs = [TensorSpec::new("x", DType::Int64, shape)];
            let path = folder.file(&format!("x.{extension}"));
            let error = FileWriter::create(&path, &specs, WriteOptions::new()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.hint().is_some_and(|hint| !hint.contains("report")), "{error}");
        }
    }
    let path = folder.file("x.raw");
    std::fs::write(&path, [0; 8]).unwrap();
    let options = || OpenOptions::new().format(FileFormat::Raw).dtype(DType::Int64);
    for shape in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[1 << 62]] {
        let error =
            options().shape(shape).and_then(|options| TensorFile::open_with(&path, &options)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.hint().is_some_and(|hint| !hint.contains("report")), "{error}");
    }
}

#[test]
fn what_a_format_drops_is_refused() {
    let folder = Folder::new();
    let tensor = dense(DType::Int32, &[2]);
    let specs = [TensorSpec::new("x", tensor.dtype(), tensor.shape())];
    let metadata = || WriteOptions::new().metadata([("step".to_owned(), "7".to_owned())]);
    let level = |level| WriteOptions::new().compression(level);
    let cases = [
        ("x.npz", level(0), "0"),
        ("x.npz", level(10), "10"),
        ("x.npz", level(255), "255"),
        ("x.npy", level(1), "npy"),
        ("x.safetensors", level(1), "safetensors"),
        ("x.pb", level(1), "tensorproto"),
        ("x.npy", metadata(), "npy"),
        ("x.npz", metadata(), "npz"),
        ("x.pb", metadata(), "tensorproto"),
        ("x.bin", WriteOptions::new(), "x.bin"),
        ("x.raw", WriteOptions::new(), "x.raw"),
    ];
    for (name, options, word) in cases {
        let path = folder.file(name);
        let error = FileWriter::create(&path, &specs, options.clone()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{name} {options:?}: {error}");
        assert!(error.fact().contains(word) && error.hint().is_some(), "{name} {options:?}: {error}");
        assert!(!path.exists());
    }
    assert_eq!(save(folder.file("x.bin"), [("x", &tensor)]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    for accepted in [1, 9] {
        assert!(FileWriter::create(folder.file("x.npz"), &specs, level(accepted)).is_ok());
    }
    assert!(FileWriter::create(folder.file("x.safetensors"), &specs, metadata()).is_ok());
    // Whoever names the format knows what it keeps.
    let raw = folder.file("x.bin");
    let mut writer = FileWriter::create_as(&raw, FileFormat::Raw, &specs, WriteOptions::new()).unwrap();
    writer.write("x", &tensor).unwrap();
    writer.finish().unwrap();
    assert_eq!(std::fs::read(&raw).unwrap(), tensor.as_bytes().unwrap());
}

#[test]
fn a_tensor_is_written_once() {
    let folder = Folder::new();
    let tensor = dense(DType::Int32, &[2]);
    let specs = [TensorSpec::new("x", tensor.dtype(), tensor.shape())];
    let mut writer =
        FileWriter::create(folder.file("x.safetensors"), &specs, WriteOptions::new().durable(false)).unwrap();
    writer.write("x", &tensor).unwrap();
    let error = writer.write("x", &tensor).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.fact().contains("\"x\"") && !error.to_string().contains("begin"), "{error}");
    writer.finish().unwrap();
}

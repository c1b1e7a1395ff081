//! Saves are atomic: the target is complete or unchanged.

mod common;

use common::{Folder, assert_numbers, hint_of};
use rustix::process::{Resource, Rlimit, Signal, Uid, geteuid, getpid, kill_process, setrlimit};
use rustix::thread::set_thread_res_uid;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tensorferry_core::{ByteOrder, DType, ErrorKind, Result};
use tensorferry_files::{
    Dialect, FileFormat, FileWriter, OpenOptions, TensorSpec, WriteOptions, hints, open,
};

fn spec(name: &str) -> TensorSpec {
    TensorSpec::new(name, DType::UInt8, &[4])
}

fn writer(path: &Path, format: FileFormat) -> Result<FileWriter> {
    FileWriter::create(path, format, &[spec("a")], WriteOptions::default())
}

fn save(path: &Path, byte: u8) -> Result<()> {
    let mut writer = writer(path, FileFormat::Raw)?;
    writer.write_tensor(0, &[byte; 4])?;
    writer.finish()
}

const WRITABLE_FORMATS: [FileFormat; 5] =
    [FileFormat::Npy, FileFormat::Npz, FileFormat::Safetensors, FileFormat::TensorProto, FileFormat::Raw];

#[test]
fn a_dropped_writer_leaves_nothing() {
    let folder = Folder::new();
    for format in WRITABLE_FORMATS {
        let mut writer = writer(&folder.path("x"), format).unwrap();
        writer.begin(0).unwrap();
        writer.write(&[1, 2]).unwrap();
        drop(writer);
        assert_eq!(folder.names(), [""; 0], "{format}");
    }
}

#[test]
fn the_old_file_stays_until_the_end() {
    let folder = Folder::new();
    let path = folder.put("x", b"old");
    let mut writer = writer(&path, FileFormat::Raw).unwrap();
    writer.write_tensor(0, &[1; 4]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    writer.finish().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [1; 4]);
    assert_eq!(folder.names(), ["x"]);
}

#[test]
fn a_reader_keeps_the_version_that_it_opened() {
    let folder = Folder::new();
    let path = folder.path("x.bin");
    save(&path, 1).unwrap();
    let options = OpenOptions { dtype: Some(DType::UInt8), ..OpenOptions::default() };
    let opened = open(&path, &options).unwrap();
    save(&path, 2).unwrap();
    assert_eq!(common::read_by_all_methods(&opened, &opened.entries()[0]), [1; 4]);
    let opened = open(&path, &options).unwrap();
    assert_eq!(common::read_by_all_methods(&opened, &opened.entries()[0]), [2; 4]);
}

#[test]
fn too_few_bytes_are_an_error() {
    let folder = Folder::new();
    for format in WRITABLE_FORMATS {
        let mut writer = writer(&folder.path("x"), format).unwrap();
        writer.begin(0).unwrap();
        writer.write(&[1; 3]).unwrap();
        let error = writer.finish().unwrap_err();
        assert_eq!(hint_of(&error), hints::WRITE_TENSOR_SIZE);
        assert_numbers(&error, &[3, 4]);
        assert_eq!(folder.names(), [""; 0], "{format}");
    }
}

#[test]
fn too_many_bytes_are_an_error_and_prevent_the_save() {
    let folder = Folder::new();
    for format in WRITABLE_FORMATS {
        let mut writer = writer(&folder.path("x"), format).unwrap();
        writer.begin(0).unwrap();
        writer.write(&[1; 4]).unwrap();
        assert_numbers(&writer.write(&[1]).unwrap_err(), &[5, 4]);
        assert!(writer.finish().is_err());
        assert_eq!(folder.names(), [""; 0], "{format}");
    }
}

#[test]
fn missing_and_repeated_tensors_are_errors() {
    let folder = Folder::new();
    for format in [FileFormat::Npz, FileFormat::Safetensors] {
        let make = || {
            FileWriter::create(folder.path("x"), format, &[spec("a"), spec("b")], WriteOptions::default())
                .unwrap()
        };
        let mut writer = make();
        assert_eq!(hint_of(&writer.write(&[1]).unwrap_err()), hints::BEGIN_EACH_TENSOR_ONCE);
        writer.write_tensor(1, &[1; 4]).unwrap();
        assert_eq!(hint_of(&writer.begin(1).unwrap_err()), hints::BEGIN_EACH_TENSOR_ONCE);
        assert_numbers(&writer.begin(2).unwrap_err(), &[2]);
        assert_eq!(hint_of(&writer.finish().unwrap_err()), hints::WRITE_ALL_TENSORS);
        let mut writer = make();
        writer.begin(0).unwrap();
        assert_numbers(&writer.begin(1).unwrap_err(), &[0, 4]);
    }
    assert_eq!(folder.names(), [""; 0]);
}

#[test]
fn permissions_are_kept() {
    let folder = Folder::new();
    let path = folder.put("x", b"old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    save(&path, 1).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
}

#[test]
fn a_new_file_has_the_permissions_of_any_new_file() {
    let folder = Folder::new();
    save(&folder.path("ours"), 1).unwrap();
    folder.put("other", b"");
    let mode = |name: &str| std::fs::metadata(folder.path(name)).unwrap().mode();
    assert_eq!(mode("ours"), mode("other"));
}

#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    let folder = Folder::new();
    let path = folder.put("x", b"old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    std::fs::set_permissions(folder.path("."), std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = std::thread::scope(|scope| {
        let attempt = scope.spawn(|| {
            // Root may write any file, so this thread becomes an unprivileged user. The call changes this thread only, unlike
            // the C library's function.
            if geteuid().is_root() {
                let nobody = Uid::from_raw(65_534);
                set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            // The user may write to the folder.
            save(&folder.path("another"), 1).unwrap();
            save(&path, 1).unwrap_err()
        });
        attempt.join().unwrap()
    });
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::EACCES)));
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
}

#[test]
fn the_target_of_a_link_is_replaced() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path("sub")).unwrap();
    symlink("sub/target", folder.path("one")).unwrap();
    symlink("one", folder.path("two")).unwrap();
    for byte in [1, 2] {
        // The first target does not exist.
        save(&folder.path("two"), byte).unwrap();
        assert_eq!(std::fs::read(folder.path("sub/target")).unwrap(), [byte; 4]);
        assert!(std::fs::symlink_metadata(folder.path("two")).unwrap().is_symlink());
    }
    symlink("loop", folder.path("loop")).unwrap();
    assert_eq!(save(&folder.path("loop"), 1).unwrap_err().errno(), Some(libc::ELOOP));
}

#[test]
fn targets_that_are_not_regular_files_are_rejected() {
    let folder = Folder::new();
    assert_eq!(hint_of(&save(&folder.0, 1).unwrap_err()), hints::PASS_REGULAR_FILE);
    assert_eq!(hint_of(&save(Path::new("/dev/null"), 1).unwrap_err()), hints::PASS_REGULAR_FILE);
    let error = save(&folder.path("missing/x"), 1).unwrap_err();
    assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::ENOENT)));
}

#[test]
fn the_longest_name_can_be_saved() {
    let folder = Folder::new();
    let name = "x".repeat(255);
    save(&folder.path(&name), 1).unwrap();
    save(&folder.path(&name), 2).unwrap();
    assert_eq!(folder.names(), [name]);
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    // A limit on the size of files replaces a full disk. It applies to a child process.
    if std::env::var_os("TENSORFERRY_FULL").is_none() {
        // The kernel would end the child with a signal, as it does any program that does not ignore it.
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_full_disk_leaves_the_old_file"])
            .env("TENSORFERRY_FULL", "1")
            .output()
            .unwrap();
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stdout));
        assert!(!String::from_utf8_lossy(&status.stderr).contains("ZipWriter"));
        return;
    }
    let folder = Folder::new();
    let path = folder.put("x", b"old");
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) }).unwrap();
    for format in WRITABLE_FORMATS {
        let large = TensorSpec::new("a", DType::UInt8, &[4 << 20]);
        let options = WriteOptions { threads: 2, ..WriteOptions::default() };
        let mut writer = FileWriter::create(&path, format, &[large], options).unwrap();
        let error = writer.write_tensor(0, &vec![1; 4 << 20]).unwrap_err();
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Io, Some(libc::EFBIG)), "{format}");
        assert!(writer.finish().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(folder.names(), ["x"]);
    }
}

#[test]
fn a_killed_process_leaves_the_old_file() {
    if let Some(path) = std::env::var_os("TENSORFERRY_KILLED") {
        let mut writer = writer(Path::new(&path), FileFormat::Npy).unwrap();
        writer.write_tensor(0, &[1; 4]).unwrap();
        kill_process(getpid(), Signal::KILL).unwrap();
    }
    let folder = Folder::new();
    let path = folder.put("x.npy", b"old");
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_killed_process_leaves_the_old_file"])
        .env("TENSORFERRY_KILLED", &path)
        .output()
        .unwrap();
    assert!(!status.status.success());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    let names = folder.names();
    // File systems without O_TMPFILE keep the hidden file.
    assert!(
        names == ["x.npy"] || names.iter().all(|name| name == "x.npy" || name.starts_with(".tensorferry-"))
    );
}

#[test]
fn readers_see_one_version_while_writers_replace_it() {
    let folder = Folder::new();
    let path = folder.path("x.npy");
    let write = |byte: u8| {
        let spec = TensorSpec::new("", DType::UInt8, &[70_000]);
        let options = WriteOptions { durable: false, ..WriteOptions::default() };
        let mut writer = FileWriter::create(&path, FileFormat::Npy, &[spec], options).unwrap();
        writer.write_tensor(0, &vec![byte; 70_000]).unwrap();
        writer.finish().unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        for byte in [1, 2] {
            let write = &write;
            scope.spawn(move || (0..100).for_each(|_| write(byte)));
        }
        for _ in 0..200 {
            let opened = open(&path, &OpenOptions::default()).unwrap();
            let bytes = common::read(&opened, &opened.entries()[0], 1).unwrap();
            assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        }
    });
    assert_eq!(folder.names(), ["x.npy"]);
}

#[test]
fn unsupported_tensors_are_rejected_before_anything_is_written() {
    let folder = Folder::new();
    let path = folder.path("x");
    let fails = |format: FileFormat, specs: &[TensorSpec], options: WriteOptions| {
        let error = FileWriter::create(&path, format, specs, options).unwrap_err();
        assert_eq!(folder.names(), [""; 0]);
        hint_of(&error)
    };
    let default = WriteOptions::default;
    let big = TensorSpec { order: ByteOrder::Swapped, ..TensorSpec::new("a", DType::Float32, &[2]) };
    let fortran = TensorSpec { fortran: true, ..TensorSpec::new("a", DType::Float32, &[2, 2]) };
    for format in [FileFormat::Safetensors, FileFormat::TensorProto] {
        assert_eq!(fails(format, std::slice::from_ref(&big), default()), hints::CONVERT_ORDER_FIRST);
        assert_eq!(fails(format, std::slice::from_ref(&fortran), default()), hints::CONVERT_ORDER_FIRST);
    }
    for format in [FileFormat::Npz, FileFormat::Safetensors] {
        assert_eq!(fails(format, &[spec("a"), spec("a")], default()), hints::RENAME_TENSOR);
    }
    for format in [FileFormat::Npy, FileFormat::TensorProto, FileFormat::Raw] {
        assert_eq!(fails(format, &[spec("a"), spec("b")], default()), hints::SAVE_AS_ARCHIVE);
    }
    for name in ["", "../a", "/a", "a\\b"] {
        fails(FileFormat::Npz, &[spec(name)], default());
    }
    fails(FileFormat::Safetensors, &[spec("__metadata__")], default());
    let twice = vec![("k".to_owned(), "1".to_owned()), ("k".to_owned(), "2".to_owned())];
    fails(FileFormat::Safetensors, &[spec("a")], WriteOptions { metadata: twice, ..default() });
    fails(FileFormat::SafetensorsIndex, &[spec("a")], default());
    fails(FileFormat::Npy, &[TensorSpec::new("", DType::Int8, &[1; 65])], default());
    fails(FileFormat::TensorProto, &[TensorSpec::new("", DType::Float6E2M3Fn, &[1])], default());
    fails(
        FileFormat::TensorProto,
        &[TensorSpec::new("", DType::UInt8, &[1 << 31])],
        WriteOptions { dialect: Dialect::TensorFlow, ..default() },
    );
    assert!(
        FileWriter::create(&path, FileFormat::Npy, &[TensorSpec::new("", DType::Int8, &[-1])], default())
            .is_err()
    );
}

//! The limit on file sizes (`ulimit -f`) is an error with a hint in a program that does not ignore `SIGXFSZ`.

#![cfg(all(feature = "files", feature = "share"))]
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use rustix::process::{Resource, Rlimit, setrlimit};
use std::process::Command;
use support::Folder;
use tensorferry::files::{FileWriter, TensorSpec, WriteOptions, save};
use tensorferry::share::{PublishOptions, publish};
use tensorferry::{DType, Error, ErrorKind, Tensor};

/// Tells this program that it is the child with the limit.
const CHILD: &str = "TENSORFERRY_FILE_SIZE_LIMIT";
const LIMIT_BYTES: usize = 1 << 16;

fn assert_too_large(what: &str, error: &Error) {
    let errno = error.errno().map(|errno| std::io::Error::from_raw_os_error(errno).kind());
    assert_eq!((error.kind(), errno), (ErrorKind::Io, Some(std::io::ErrorKind::FileTooLarge)), "{what}");
    assert!(error.hint().unwrap().contains("ulimit -f"), "{what}: {error}");
}

#[test]
fn the_limit_is_an_error_in_files_and_in_shared_memory() {
    if std::env::var_os(CHILD).is_none() {
        // The limit is that of a process, and this one has other tests.
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_limit_is_an_error_in_files_and_in_shared_memory"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stdout));
        return;
    }
    let limit = Some(LIMIT_BYTES as u64);
    setrlimit(Resource::Fsize, Rlimit { current: limit, maximum: limit }).unwrap();
    let folder = Folder::new();
    let large = Tensor::zeros(DType::UInt8, &[LIMIT_BYTES + 1]).unwrap();
    for extension in ["safetensors", "npy", "npz"] {
        let path = folder.file(&format!("large.{extension}"));
        assert_too_large(extension, &save(&path, [("x", &large)]).unwrap_err());
        assert!(!path.exists());
        save(&path, [("x", &large.narrow(0, 0, 1000).unwrap())]).unwrap();
    }

    // The headers of many small tensors exceed the limit before the first value.
    let specs: Vec<TensorSpec> =
        (0..4000).map(|index| TensorSpec::new(format!("{index}"), DType::UInt8, &[1])).collect();
    let path = folder.file("headers.safetensors");
    let error = FileWriter::create(&path, &specs, WriteOptions::new()).unwrap_err();
    assert_too_large("headers", &error);

    let large_shared = 32 << 20;
    assert_too_large("zeros_shared", &Tensor::zeros_shared(DType::UInt8, &[large_shared]).unwrap_err());
    assert_too_large("publish", &publish(&large, &PublishOptions::new()).unwrap_err());
}

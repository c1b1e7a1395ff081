//! Memory that runs out is an error, and idle memory is returned. The limit is that of a child process (`RLIMIT_AS`).

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::Command;
use tensorferry::{DType, ErrorKind, Tensor};

/// Tells this program that it is the child with the limit.
const CHILD: &str = "TENSORFERRY_MEMORY_LIMIT";
const MATRIX_BYTES: usize = 64 << 20;

/// Lets this process map no more than `more` bytes beyond what it has mapped.
fn limit_address_space(more: usize) {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').next().unwrap().parse().unwrap();
    let current = Some(pages * rustix::param::page_size() as u64 + more as u64);
    setrlimit(Resource::As, Rlimit { current, maximum: getrlimit(Resource::As).maximum }).unwrap();
}

#[test]
fn to_vec_allocates_once_and_reports_that_memory_ran_out() {
    if std::env::var_os(CHILD).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "to_vec_allocates_once_and_reports_that_memory_ran_out"])
            .env(CHILD, "1")
            // AddressSanitizer would keep the memory of a dropped vector.
            .env("ASAN_OPTIONS", "allocator_may_return_null=1:quarantine_size_mb=0")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stdout));
        return;
    }
    let matrix = Tensor::zeros(DType::Float32, &[1024, MATRIX_BYTES / 4096]).unwrap();
    let transposed = matrix.permute(&[1, 0]).unwrap();
    // The helper threads get their stacks before the limit.
    drop(transposed.narrow(0, 0, 4096).unwrap().to_vec::<f32>().unwrap());
    limit_address_space(MATRIX_BYTES * 3 / 2);
    for tensor in [&matrix, &transposed] {
        let values = tensor.to_vec::<f32>().unwrap();
        assert_eq!((values.len(), values.capacity()), (tensor.len(), tensor.len()));
    }
    limit_address_space(MATRIX_BYTES / 2);
    for tensor in [&matrix, &transposed] {
        let error = tensor.to_vec::<f32>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.fact().contains(&MATRIX_BYTES.to_string()) && error.hint().is_some(), "{error}");
    }
}

#[test]
fn idle_memory_is_returned() {
    drop(Tensor::zeros(DType::UInt8, &[MATRIX_BYTES]).unwrap().pack().unwrap());
    drop(Tensor::zeros_shared(DType::UInt8, &[MATRIX_BYTES]).unwrap());
    assert!(tensorferry::empty_cache() >= 2 * MATRIX_BYTES);
    assert_eq!(tensorferry::empty_cache(), 0);
}

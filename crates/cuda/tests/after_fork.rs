//! A process that may not use CUDA any more, as the forked child of one that did.
//!
//! `make test-rust` puts the test driver on the library path.

#![expect(clippy::expect_used, reason = "a panic is a failed test")]

mod common;

use common::{calls, gpu};
use tensorferry_core::ErrorKind;
use tensorferry_cuda::{DeviceBlock, RingOptions, Stream, SyncPoint, driver};

/// The driver functions that the calls below would use.
const FUNCTIONS: [&std::ffi::CStr; 5] = [
    c"cuThreadExchangeStreamCaptureMode",
    c"cuCtxGetCurrent",
    c"cuMemFreeAsync",
    c"cuStreamSynchronize",
    c"cuMemHostRegister_v2",
];

#[test]
fn a_forked_child_calls_no_driver_function() {
    let gpu = gpu();
    let block = DeviceBlock::new(gpu, 64, Stream::LEGACY).unwrap();
    driver::after_fork();
    let before = FUNCTIONS.map(calls);
    let ring = RingOptions { threads: 2, chunk: 256 << 10, saves_memory: false, batched: false };
    let error = gpu.allocate_download(8 << 20, ring).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    assert!(gpu.wait(SyncPoint::AllStreams).is_err() && gpu.memory().is_err());
    drop(block);
    assert_eq!(FUNCTIONS.map(calls), before);
}

//! Transfers over the test driver: every type and layout returns, and memory is freed.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic")]

mod support;

use libloading::Library;
use support::{bytes_of, dense, layouts, strided};
use tensorferry::cuda::gpu_count;
use tensorferry::{DType, Device, ErrorKind, Tensor};

/// The bytes of GPU memory in use, according to the test driver.
fn used_bytes() -> usize {
    let is_missing = "libcuda.so.1 is not the test driver: run `make test-rust`";
    // SAFETY: `get` needs the type of the symbol, which is that of `crates/testdriver/src/control.rs`. The initialisers of the
    // test driver do nothing, and it stays loaded because the driver is.
    unsafe {
        let library = Library::new("libcuda.so.1").expect(is_missing);
        let used = *library.get::<extern "C" fn() -> usize>("testdriver_used").expect(is_missing);
        used()
    }
}

/// One test, because the test driver counts the memory of the process.
#[test]
fn tensors_cross_to_the_gpu_and_back() {
    assert!(gpu_count().unwrap() > 0);
    // The first transfers allocate buffers that stay.
    drop(dense(DType::UInt8, &[64]).to_gpu(0).unwrap().to_host().unwrap());
    let before = used_bytes();
    for dtype in DType::all() {
        for layout in layouts() {
            let bytes = bytes_of(dtype, layout.elements);
            let source = strided(&bytes, dtype, &layout);
            let on_gpu = source.to_gpu(0).unwrap();
            assert_eq!(
                (on_gpu.device(), on_gpu.dtype(), on_gpu.shape()),
                (Device::cuda(0), dtype, source.shape())
            );
            assert!(on_gpu.is_dense() && on_gpu.as_bytes().is_err());
            let returned = on_gpu.to_host().unwrap();
            assert_eq!(returned.device(), Device::CPU);
            assert_eq!(
                returned.as_bytes().unwrap(),
                layout.gather(&bytes, dtype.size()),
                "{dtype} {layout:?}"
            );
        }
    }
    // A transposed view is packed on its path.
    let matrix = dense(DType::Int32, &[30, 40]);
    let transposed = matrix.to_gpu(0).unwrap().permute(&[1, 0]).unwrap();
    let expected = matrix.permute(&[1, 0]).unwrap().to_vec::<i32>().unwrap();
    assert_eq!(transposed.to_host().unwrap().as_slice::<i32>().unwrap(), expected);
    drop(transposed);
    // Large tensors take the ring buffer.
    let large = dense(DType::UInt8, &[(5 << 20) + 3]);
    assert_eq!(large.to_gpu(0).unwrap().to_host().unwrap().as_bytes().unwrap(), large.as_bytes().unwrap());
    // The memory lives as long as the consumer of an export.
    let exported = matrix.to_gpu(0).unwrap().into_dlpack().unwrap();
    // SAFETY: `into_dlpack` returned the struct, and nothing else has it or its memory.
    let imported = unsafe { Tensor::from_dlpack(exported) }.unwrap();
    assert_eq!(imported.device(), Device::cuda(0));
    assert!(used_bytes() >= before + 4800);
    assert_eq!(imported.to_host().unwrap().to_vec::<i32>().unwrap(), matrix.to_vec::<i32>().unwrap());
    assert_eq!(imported.to_gpu(0).unwrap_err().kind(), ErrorKind::UnsupportedDevice);
    drop(imported);
    assert_eq!(used_bytes(), before, "all memory of tensors is freed");

    let error = matrix.to_gpu(1000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    assert!(error.fact().contains("1000") && error.hint().is_some());
    assert!(matrix.to_host().unwrap_err().hint().is_some());
}

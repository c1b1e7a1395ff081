//! Tests of ordering, copies and errors against the test driver, which runs queued work only when something waits for it.
//!
//! `make test-rust` puts the test driver on the library path.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is a failed test")]

use std::ffi::CString;
use tensorferry_core::{ByteOrder, DType, ErrorKind, Layout};
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath, device_of_address,
};

unsafe extern "C" {
    fn dlopen(name: *const i8, flags: i32) -> *mut std::ffi::c_void;
    fn dlsym(library: *mut std::ffi::c_void, name: *const i8) -> *mut std::ffi::c_void;
}

/// Makes one call of a driver function fail: the next one, or a later one.
fn fail(name: &str, after: u64, status: i32) {
    let name = CString::new(name).unwrap();
    // SAFETY: the test driver has this function, of this type; the assertion checks that it is loaded.
    unsafe {
        let library = dlopen(c"libcuda.so.1".as_ptr(), 2);
        let function = dlsym(library, c"testdriver_fail".as_ptr());
        assert!(!function.is_null(), "libcuda.so.1 is not the test driver: run `make test-rust`");
        let function: extern "C" fn(*const i8, u64, i32) = std::mem::transmute(function);
        function(name.as_ptr(), after, status);
    }
}

fn gpu() -> &'static Gpu {
    Gpu::get(0).expect("the test driver: run `make test-rust`")
}

const RING: RingOptions = RingOptions { threads: 2, chunk: 256 << 10, saves_memory: false, batched: false };

/// Bytes as a tensor.
fn byte_source(data: *const u8, layout: &Layout) -> DeviceSource<'_> {
    DeviceSource { data, dtype: DType::UInt8, layout, order: ByteOrder::Native }
}

unsafe fn upload(
    gpu: &'static Gpu,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    stream: Stream,
) -> tensorferry_core::Result<()> {
    let layout = Layout::dense(1, &[bytes as i64])?;
    let source = byte_source(from, &layout);
    // SAFETY: the callers of these tests vouch for their memory.
    unsafe { gpu.upload(&source, to, DType::UInt8, stream, RING, &TransferControl::default()) }
}

unsafe fn download(
    gpu: &'static Gpu,
    from: *const u8,
    to: *mut u8,
    bytes: usize,
    stream: Stream,
) -> tensorferry_core::Result<()> {
    let layout = Layout::dense(1, &[bytes as i64])?;
    let source = byte_source(from, &layout);
    let to = HostDestination { data: to, dtype: DType::UInt8, layout: &layout };
    // SAFETY: the callers of these tests vouch for their memory.
    unsafe {
        gpu.download(
            &source,
            &to,
            SyncPoint::Stream(stream),
            TransferPath::Driver,
            &TransferControl::default(),
        )
    }
}

/// Device memory for work on the default stream.
fn block(bytes: usize) -> DeviceBlock {
    DeviceBlock::new(gpu(), bytes, Stream::LEGACY).unwrap()
}

fn source(data: *const u8, layout: &Layout) -> DeviceSource<'_> {
    DeviceSource { data, dtype: DType::Float32, layout, order: ByteOrder::Native }
}

// One test runs all of them in order: the streams and injected errors of the test driver belong to the process.
#[test]
fn one_process() {
    missing_devices();
    ordered_work_is_visible();
    packing_and_casting();
    driver_errors();
}

fn missing_devices() {
    assert_eq!(Gpu::count().unwrap(), 2);
    for index in [2, 63, 64, -1] {
        let error = Gpu::get(index).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
        assert!(error.fact().contains("cuda:0 to cuda:1"), "{error}");
    }
    let mut here = 0u8;
    assert!(device_of_address(&raw mut here as usize).unwrap().is_host());
    assert!(device_of_address(block(8).data() as usize).unwrap().is_cuda());
}

fn ordered_work_is_visible() {
    let gpu = gpu();
    let (work, reader) = (gpu.sync_stream().unwrap(), Stream::LEGACY);
    let layout = Layout::dense(4, &[3]).unwrap();
    let values = [1f32, 2.0, 3.0];
    let device = block(12);
    let other = block(12);
    let (mut old, mut new) = ([0f32; 3], [0f32; 3]);
    // SAFETY: blocks and arrays of twelve bytes, alive until the end.
    unsafe {
        upload(gpu, values.as_ptr().cast(), device.data(), 12, reader).unwrap();
        gpu.convert(&source(device.data(), &layout), other.data(), DType::Float32, work).unwrap();
        // A reader that does not wait sees the old values.
        download(gpu, other.data(), old.as_mut_ptr().cast(), 12, reader).unwrap();
        assert_ne!(old, values);
        assert!(!gpu.is_done(SyncPoint::Stream(work)).unwrap());
        gpu.order(SyncPoint::Stream(work), SyncPoint::Stream(reader)).unwrap();
        download(gpu, other.data(), new.as_mut_ptr().cast(), 12, reader).unwrap();
        assert_eq!(new, values);
        assert!(gpu.is_done(SyncPoint::Stream(work)).unwrap() && gpu.is_done(SyncPoint::Complete).unwrap());
        assert!(!gpu.is_done(SyncPoint::AllStreams).unwrap());
        // The same with a sync point that is all streams.
        for (before, after) in [
            (SyncPoint::AllStreams, SyncPoint::Stream(reader)),
            (SyncPoint::Stream(work), SyncPoint::AllStreams),
        ] {
            upload(gpu, [0f32; 3].as_ptr().cast(), other.data(), 12, reader).unwrap();
            gpu.convert(&source(device.data(), &layout), other.data(), DType::Float32, work).unwrap();
            gpu.order(before, after).unwrap();
            download(gpu, other.data(), new.as_mut_ptr().cast(), 12, reader).unwrap();
            assert_eq!(new, values);
        }
    }
}

fn packing_and_casting() {
    let gpu = gpu();
    let values: Vec<f32> = (0..6 * 8).map(|i| i as f32 - 20.5).collect();
    let device = block(values.len() * 4);
    let packed = block(values.len() * 8);
    let layouts: [(&[i64], &[i64]); 4] =
        [(&[8, 6], &[4, 32]), (&[3, 4], &[64, 8]), (&[2, 8, 3], &[96, 4, 32]), (&[48], &[-4])];
    // SAFETY: blocks that hold the values, in the larger type too.
    unsafe {
        upload(gpu, values.as_ptr().cast(), device.data(), values.len() * 4, Stream::LEGACY).unwrap();
        for (shape, strides) in layouts {
            let layout = Layout::strided(4, shape, strides).unwrap();
            let start = if strides[0] < 0 { device.data().add(47 * 4) } else { device.data() };
            let mut expected = Vec::new();
            let mut index = vec![0i64; shape.len()];
            for _ in 0..layout.count() {
                let offset: i64 = index.iter().zip(strides).map(|(i, s)| i * s).sum();
                let first = if strides[0] < 0 { 47 } else { 0 };
                expected.push(values[(first + offset / 4) as usize]);
                for axis in (0..shape.len()).rev() {
                    index[axis] += 1;
                    if index[axis] < shape[axis] {
                        break;
                    }
                    index[axis] = 0;
                }
            }
            let count = layout.count();
            gpu.convert(&source(start, &layout), packed.data(), DType::Float32, Stream::LEGACY).unwrap();
            let mut found = vec![0f32; count];
            download(gpu, packed.data(), found.as_mut_ptr().cast(), count * 4, Stream::LEGACY).unwrap();
            assert_eq!(found, expected);
            gpu.convert(&source(start, &layout), packed.data(), DType::Float64, Stream::LEGACY).unwrap();
            let mut found = vec![0f64; count];
            download(gpu, packed.data(), found.as_mut_ptr().cast(), count * 8, Stream::LEGACY).unwrap();
            assert!(found.iter().zip(&expected).all(|(f, e)| *f == f64::from(*e)));
        }
        // A copy to the other GPU.
        let far = DeviceBlock::new(Gpu::get(1).unwrap(), 8, Stream::LEGACY).unwrap();
        gpu.copy_to(Gpu::get(1).unwrap(), device.data(), far.data(), 8, Stream::LEGACY).unwrap();
        let mut found = [0f32; 2];
        download(Gpu::get(1).unwrap(), far.data(), found.as_mut_ptr().cast(), 8, Stream::LEGACY).unwrap();
        assert_eq!(found, values[..2]);
    }
}

fn driver_errors() {
    let gpu = gpu();
    let error = DeviceBlock::new(gpu, 1 << 40, Stream::LEGACY).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.fact().contains("1099511627776 bytes on cuda:0"), "{error}");
    let device = block(64);
    let layout = Layout::strided(4, &[2, 2], &[4, 16]).unwrap();
    let mut found = [0u8; 16];
    // SAFETY: a block and an array that are large enough.
    unsafe {
        fail("cuLaunchKernel", 0, 719);
        let error =
            gpu.convert(&source(device.data(), &layout), device.data(), DType::Float64, Stream::LEGACY);
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceFailed);
        assert!(error.fact().contains("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"), "{error}");
        fail("cuMemcpyDtoHAsync_v2", 0, 12_345);
        let error = download(gpu, device.data(), found.as_mut_ptr(), 16, Stream::LEGACY).unwrap_err();
        assert!(error.fact().contains("error 12345"), "{error}");
        // Later calls succeed.
        download(gpu, device.data(), found.as_mut_ptr(), 16, Stream::LEGACY).unwrap();
    }
}

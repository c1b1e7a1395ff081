//! Tests of ordering, copies and errors against the test driver, which runs queued work only when something waits for it.
//!
//! `make test-rust` puts the test driver on the library path.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is a failed test")]

mod common;

use common::{calls, download, fail, gpu, upload};
use tensorferry_core::{ByteOrder, DType, ErrorKind, Layout};
use tensorferry_cuda::{DeviceBlock, DeviceSource, Gpu, Stream, SyncPoint, device_of_address};

/// Device memory for work on the default stream.
fn block(bytes: usize) -> DeviceBlock {
    DeviceBlock::new(gpu(), bytes, Stream::LEGACY).unwrap()
}

fn source(data: *const u8, layout: &Layout) -> DeviceSource<'_> {
    DeviceSource { data, dtype: DType::Float32, layout, order: ByteOrder::Native }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn floats_of(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
}

// One test runs all of them in order: the streams and injected errors of the test driver belong to the process.
#[test]
fn one_process() {
    missing_devices();
    ordered_work_is_visible();
    blocks_outlive_the_work_of_another_thread();
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
    let values = bytes_of(&[1.0, 2.0, 3.0]);
    let device = block(12);
    let other = block(12);
    // SAFETY: the source and the target are blocks of twelve bytes, and live until the end, when `work` has passed the copies.
    let copy = || unsafe {
        gpu.convert(&source(device.data(), &layout), other.data(), DType::Float32, work).unwrap();
    };
    let seen = || download(gpu, &other, 12, reader).unwrap();
    upload(gpu, &values, &device, reader).unwrap();
    copy();
    // A reader that does not wait sees the old values.
    assert_ne!(seen(), values);
    assert!(!gpu.is_done(SyncPoint::Stream(work)).unwrap());
    gpu.order(SyncPoint::Stream(work), SyncPoint::Stream(reader)).unwrap();
    assert_eq!(seen(), values);
    assert!(gpu.is_done(SyncPoint::Stream(work)).unwrap() && gpu.is_done(SyncPoint::Complete).unwrap());
    assert!(!gpu.is_done(SyncPoint::AllStreams).unwrap());
    // The same with a sync point that is all streams.
    for (before, after) in
        [(SyncPoint::AllStreams, SyncPoint::Stream(reader)), (SyncPoint::Stream(work), SyncPoint::AllStreams)]
    {
        upload(gpu, &[0; 12], &other, reader).unwrap();
        copy();
        gpu.order(before, after).unwrap();
        assert_eq!(seen(), values);
    }
    gpu.wait(SyncPoint::Stream(work)).unwrap();
}

/// The default stream of a thread is another stream on the thread that drops the block.
fn blocks_outlive_the_work_of_another_thread() {
    let gpu = gpu();
    // SAFETY: 2 is the handle of the calling thread's default stream.
    let own_stream = unsafe { Stream::from_handle(2) };
    for allocate in [DeviceBlock::new, DeviceBlock::new_exportable] {
        let (from, to) = (allocate(gpu, 12, own_stream).unwrap(), block(12));
        let layout = Layout::dense(4, &[3]).unwrap();
        // SAFETY: the source and the target are blocks of twelve bytes. The drop of the source waits for the copy.
        unsafe { gpu.convert(&source(from.data(), &layout), to.data(), DType::Float32, own_stream).unwrap() };
        let waits = calls(c"cuCtxSynchronize");
        std::thread::spawn(move || drop(from)).join().unwrap();
        assert_eq!(calls(c"cuCtxSynchronize"), waits + 1);
        // The thread itself orders the release without a wait.
        drop(allocate(gpu, 12, own_stream).unwrap());
        assert_eq!(calls(c"cuCtxSynchronize"), waits + 1);
    }
}

fn packing_and_casting() {
    let gpu = gpu();
    let values: Vec<f32> = (0..6 * 8).map(|i| i as f32 - 20.5).collect();
    let device = block(values.len() * 4);
    let packed = block(values.len() * 8);
    let layouts: [(&[i64], &[i64]); 4] =
        [(&[8, 6], &[4, 32]), (&[3, 4], &[64, 8]), (&[2, 8, 3], &[96, 4, 32]), (&[48], &[-4])];
    upload(gpu, &bytes_of(&values), &device, Stream::LEGACY).unwrap();
    for (shape, strides) in layouts {
        let layout = Layout::strided(4, shape, strides).unwrap();
        let first = if strides[0] < 0 { 47 } else { 0 };
        let start = device.data().wrapping_add(first as usize * 4);
        let mut expected = Vec::new();
        let mut index = vec![0i64; shape.len()];
        for _ in 0..layout.count() {
            let offset: i64 = index.iter().zip(strides).map(|(i, s)| i * s).sum();
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
        for dtype in [DType::Float32, DType::Float64] {
            // SAFETY: the layouts lie within the 48 values of `device`, `packed` has room for as many of eight bytes, and both
            // live until `download` has waited for the stream.
            unsafe { gpu.convert(&source(start, &layout), packed.data(), dtype, Stream::LEGACY).unwrap() };
            let found = download(gpu, &packed, count * dtype.size(), Stream::LEGACY).unwrap();
            if dtype == DType::Float32 {
                assert_eq!(floats_of(&found), expected);
            } else {
                let found = found.as_chunks().0.iter().map(|bytes| f64::from_ne_bytes(*bytes));
                assert!(found.eq(expected.iter().map(|value| f64::from(*value))));
            }
        }
    }
    // A copy to the other GPU.
    let other = Gpu::get(1).unwrap();
    let far = DeviceBlock::new(other, 8, Stream::LEGACY).unwrap();
    // SAFETY: both blocks have eight bytes, and live until `download` has waited for the stream.
    unsafe { gpu.copy_to(other, device.data(), far.data(), 8, Stream::LEGACY).unwrap() };
    assert_eq!(floats_of(&download(other, &far, 8, Stream::LEGACY).unwrap()), values[..2]);
}

fn driver_errors() {
    let gpu = gpu();
    let error = DeviceBlock::new(gpu, 1 << 40, Stream::LEGACY).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.fact().contains("1099511627776 bytes on cuda:0"), "{error}");
    let (device, target) = (block(64), block(64));
    let layout = Layout::strided(4, &[2, 2], &[4, 16]).unwrap();
    fail(c"cuLaunchKernel", 0, 719);
    // SAFETY: the layout lies within the 64 bytes of `device`, and `target` has room for four numbers of eight bytes.
    let error = unsafe {
        gpu.convert(&source(device.data(), &layout), target.data(), DType::Float64, Stream::LEGACY)
    };
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceFailed);
    assert!(error.fact().contains("CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure"), "{error}");
    fail(c"cuMemcpyDtoHAsync_v2", 0, 12_345);
    let error = download(gpu, &device, 16, Stream::LEGACY).unwrap_err();
    assert!(error.fact().contains("error 12345"), "{error}");
    // Later calls succeed.
    download(gpu, &device, 16, Stream::LEGACY).unwrap();
}

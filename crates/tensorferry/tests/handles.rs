//! Handles on memory: who may write, what exports say, and when memory is released.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use support::{Strided, bytes_of, dense, export, layouts};
use tensorferry::dlpack::{
    FLAG_READ_ONLY, ManagedTensor, ManagedTensorVersioned, RawDType, RawDevice, RawTensor, Version,
};
use tensorferry::{ConvertOptions, DType, ErrorKind, Tensor};

fn row() -> Strided {
    Strided { elements: 4, offset: 0, shape: vec![4], strides: vec![1] }
}

fn flags(managed: NonNull<ManagedTensorVersioned>) -> u64 {
    // SAFETY: `into_dlpack` returned the struct, and it is not released.
    unsafe { managed.as_ref().flags }
}

/// Imports what this crate has exported.
fn reimport(managed: NonNull<ManagedTensorVersioned>) -> Tensor {
    // SAFETY: `into_dlpack` returned the struct. Handles that remain see the memory as shared, and do not write it.
    unsafe { Tensor::from_dlpack(managed) }.unwrap()
}

#[test]
fn tensors_are_sent_and_shared_between_threads() {
    let tensor = dense(DType::Int32, &[1000]);
    let expected = tensor.to_vec::<i32>().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let clone = tensor.clone();
            scope.spawn(|| {
                assert_eq!(tensor.as_slice::<i32>().unwrap(), expected);
                let clone = clone;
                assert_eq!(clone.as_slice::<i32>().unwrap(), expected);
            });
        }
    });
    let mut tensor = tensor;
    assert!(tensor.as_mut_slice::<i32>().is_ok(), "the clones are dropped");
}

#[test]
fn only_the_last_handle_writes() {
    let mut tensor = dense(DType::UInt8, &[2, 3]);
    type View = fn(&Tensor) -> Tensor;
    let views: [View; 5] = [
        |tensor| tensor.clone(),
        |tensor| tensor.select(0, 1).unwrap(),
        |tensor| tensor.narrow(1, 0, 0).unwrap(),
        |tensor| tensor.reshape(&[6]).unwrap(),
        |tensor| tensor.permute(&[1, 0]).unwrap(),
    ];
    for view in views {
        let mut other = view(&tensor);
        for error in [
            tensor.as_mut_slice::<u8>().unwrap_err(),
            tensor.as_bytes_mut().unwrap_err(),
            tensor.as_ndarray_mut::<u8>().unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.hint().unwrap().contains("pack()"));
        }
        assert!(other.as_mut_slice::<u8>().is_err());
        let copy = tensor.pack().unwrap();
        drop(other);
        tensor.as_mut_slice::<u8>().unwrap()[0] += 1;
        assert_eq!(copy.as_slice::<u8>().unwrap()[0] + 1, tensor.as_slice::<u8>().unwrap()[0]);
    }
}

#[test]
fn read_only_memory_is_not_written() {
    let mut tensor = dense(DType::UInt8, &[4]);
    tensor.set_read_only();
    assert!(!tensor.is_writable());
    assert!(tensor.as_mut_slice::<u8>().is_err() && tensor.as_bytes_mut().is_err());
    assert!(tensor.pack().unwrap().as_mut_slice::<u8>().is_ok());
    let managed = tensor.into_dlpack().unwrap();
    assert_eq!(flags(managed) & FLAG_READ_ONLY, FLAG_READ_ONLY);
    assert!(!reimport(managed).is_writable());
}

#[test]
fn exports_are_read_only_if_another_handle_exists() {
    let alone = dense(DType::Float32, &[3]).into_dlpack().unwrap();
    assert_eq!(flags(alone) & FLAG_READ_ONLY, 0);
    assert!(reimport(alone).as_mut_slice::<f32>().is_ok());

    let mut remaining = dense(DType::Float32, &[3]);
    let managed = remaining.clone().into_dlpack().unwrap();
    assert_eq!(flags(managed) & FLAG_READ_ONLY, FLAG_READ_ONLY);
    // The consumer reads the memory until it calls the deleter.
    assert!(remaining.as_mut_slice::<f32>().is_err());
    drop(reimport(managed));
    assert!(remaining.as_mut_slice::<f32>().is_ok());
}

#[test]
fn every_type_and_layout_crosses_dlpack() {
    for dtype in DType::all() {
        for layout in layouts() {
            let bytes = bytes_of(dtype, layout.elements);
            let (managed, released) = export(&bytes, dtype, &layout, 0);
            // SAFETY: `export` made a valid struct over memory with values, which nothing else has.
            let tensor = unsafe { Tensor::from_dlpack(managed) }.unwrap();
            let again = reimport(tensor.into_dlpack().unwrap());
            assert_eq!((again.dtype(), again.shape()), (dtype, &layout.shape()[..]));
            assert_eq!(again.pack().unwrap().as_bytes().unwrap(), layout.gather(&bytes, dtype.size()));
            assert_eq!(released.load(Ordering::SeqCst), 0);
            drop(again);
            assert_eq!(released.load(Ordering::SeqCst), 1, "{dtype} {layout:?}");
        }
    }
}

#[test]
fn the_deleter_runs_once_with_the_last_handle() {
    let (managed, released) = export(&[1, 2, 3, 4], DType::UInt8, &row(), FLAG_READ_ONLY);
    // SAFETY: `export` made a valid struct over memory with values, which nothing else has.
    let mut tensor = unsafe { Tensor::from_dlpack(managed) }.unwrap();
    assert!(!tensor.is_writable() && tensor.as_mut_slice::<u8>().is_err());
    let view = tensor.narrow(0, 1, 2).unwrap();
    drop(tensor);
    assert_eq!(view.as_slice::<u8>().unwrap(), [2, 3]);
    assert_eq!(released.load(Ordering::SeqCst), 0);
    drop(view);
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn a_refused_struct_is_released() {
    let (mut managed, released) = export(&[1, 2, 3, 4], DType::UInt8, &row(), 0);
    // SAFETY: the struct is valid, and this test is its only user.
    unsafe { managed.as_mut().version = Version { major: 9, minor: 0 } };
    // SAFETY: the struct is valid but for its version, which is refused.
    let error = unsafe { Tensor::from_dlpack(managed) }.unwrap_err();
    assert!(error.fact().contains("9.0") && error.hint().is_some(), "{error}");
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn memory_of_another_device_is_not_read() {
    let (mut managed, _) = export(&[1, 2, 3, 4], DType::UInt8, &row(), 0);
    // SAFETY: the struct is valid, and this test is its only user.
    unsafe { managed.as_mut().dl_tensor.device.device_type = 2 };
    // SAFETY: the struct is valid. No function of the test reads the memory as that of a GPU.
    let mut tensor = unsafe { Tensor::from_dlpack(managed) }.unwrap();
    assert_eq!(tensor.device().to_string(), "cuda:0");
    for error in [
        tensor.as_slice::<u8>().unwrap_err(),
        tensor.as_bytes().unwrap_err(),
        tensor.as_ndarray::<u8>().unwrap_err(),
        tensor.pack().unwrap_err(),
        tensor.cast(DType::Float32).unwrap_err(),
        tensor.plan(&ConvertOptions::new().dtype(DType::Float32)).unwrap_err(),
        tensor.as_bytes_mut().unwrap_err(),
        tensor.clone().into_arrow("x").unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
        assert!(error.fact().contains("cuda:0") && error.hint().is_some(), "{error}");
    }
    assert!(tensor.plan(&ConvertOptions::new()).unwrap().shares());
}

#[test]
fn plans_say_what_conversions_do() {
    let tensor = dense(DType::Float64, &[2, 3]);
    let plan = |tensor: &Tensor, options: &ConvertOptions| tensor.plan(options).unwrap();
    let options = ConvertOptions::new;
    assert!(plan(&tensor, &options()).shares() && plan(&tensor, &options().packed().writable()).shares());
    assert_eq!(plan(&tensor, &options().copy(true)).bytes(), 48);
    let transposed = tensor.permute(&[1, 0]).unwrap();
    assert!(plan(&transposed, &options()).shares());
    let both = plan(&transposed, &options().dtype(DType::Float32).packed());
    assert_eq!((both.bytes(), both.dtype(), both.reasons().count()), (24, DType::Float32, 2));
    let text = both.to_string();
    assert!(
        ["copy to 24 bytes", "cast: ", "pack: ", "float64", "float32"].iter().all(|part| text.contains(part)),
        "{text}"
    );
    // Two handles: a writable result is a copy.
    let writable = transposed.clone().convert(&options().writable()).unwrap();
    assert!(!plan(&transposed, &options().writable()).shares());
    assert_eq!(writable.to_vec::<f64>().unwrap(), transposed.to_vec::<f64>().unwrap());
    let complex = dense(DType::Complex64, &[1]);
    let error = complex.plan(&options().dtype(DType::Float32)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
    assert!(error.hint().unwrap().contains("Tensor::cast"));
}

#[test]
fn conversions_keep_to_their_limits() {
    let tensor = dense(DType::Float64, &[2, 3]).permute(&[1, 0]).unwrap();
    let error = tensor.plan(&ConvertOptions::new().packed().copy(false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CopyRequired);
    assert!(error.hint().unwrap().contains("copy(false)"));
    assert!(error.fact().starts_with("the conversion needs a copy: "), "{error}");
    let error = tensor.clone().convert(&ConvertOptions::new().packed().max_bytes(47)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.fact().contains("48") && error.fact().contains("47"));
    assert!(
        error.hint().unwrap().contains("max_bytes(47)") && !error.to_string().contains("budget"),
        "{error}"
    );
    assert!(tensor.convert(&ConvertOptions::new().packed().max_bytes(48)).is_ok());
}

/// A tensor of another library over two numbers, without a version.
struct Unversioned {
    values: [i32; 2],
    shape: [i64; 1],
    released: Arc<AtomicU32>,
}

unsafe extern "C" fn release_unversioned(managed: *mut ManagedTensor) {
    // SAFETY: `unversioned` made the struct and its context with `Box`, and the consumer calls the deleter once.
    unsafe {
        let producer = Box::from_raw((*managed).manager_ctx.cast::<Unversioned>());
        producer.released.fetch_add(1, Ordering::SeqCst);
        drop(Box::from_raw(managed));
    }
}

fn unversioned(bits: u8) -> (NonNull<ManagedTensor>, Arc<AtomicU32>) {
    let released = Arc::new(AtomicU32::new(0));
    let mut producer = Box::new(Unversioned { values: [7, -8], shape: [2], released: released.clone() });
    let dl_tensor = RawTensor {
        data: producer.values.as_mut_ptr().cast(),
        device: RawDevice { device_type: 1, device_id: 0 },
        ndim: 1,
        dtype: RawDType { code: 0, bits, lanes: 1 },
        shape: producer.shape.as_mut_ptr(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let manager_ctx = Box::into_raw(producer).cast();
    let managed = ManagedTensor { dl_tensor, manager_ctx, deleter: Some(release_unversioned) };
    (NonNull::from(Box::leak(Box::new(managed))), released)
}

#[test]
fn a_struct_without_a_version_is_read_only() {
    let (managed, released) = unversioned(32);
    // SAFETY: `unversioned` made a valid struct over memory with values, which nothing else writes.
    let mut tensor = unsafe { Tensor::from_dlpack_unversioned(managed) }.unwrap();
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [7, -8]);
    assert!(!tensor.is_writable() && tensor.as_bytes_mut().is_err());
    assert_eq!(released.load(Ordering::SeqCst), 0);
    drop(tensor);
    assert_eq!(released.load(Ordering::SeqCst), 1);
    let (managed, released) = unversioned(33);
    // SAFETY: as above; no value is read, because the type is refused.
    assert!(unsafe { Tensor::from_dlpack_unversioned(managed) }.is_err());
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

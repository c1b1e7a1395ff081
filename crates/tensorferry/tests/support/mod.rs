//! Helpers that the tests share: folders, tensors of every type and layout, and values read without the library.

#![allow(dead_code, clippy::allow_attributes, reason = "no test uses all of them")]

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tensorferry::dlpack::{
    FLAG_SUBBYTE_PADDED, ManagedTensorVersioned, RawDType, RawDevice, RawTensor, VERSION,
};
use tensorferry::{DType, Tensor};

/// A folder that is removed at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tensorferry-facade-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An example as a program. `cargo test` builds it beside the tests; `cargo test --tests`, as the sanitizers use it, does not.
pub(crate) fn example(name: &str) -> Command {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().and_then(Path::parent).unwrap().to_owned();
    let built = folder.join("examples").join(name);
    if built.exists() {
        return Command::new(built);
    }
    let target = folder.join("examples_of_tests");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    // The flags of a sanitizer would apply to build scripts as well.
    cargo.args(["--example", name, "--target-dir"]).arg(&target).env_remove("RUSTFLAGS");
    assert!(cargo.status().unwrap().success());
    Command::new(target.join("debug/examples").join(name))
}

/// Bytes that differ from element to element. All of them are values of every type: bools are 0 or 1.
pub(crate) fn bytes_of(dtype: DType, elements: usize) -> Vec<u8> {
    let limit = if dtype == DType::Bool { 2 } else { 251 };
    (0..elements * dtype.size()).map(|index| (index % limit) as u8).collect()
}

/// A dense tensor of these bytes.
pub(crate) fn dense(dtype: DType, shape: &[usize]) -> Tensor {
    Tensor::from_bytes(&bytes_of(dtype, shape.iter().product()), dtype, shape).unwrap()
}

/// A layout over a buffer: offset, shape and strides in elements.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    pub(crate) elements: usize,
    pub(crate) offset: usize,
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
}

impl Strided {
    /// The element of each index in row-major order, counted with plain loops.
    pub(crate) fn indices(&self) -> Vec<usize> {
        let mut indices = vec![self.offset as i64];
        for (&length, &stride) in self.shape.iter().zip(&self.strides) {
            indices = indices
                .iter()
                .flat_map(|&start| (0..length).map(move |step| start + step * stride))
                .collect();
        }
        indices.into_iter().map(|index| index as usize).collect()
    }

    /// The bytes of the elements in row-major order.
    pub(crate) fn gather(&self, bytes: &[u8], size: usize) -> Vec<u8> {
        self.indices().iter().flat_map(|&index| bytes[index * size..][..size].to_vec()).collect()
    }

    pub(crate) fn shape(&self) -> Vec<usize> {
        self.shape.iter().map(|&length| length as usize).collect()
    }
}

/// What the layouts of the tests have: strides, gaps, negative and zero strides, no elements, no axes.
pub(crate) fn layouts() -> Vec<Strided> {
    let layout = |elements, offset, shape: &[i64], strides: &[i64]| Strided {
        elements,
        offset,
        shape: shape.to_vec(),
        strides: strides.to_vec(),
    };
    vec![
        layout(24, 0, &[2, 3, 4], &[12, 4, 1]),
        layout(24, 0, &[4, 3, 2], &[1, 4, 12]),
        layout(24, 23, &[2, 3, 4], &[-12, -4, -1]),
        layout(30, 5, &[3, 4], &[7, 2]),
        layout(5, 0, &[3, 5], &[0, 1]),
        layout(5, 4, &[5, 2], &[-1, 0]),
        layout(1, 0, &[], &[]),
        layout(3, 2, &[], &[]),
        layout(4, 0, &[2, 0, 3], &[9, -1, 1]),
        layout(4, 0, &[1, 4, 1], &[77, 1, -5]),
    ]
}

/// A producer of DLPack: the context of an exported struct.
struct Producer {
    bytes: Vec<u128>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    released: Arc<AtomicU32>,
}

unsafe extern "C" fn release(managed: *mut ManagedTensorVersioned) {
    // SAFETY: `export` made the struct and its context with `Box`, and the consumer calls the deleter once.
    unsafe {
        let producer = Box::from_raw((*managed).manager_ctx.cast::<Producer>());
        producer.released.fetch_add(1, Ordering::SeqCst);
        drop(Box::from_raw(managed));
    }
}

/// A struct of DLPack as another library makes it, and the number of calls of its deleter.
pub(crate) fn export(
    bytes: &[u8],
    dtype: DType,
    layout: &Strided,
    flags: u64,
) -> (NonNull<ManagedTensorVersioned>, Arc<AtomicU32>) {
    let released = Arc::new(AtomicU32::new(0));
    // Aligned for every type.
    let mut memory = vec![0u128; bytes.len().div_ceil(16).max(1)];
    // SAFETY: the vector has at least as many bytes, and any byte is a value of an integer.
    unsafe { memory.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let mut producer = Box::new(Producer {
        bytes: memory,
        shape: layout.shape.clone(),
        strides: layout.strides.clone(),
        released: released.clone(),
    });
    let (code, bits) = dtype.dlpack_code();
    let dl_tensor = RawTensor {
        data: producer.bytes.as_mut_ptr().cast::<c_void>(),
        device: RawDevice { device_type: 1, device_id: 0 },
        ndim: layout.shape.len() as i32,
        dtype: RawDType { code, bits, lanes: 1 },
        shape: producer.shape.as_mut_ptr(),
        strides: producer.strides.as_mut_ptr(),
        byte_offset: (layout.offset * dtype.size()) as u64,
    };
    let padded = if bits < 8 { FLAG_SUBBYTE_PADDED } else { 0 };
    let managed = ManagedTensorVersioned {
        version: VERSION,
        manager_ctx: Box::into_raw(producer).cast(),
        deleter: Some(release),
        flags: flags | padded,
        dl_tensor,
    };
    (NonNull::from(Box::leak(Box::new(managed))), released)
}

/// A tensor with this layout over bytes, as another library exports it.
pub(crate) fn strided(bytes: &[u8], dtype: DType, layout: &Strided) -> Tensor {
    let (managed, _) = export(bytes, dtype, layout, 0);
    // SAFETY: `export` made a valid struct over memory with values, which nothing else has.
    unsafe { Tensor::from_dlpack(managed) }.unwrap()
}

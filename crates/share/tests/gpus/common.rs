//! Helpers of the tests.

use crate::descriptors::descriptor_count;
use crate::driver::{self, Exportable, export, open_resources, order_reads};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{DType, Layout, Result};
use tensorferry_cuda::ipc::{GpuArena, GpuArenaBlock};
use tensorferry_cuda::{DeviceBlock, Gpu, Stream};
use tensorferry_share::{
    Attached, AttachedTensor, PublishedTensor, ShareCounts, SharedMemory, Ticket, attach, counts,
};

/// Runs tests one at a time, because the counts are global to the process.
pub(crate) fn serialize_tests() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn gpu() -> &'static Gpu {
    Gpu::get(0).unwrap()
}

/// The kinds of memory: a tensorferry arena, legacy memory, and memory whose shareable handle belongs to another
/// library.
pub(crate) const MEMORY_KINDS: [&str; 3] = ["own", "legacy", "foreign"];

/// The offset of a tensor in its allocation.
pub(crate) const TENSOR_OFFSET_BYTES: usize = 1536;

/// A tensor of bytes in memory of this kind, at [`TENSOR_OFFSET_BYTES`].
pub(crate) fn tensor(kind: &str, text: &[u8]) -> PublishedTensor {
    tensors(kind, &[text]).remove(0)
}

/// Several tensors in one allocation, each exported by itself, as those of a framework are.
pub(crate) fn tensors(kind: &str, texts: &[&[u8]]) -> Vec<PublishedTensor> {
    let gpu = gpu();
    let bytes = TENSOR_OFFSET_BYTES * (texts.len() + 1) + 100;
    let mut made = Vec::new();
    match kind {
        "own" => {
            let first = GpuArenaBlock::new(gpu, bytes).unwrap();
            made.extend(texts.iter().map(|_| (first.arena().clone(), first.offset())));
        }
        "legacy" => {
            let block = std::sync::Arc::new(DeviceBlock::new_exportable(gpu, bytes, Stream::LEGACY).unwrap());
            made.extend(texts.iter().map(|_| (export(Exportable::Block(block.clone())).unwrap(), 0)));
        }
        "foreign" => {
            let arena = GpuArena::new(gpu, bytes).unwrap();
            made.extend(texts.iter().map(|_| (export(Exportable::Arena(arena.clone())).unwrap(), 0)));
        }
        _ => panic!("unknown kind"),
    }
    let write_tensor = |(index, (arena, start)): (usize, (std::sync::Arc<GpuArena>, usize))| {
        let offset = start + TENSOR_OFFSET_BYTES * (index + 1);
        let memory = arena.into();
        driver::write(&memory, offset, texts[index]).unwrap();
        tensor_in(memory, offset, texts[index].len())
    };
    made.into_iter().enumerate().map(write_tensor).collect()
}

pub(crate) fn tensor_in(memory: SharedMemory, offset: usize, bytes: usize) -> PublishedTensor {
    let layout = Layout::dense(1, &[bytes as i64]).unwrap();
    PublishedTensor { memory, offset, dtype: DType::UInt8, layout }
}

/// An attached tensor, to be published again.
pub(crate) fn republished(tensor: &AttachedTensor) -> PublishedTensor {
    let bytes = tensor.layout().bytes();
    let (memory, offset) = tensorferry_cuda::ipc::find(tensor.data(), bytes).unwrap();
    tensor_in(memory.into(), offset, bytes)
}

/// The offset of a tensor in its memory.
fn offset_of(tensor: &AttachedTensor) -> usize {
    tensor.data() as usize - tensor.memory().data() as usize
}

/// The bytes of a tensor.
pub(crate) fn read(tensor: &AttachedTensor) -> Result<Vec<u8>> {
    driver::read(tensor.memory(), offset_of(tensor), tensor.layout().bytes())
}

/// Writes the bytes of a tensor, and waits for the copy.
pub(crate) fn write(tensor: &AttachedTensor, bytes: &[u8]) -> Result<()> {
    driver::write(tensor.memory(), offset_of(tensor), bytes)
}

/// Only a hang takes longer.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn attach_ticket(ticket: &Ticket) -> Result<Attached> {
    attach(ticket, HANG_TIMEOUT)
}

/// Attaches, and makes the stream of [`read`] wait until the tensors are ready.
pub(crate) fn attach_ready(ticket: &Ticket) -> Result<Attached> {
    let attached = attach_ticket(ticket)?;
    attached.ready.iter().try_for_each(order_reads)?;
    Ok(attached)
}

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_met() {
        assert!(begin.elapsed() < HANG_TIMEOUT, "{what}: {:?} {:?}", counts(), open_resources());
        thread::sleep(Duration::from_millis(1));
    }
}

/// The counts when nothing is shared, the server is running and the driver is loaded.
pub(crate) struct Baseline(ShareCounts, usize, [usize; 3]);

pub(crate) fn record_baseline() -> Baseline {
    // The test driver keeps a descriptor after its first legacy memory.
    drop(tensor("legacy", b"x"));
    drop(tensorferry_share::publish(&[tensor("own", b"x")], b"", &Default::default()).unwrap());
    let none = tensorferry_cuda::ipc::GpuArenaCounts::default();
    wait_until("nothing is shared", || {
        tensorferry_cuda::ipc::release_idle();
        counts().gpu == none && counts().held_leases + counts().granted_leases == 0
    });
    Baseline(counts(), descriptor_count(), open_resources())
}

impl Baseline {
    /// Waits until the counts are as before.
    pub(crate) fn wait_until_restored(&self) {
        wait_until("everything is released", || {
            tensorferry_cuda::ipc::release_idle();
            counts() == self.0 && descriptor_count() == self.1 && open_resources() == self.2
        });
    }
}

/// The fact of an error.
#[track_caller]
pub(crate) fn fact<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => {
            assert!(!error.fact().contains('\n'));
            error.fact().to_owned()
        }
    }
}

//! What the tests share.

use crate::driver::open;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{ByteOrder, DType, Layout, Result};
use tensorferry_cuda::ipc::{Allocation, GpuArena, GpuArenaBlock};
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath,
};
use tensorferry_share::{
    Attached, AttachedTensor, PublishedTensor, ShareCounts, SharedMemory, Ticket, attach, counts,
};

/// Counts are of the process, so that the tests go one by one.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn gpu() -> &'static Gpu {
    Gpu::get(0).unwrap()
}

const LANES: RingOptions = RingOptions { threads: 2, chunk: 256 << 10, spares: false, batched: false };

/// Writes to a GPU's memory, and waits until that is done.
pub(crate) fn write(gpu: &'static Gpu, to: *mut u8, bytes: &[u8]) -> Result<()> {
    let layout = Layout::dense(1, &[bytes.len() as i64])?;
    let source =
        DeviceSource { data: bytes.as_ptr(), dtype: DType::UInt8, layout: &layout, order: ByteOrder::Native };
    // SAFETY: memory that is as long.
    unsafe {
        gpu.send(&source, to, DType::UInt8, Stream::LEGACY, LANES, &TransferControl::default())?;
        gpu.wait(SyncPoint::Everything)
    }
}

/// What is in a GPU's memory for one who waits for nothing but the copy.
pub(crate) fn look(gpu: &'static Gpu, from: *const u8, count: usize) -> Result<Vec<u8>> {
    let (layout, mut bytes) = (Layout::dense(1, &[count as i64])?, vec![0; count]);
    let source = DeviceSource { data: from, dtype: DType::UInt8, layout: &layout, order: ByteOrder::Native };
    let to = HostDestination { data: bytes.as_mut_ptr(), dtype: DType::UInt8, layout: &layout };
    // SAFETY: memory that is as long; a stream of ours that waits for no other.
    unsafe {
        gpu.fetch(
            &source,
            &to,
            SyncPoint::Stream(gpu.sync_stream()?),
            TransferPath::Driver,
            &TransferControl::default(),
        )?
    };
    Ok(bytes)
}

/// Whatever kind there is: memory of ours, plain memory, and memory with a handle that somebody else made.
pub(crate) const KINDS: [&str; 3] = ["own", "plain", "theirs"];

/// How far from the beginning of its allocation a tensor lies.
pub(crate) const OFFSET: usize = 1536;

/// A tensor of bytes in memory of this kind, not at its beginning.
pub(crate) fn tensor(kind: &str, text: &[u8]) -> PublishedTensor {
    tensors(kind, &[text]).remove(0)
}

/// Several in one allocation, each exported by itself, as a framework's would be.
pub(crate) fn tensors(kind: &str, texts: &[&[u8]]) -> Vec<PublishedTensor> {
    let gpu = gpu();
    let bytes = OFFSET * (texts.len() + 1) + 100;
    let export = |data: *mut u8, owner: Box<dyn std::any::Any + Send + Sync>| {
        // SAFETY: the owner keeps the memory where it is.
        unsafe { Allocation::of(data).unwrap().export(owner).unwrap() }
    };
    let mut made = Vec::new();
    match kind {
        "own" => {
            let first = GpuArenaBlock::new(gpu, bytes).unwrap();
            made.extend(texts.iter().map(|_| (first.arena().clone(), first.offset())));
        }
        "plain" => {
            let block = std::sync::Arc::new(DeviceBlock::plain(gpu, bytes, Stream::LEGACY).unwrap());
            made.extend(texts.iter().map(|_| (export(block.data(), Box::new(block.clone())), 0)));
        }
        "theirs" => {
            let arena = GpuArena::new(gpu, bytes).unwrap();
            made.extend(texts.iter().map(|_| (export(arena.data(), Box::new(arena.clone())), 0)));
        }
        _ => panic!("no such kind"),
    }
    let place = |(index, (arena, start)): (usize, (std::sync::Arc<GpuArena>, usize))| {
        let offset = start + OFFSET * (index + 1);
        write(gpu, arena.data().wrapping_add(offset), texts[index]).unwrap();
        outgoing(arena.into(), offset, texts[index].len())
    };
    made.into_iter().enumerate().map(place).collect()
}

pub(crate) fn outgoing(memory: SharedMemory, offset: usize, bytes: usize) -> PublishedTensor {
    let layout = Layout::dense(1, &[bytes as i64]).unwrap();
    PublishedTensor { memory, offset, dtype: DType::UInt8, layout }
}

/// A tensor that was attached, to be published again.
pub(crate) fn again(tensor: &AttachedTensor) -> PublishedTensor {
    let bytes = tensor.layout().bytes();
    let (memory, offset) = tensorferry_cuda::ipc::find(tensor.data(), bytes).unwrap();
    outgoing(memory.into(), offset, bytes)
}

/// The bytes of a tensor.
pub(crate) fn read(tensor: &AttachedTensor) -> Result<Vec<u8>> {
    look(Gpu::get(tensor.device().index)?, tensor.data(), tensor.layout().bytes())
}

/// How long a test waits for what must happen; only a hang takes longer.
pub(crate) const HANG: Duration = Duration::from_secs(300);

pub(crate) fn take(ticket: &Ticket) -> Result<Attached> {
    attach(ticket, HANG)
}

/// Attaches, and has the stream wait that `look` uses.
pub(crate) fn take_ready(ticket: &Ticket) -> Result<Attached> {
    let attached = take(ticket)?;
    for ready in &attached.ready {
        // SAFETY: a stream of ours.
        unsafe { ready.order(SyncPoint::Stream(ready.gpu().sync_stream()?))? };
    }
    Ok(attached)
}

/// Waits until something is so, which it is to become soon.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < HANG, "{what}: {:?} {:?}", counts(), open());
        thread::sleep(Duration::from_millis(1));
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// What there is when nothing is shared, with the server running and the driver loaded.
pub(crate) struct Baseline(ShareCounts, usize, [usize; 3]);

pub(crate) fn baseline() -> Baseline {
    // The stand-in keeps a descriptor from its first plain memory on.
    drop(tensor("plain", b"x"));
    drop(tensorferry_share::publish(&[tensor("own", b"x")], b"", &Default::default()).unwrap());
    let none = tensorferry_cuda::ipc::GpuArenaCounts::default();
    until("a quiet beginning", || {
        tensorferry_cuda::ipc::release_idle();
        counts().gpu == none && counts().held + counts().given == 0
    });
    Baseline(counts(), descriptors(), open())
}

impl Baseline {
    /// Waits until everything is as it was.
    pub(crate) fn settle(&self) {
        until("everything let go", || {
            tensorferry_cuda::ipc::release_idle();
            counts() == self.0 && descriptors() == self.1 && open() == self.2
        });
    }
}

/// A fact in an error.
#[track_caller]
pub(crate) fn fact<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => {
            assert!(!error.fact().contains('\n'));
            error.fact().to_owned()
        }
    }
}

//! Tensors for other processes, and from them.
//!
//! Publishing is a trip to shared memory, and attaching one from there: the planner decides about both, so that plans,
//! traces, copies and refusals are those of every other trip.

pub(crate) mod attach;
pub(crate) mod empty;
mod place;
pub(crate) mod publish;
mod structure;
mod ticket;
mod view;

pub(crate) use ticket::Ticket;

use crate::errors::{Result, fail};
use crate::interpreter::owner::{Lend, Owner};
use pyo3::Python;
use std::sync::Arc;
use std::time::Duration;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{Strides, SupportedDevices, TargetCapabilities, TargetMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor};
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::GpuArenaBlock;
use tensorferry_share::{ArenaBlock, PublishedTensor, SharedMemory};

/// Shared memory as a place where tensors go to; whether a source is there already, nobody knows before it is read.
const FACTS: TargetCapabilities = TargetCapabilities {
    framework: NAME,
    title: "shared memory",
    dtypes: DTypes::ALL,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: false,
    strides: Strides::Bytes,
    alignment: 1,
    max_rank: 64,
    mutability: TargetMutability::Flagged,
    devices: SupportedDevices::Both,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: false,
};

/// What plans call it.
const NAME: &str = "shared memory";

/// New shared memory for one tensor.
#[derive(Clone)]
enum Room {
    Host(ArenaBlock),
    Gpu(GpuArenaBlock),
}

impl Room {
    fn new(py: Python<'_>, device: Device, bytes: usize) -> Result<Self> {
        if !device.is_cuda() {
            return Ok(Self::Host(ArenaBlock::new(bytes)?));
        }
        let gpu = Gpu::get(device.index)?;
        // Before memory is used again, the work on it is waited for.
        Ok(Self::Gpu(py.detach(|| GpuArenaBlock::new(gpu, bytes))?))
    }

    fn data(&self) -> *mut u8 {
        match self {
            Self::Host(piece) => piece.data(),
            Self::Gpu(piece) => piece.data(),
        }
    }

    /// What lies there, for others.
    fn outgoing(&self, dtype: DType, layout: Layout) -> PublishedTensor {
        let (memory, offset) = match self {
            Self::Host(piece) => (SharedMemory::Host(piece.arena().clone()), piece.offset()),
            Self::Gpu(piece) => (SharedMemory::Gpu(piece.arena().clone()), piece.offset()),
        };
        PublishedTensor { memory, offset, dtype, layout }
    }

    /// What lies there, for this process: a dense tensor, for which there must be room.
    fn tensor(self, dtype: DType, layout: Layout) -> Result<Tensor<Owner>> {
        let (data, device) = match &self {
            Self::Host(piece) => (piece.data(), Device::CPU),
            Self::Gpu(piece) => (piece.data(), Device::cuda(piece.arena().gpu().index())),
        };
        let owner = Owner::shared(self);
        // SAFETY: the piece has as many bytes as the layout, is aligned for every type, and is the owner.
        Ok(unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, Access::ReadWrite, owner) }?)
    }
}

impl Lend for Room {
    fn waits(&self) -> bool {
        matches!(self, Self::Gpu(piece) if Arc::strong_count(piece.arena()) == 1)
    }
}

/// A time in seconds.
fn seconds(name: &str, given: f64) -> Result<Duration> {
    if given == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(given).map_err(|_| {
        let given = if given.abs() < 1e15 { given.to_string() } else { format!("{given:e}") };
        let fact = format!("{name} is {given}, which is no time to wait");
        fail(ErrorKind::InvalidArgument, fact, "write a number of seconds, or leave it out")
    })
}

//! Sharing of tensors between processes: `publish`, `attach`, and allocation of shared memory.
//!
//! Publishing is a conversion whose target is shared memory, and attaching one whose source is shared memory. The planner decides
//! about both, so that plans, traces, copies and errors are those of every other conversion.

pub(crate) mod attach;
mod copied_views;
pub(crate) mod empty;
mod location;
pub(crate) mod publish;
mod structure;
mod ticket;

pub(crate) use ticket::Ticket;

use crate::errors::{Result, fail};
use crate::interpreter::owner::{InterprocessMemory, Owner};
use pyo3::Python;
use std::sync::Arc;
use std::time::Duration;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{Strides, SupportedDevices, TargetCapabilities, TargetMutability};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor};
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::GpuArenaBlock;
use tensorferry_share::{ArenaBlock, PublishedTensor, SharedMemory};

/// The capabilities of shared memory as a conversion target. `publish` sets `own_memory` for each source, after reading it.
const SHARED_MEMORY: TargetCapabilities = TargetCapabilities {
    framework: FRAMEWORK_NAME,
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

/// The name of shared memory in plans.
const FRAMEWORK_NAME: &str = "shared memory";

/// A block of new shared memory for one tensor.
#[derive(Clone)]
enum SharedBlock {
    Host(ArenaBlock),
    Gpu(GpuArenaBlock),
}

impl SharedBlock {
    fn new(py: Python<'_>, device: Device, bytes: usize) -> Result<Self> {
        if !device.is_cuda() {
            return Ok(Self::Host(ArenaBlock::new(bytes)?));
        }
        let gpu = Gpu::get(device.index)?;
        // The allocation waits for GPU work on memory that it reuses.
        Ok(Self::Gpu(py.detach(|| GpuArenaBlock::new(gpu, bytes))?))
    }

    /// The tensor in this block, as a publication describes it.
    fn published(&self, dtype: DType, layout: Layout) -> PublishedTensor {
        let (memory, offset) = match self {
            Self::Host(block) => (SharedMemory::Host(block.arena().clone()), block.offset()),
            Self::Gpu(block) => (SharedMemory::Gpu(block.arena().clone()), block.offset()),
        };
        PublishedTensor { memory, offset, dtype, layout }
    }

    /// A dense tensor over this block.
    fn tensor(self, dtype: DType, layout: Layout) -> Result<Tensor<Owner>> {
        let (data, bytes, device) = match &self {
            Self::Host(block) => (block.data(), block.bytes(), Device::CPU),
            Self::Gpu(block) => (block.data(), block.bytes(), Device::cuda(block.arena().gpu().index())),
        };
        if !layout.is_dense() || layout.bytes() > bytes {
            let fact = format!("a tensor of {} bytes does not fit in {bytes} bytes", layout.bytes());
            return Err(fail(ErrorKind::InvalidTensor, fact, "report this"));
        }
        let owner = Owner::shared(self);
        // SAFETY: `Tensor::new` requires memory of the layout while the owner lives: the owner is the block, whose size was compared
        // above, and shared memory that this process allocated is writable.
        Ok(unsafe { Tensor::new(data, dtype, layout, device, ByteOrder::Native, Access::ReadWrite, owner) }?)
    }
}

impl InterprocessMemory for SharedBlock {
    fn drop_may_block(&self) -> bool {
        matches!(self, Self::Gpu(block) if Arc::strong_count(block.arena()) == 1)
    }
}

/// Parses a duration in seconds; infinity is the longest duration.
fn parse_seconds(name: &str, value: f64) -> Result<Duration> {
    if value == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    Duration::try_from_secs_f64(value).map_err(|_| {
        let value = if value.abs() < 1e15 { value.to_string() } else { format!("{value:e}") };
        let fact = format!("{name} is {value}, not a valid number of seconds");
        fail(
            ErrorKind::InvalidArgument,
            fact,
            format!("pass a number of seconds from 0, or leave out {name}"),
        )
    })
}

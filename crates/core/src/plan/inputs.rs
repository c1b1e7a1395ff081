//! What the planner is told.

use super::Reason;
use crate::device::{Device, DeviceKind};
use crate::dtype::{DType, DTypes};
use crate::host::MALLOC_ALIGNMENT;
use crate::layout::Layout;
use crate::tensor::{Access, ByteOrder};

/// About the source.
#[derive(Clone, Debug)]
pub struct SourceDescription<'a> {
    /// Whose tensor it is, as users name the framework.
    pub framework: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
    /// Where the memory is.
    pub device: Device,
    /// Which end of an element comes first.
    pub order: ByteOrder,
    /// The data pointer as a number, for its alignment.
    pub address: usize,
    /// Whether the allocator of the memory guarantees the alignment that targets ask for.
    pub alignment: Alignment,
    /// Whether the memory may be written.
    pub access: Access,
    /// Whether others rely on the values.
    pub mutability: SourceMutability,
    /// Work that the framework has put off, if any.
    pub pending: Option<Pending>,
    /// Whether the tensor requires a gradient.
    pub requires_grad: bool,
    /// Whether the memory came through the object's own `__array__(copy=False)`.
    pub through_array: bool,
    /// Whether its framework may hold a lock while it releases the memory, under which others wait for the GIL.
    pub drop_lock: bool,
}

/// What the source's allocator promises about the address of its memory.
///
/// A target that needs 64-byte alignment and treats tensors as immutable can share memory of either kind, if the address
/// fits. Whether a later write to the source then changes the result would depend on where `malloc` put the source, so
/// accidental alignment is not relied on unless the caller asks for a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// The address follows from how the memory was allocated (PyTorch's allocator, blocks of ours, memory maps), or
    /// nobody can write the memory, so that a share cannot be told from a copy.
    Guaranteed,
    /// The allocator promises less than the target needs (NumPy's arrays, bytearrays), or is not known.
    Accidental,
}

/// Whether others rely on the values staying as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceMutability {
    /// Values may change; whoever shares sees it.
    Mutable,
    /// The memory was made for this trip, and nobody else sees it (a NumPy scalar as an array).
    Temporary,
    /// The framework promises its users that values never change.
    Immutable,
    /// Immutable, and the framework hands the same memory to others later (TensorFlow's scalars).
    Cached,
    /// The value of a variable at the call: it does not change, and must not be written.
    Snapshot,
}

impl SourceMutability {
    /// Whether a write to the memory breaks no promise.
    pub fn allows_writing(self) -> bool {
        matches!(self, Self::Mutable | Self::Temporary)
    }
}

/// Work that the source's framework has put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pending {
    /// A conjugation.
    Conjugate,
    /// A negation.
    Negate,
    /// Unpacking several elements from a byte.
    Unpack,
    /// Gathering pieces from several devices.
    Gather,
    /// The object's own conversion to an array, through `__array__`.
    Convert,
}

/// About the target.
#[derive(Clone, Copy, Debug)]
pub struct TargetCapabilities {
    /// The framework, as users name it.
    pub framework: &'static str,
    /// The same with its own capitals, for sentences.
    pub title: &'static str,
    /// The types it holds.
    pub dtypes: DTypes,
    /// The types it holds in a packed form of its own.
    pub repacked: DTypes,
    /// The types it holds in host memory alone.
    pub host_only: DTypes,
    /// Why whatever it is given is copied into memory of its own; `None` where it takes what it is given.
    pub own_memory: Option<Reason>,
    /// Whether 64-bit types survive there right now (JAX with x64 off: no).
    pub keeps_64_bit: bool,
    /// What `dtype="default"` does to 64-bit floats and complex numbers.
    pub narrow_by_default: bool,
    /// Whether it holds elements of the other byte order.
    pub accepts_swapped_bytes: bool,
    /// The strides it takes.
    pub strides: Strides,
    /// The alignment it needs: at least this many bytes, and at least an element's own.
    pub alignment: usize,
    /// The most dimensions it takes.
    pub max_rank: usize,
    /// What it lets its users do with the memory.
    pub mutability: TargetMutability,
    /// Where it holds memory.
    pub devices: SupportedDevices,
    /// Where it puts a tensor when nobody says where.
    pub default_device: Device,
    /// The number of its CPU devices; all of them are host memory.
    pub cpu_count: i32,
    /// The index of the CPU device that takes host memory when the caller names no device.
    pub default_cpu: i32,
    /// Whether it may drop tensors on threads that Python did not create.
    pub drops_on_own_threads: bool,
}

impl TargetCapabilities {
    /// Whether it matters to this target what the source's allocator guarantees: it needs more than `malloc`
    /// gives, and its users rely on tensors that do not change.
    #[inline]
    pub fn relies_on_alignment(&self) -> bool {
        self.mutability == TargetMutability::Immutable && self.alignment > MALLOC_ALIGNMENT
    }

    /// Where a tensor of this device goes that nobody sends elsewhere.
    pub fn nearest_device(&self, device: Device) -> Device {
        match self.devices {
            _ if self.keeps_device(device) => device,
            SupportedDevices::Both if device.is_host() => self.cpu(),
            SupportedDevices::Host => self.cpu(),
            _ => self.default_device,
        }
    }

    /// The CPU device that takes host memory when the caller names no device.
    fn cpu(&self) -> Device {
        Device { kind: DeviceKind::Cpu, index: self.default_cpu }
    }

    /// Whether a tensor of another framework on this device stays there when the caller names no device. CPU devices
    /// belong to their framework: host memory goes to the target's own default.
    #[inline]
    pub fn keeps_device(&self, device: Device) -> bool {
        let index = if device.kind == DeviceKind::Cpu { device.index } else { 0 };
        self.supports_device(device) && (!device.is_host() || index == self.default_cpu)
    }

    /// Whether it holds memory on this device.
    #[inline]
    pub fn supports_device(&self, device: Device) -> bool {
        match self.devices {
            SupportedDevices::Host => device.is_host(),
            SupportedDevices::Cuda => device.is_cuda(),
            SupportedDevices::Both => device.is_host() || device.is_cuda(),
        }
    }
}

/// Where a framework holds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportedDevices {
    /// On the host alone.
    Host,
    /// On CUDA GPUs alone.
    Cuda,
    /// On both.
    Both,
}

/// The strides that a framework takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strides {
    /// Any number of bytes (NumPy).
    Bytes,
    /// Whole elements, any sign.
    Elements,
    /// Whole elements, zero or more (PyTorch).
    Forward,
    /// No gaps, in any order of the dimensions (JAX).
    Permuted,
    /// Dense row-major (TensorFlow).
    Dense,
}

/// What a framework lets its users do with memory it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMutability {
    /// Read, and write unless the array is marked read-only.
    Flagged,
    /// Read only: its tensors are immutable.
    Immutable,
    /// Read and write, always.
    Writable,
}

/// The element type that the caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeRequest {
    /// The source's own.
    Same,
    /// The target's default width.
    Default,
    /// This one.
    Type(DType),
}

/// Where the caller wants the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRequest {
    /// Where the source is, or as near as the target gets.
    Nearest,
    /// Where the target puts a tensor when nobody says where.
    Home,
    /// There.
    At(Device),
}

/// What the caller wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertOptions {
    /// The element type of the result.
    pub dtype: DTypeRequest,
    /// `Some(true)`: always copy. `Some(false)`: share or fail.
    pub copy: Option<bool>,
    /// `Some(true)`: the result may be written without harm. `Some(false)`: it must not be writable.
    pub writable: Option<bool>,
    /// The most extra memory in bytes.
    pub budget: Option<usize>,
    /// Where the result is to be.
    pub device: DeviceRequest,
}

impl ConvertOptions {
    /// No wish at all.
    pub const NONE: Self = Self {
        dtype: DTypeRequest::Same,
        copy: None,
        writable: None,
        budget: None,
        device: DeviceRequest::Nearest,
    };
}

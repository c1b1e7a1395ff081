//! The inputs of the planner: the source, the capabilities of the target, and the options of the caller.

use super::reason::{Pending, Reason};
use crate::device::{Device, DeviceKind};
use crate::dtype::{DType, DTypes};
use crate::host::MALLOC_ALIGNMENT;
use crate::layout::Layout;
use crate::read_only_loans;
use crate::tensor::{Access, ByteOrder};

/// The properties of a source tensor that the planner needs.
#[derive(Clone, Debug)]
pub struct SourceDescription<'a> {
    /// The framework of the tensor, by the name that users write.
    pub framework: &'a str,
    /// Element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: &'a Layout,
    /// The device of the memory.
    pub device: Device,
    /// The byte order of the elements.
    pub order: ByteOrder,
    /// The data pointer, for its alignment.
    pub address: usize,
    /// Whether the allocator of the memory guarantees the alignment that targets need.
    pub alignment: Alignment,
    /// Whether the memory may be written.
    pub access: Access,
    /// Whether the values may change.
    pub mutability: SourceMutability,
    /// The operation that the framework has deferred, if any.
    pub pending: Option<Pending>,
    /// Whether the memory was obtained from the object's `__array__(copy=False)`.
    pub through_array: bool,
    /// The unit of time that the integers count, if they are dates or times.
    pub counts: Option<TimeUnit>,
    /// Whether its framework releases the memory under a lock that other threads hold while they wait for the GIL.
    pub drop_lock: bool,
}

impl SourceDescription<'_> {
    /// The device on which the values can be read: the host, if their own framework must download them.
    pub(super) fn values_device(&self) -> Device {
        if self.pending == Some(Pending::Download) { Device::CPU } else { self.device }
    }

    /// Whether a write changes nothing that was promised to be immutable: neither this tensor nor one whose memory it shares.
    pub fn allows_writing(&self) -> bool {
        self.access == Access::ReadWrite
            && self.mutability.allows_writing()
            && read_only_loans::may_be_written(self.address)
    }
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// 86,400 seconds.
    Days,
    /// The unit of POSIX time.
    Seconds,
    /// 1/1,000 of a second.
    Milliseconds,
    /// 1/1,000,000 of a second.
    Microseconds,
    /// 1/1,000,000,000 of a second.
    Nanoseconds,
}

impl TimeUnit {
    /// The unit of this name or abbreviation.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "days" => Self::Days,
            "s" => Self::Seconds,
            "ms" => Self::Milliseconds,
            "us" => Self::Microseconds,
            "ns" => Self::Nanoseconds,
            _ => return None,
        })
    }

    /// The name of the unit, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Self::Days => "days",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
            Self::Microseconds => "microseconds",
            Self::Nanoseconds => "nanoseconds",
        }
    }
}

/// What the source's allocator guarantees about the address of its memory.
///
/// A target that needs 64-byte alignment and treats tensors as immutable can share memory of either kind, if the address
/// is aligned. Whether a later write to the source changes the result would then depend on the address that `malloc`
/// returned. The planner therefore does not rely on accidental alignment unless the caller requests a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alignment {
    /// The allocator guarantees the alignment (PyTorch's allocator, the core's host blocks, memory maps), or the memory
    /// cannot be written, so that a share is indistinguishable from a copy.
    Guaranteed,
    /// The allocator guarantees less than the target needs (NumPy arrays, bytearrays), or is unknown.
    Accidental,
}

/// Whether the values of a source may change.
///
/// The order matters: `needs_plan` is one comparison on the fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceMutability {
    /// Values may change, and a share sees the change.
    Mutable,
    /// The memory was allocated for this conversion, and nothing else refers to it (a NumPy scalar as an array).
    Temporary,
    /// The framework guarantees that values never change.
    Immutable,
    /// The value of a variable at the call: it does not change, and must not be written.
    Snapshot,
    /// Immutable, and the framework reuses the memory for other tensors (TensorFlow's scalars).
    Cached,
    /// Mutable, and the tensor requires a gradient, which a conversion does not carry.
    Differentiable,
}

impl SourceMutability {
    /// Whether values may change after the call, and a share sees the change.
    pub fn may_change(self) -> bool {
        matches!(self, Self::Mutable | Self::Differentiable)
    }

    /// Whether the memory may be written.
    pub fn allows_writing(self) -> bool {
        self == Self::Temporary || self.may_change()
    }

    /// Whether the fast path leaves such a source to the planner: its memory is always copied, or its plan has a note that
    /// the caller has to know.
    pub(super) fn needs_plan(self) -> bool {
        self >= Self::Cached
    }
}

/// What a target framework accepts.
#[derive(Clone, Copy, Debug)]
pub struct TargetCapabilities {
    /// The framework, by the name that users write.
    pub framework: &'static str,
    /// The proper name of the framework, for sentences.
    pub title: &'static str,
    /// The element types that it has.
    pub dtypes: DTypes,
    /// The types that it stores in its own packed format.
    pub repacked: DTypes,
    /// The types that it supports only in host memory.
    pub host_only: DTypes,
    /// Why it copies all imported memory; `None` if it shares.
    pub own_memory: Option<Reason>,
    /// Whether it currently has 64-bit types (JAX with x64 off does not).
    pub keeps_64_bit: bool,
    /// Whether [`DTypeRequest::Default`] narrows 64-bit floats and complex numbers.
    pub narrow_by_default: bool,
    /// Whether it supports elements in non-native byte order.
    pub accepts_swapped_bytes: bool,
    /// The strides that it supports.
    pub strides: Strides,
    /// The alignment that it needs in bytes, in addition to the alignment of the element type.
    pub alignment: usize,
    /// The maximum number of dimensions.
    pub max_rank: usize,
    /// Whether its users may write imported memory.
    pub mutability: TargetMutability,
    /// The devices that it supports.
    pub devices: SupportedDevices,
    /// The device of a new tensor if the user names none.
    pub default_device: Device,
    /// The number of its CPU devices, all of which use host memory.
    pub cpu_count: i32,
    /// The index of the CPU device for host memory if the caller names no device.
    pub default_cpu: i32,
    /// Whether it may drop tensors on threads that Python did not create.
    pub drops_on_own_threads: bool,
}

impl TargetCapabilities {
    /// Whether the guarantee of the source's allocator matters: the target needs more alignment than `malloc` provides, and
    /// its tensors are immutable.
    #[inline]
    pub fn relies_on_alignment(&self) -> bool {
        self.mutability == TargetMutability::Immutable && self.alignment > MALLOC_ALIGNMENT
    }

    /// The device of the result for a source on `device` if the caller names none.
    pub fn nearest_device(&self, device: Device) -> Device {
        match self.devices {
            _ if self.keeps_device(device) => device,
            SupportedDevices::Both if device.is_host() => self.cpu(),
            SupportedDevices::Host => self.cpu(),
            _ => self.default_device,
        }
    }

    /// The CPU device for host memory if the caller names no device.
    fn cpu(&self) -> Device {
        Device { kind: DeviceKind::Cpu, index: self.default_cpu }
    }

    /// Whether a tensor of another framework on this device stays there if the caller names no device. CPU devices are
    /// per framework, so host memory goes to the target's default CPU device.
    #[inline]
    pub fn keeps_device(&self, device: Device) -> bool {
        let index = if device.kind == DeviceKind::Cpu { device.index } else { 0 };
        self.supports_device(device) && (!device.is_host() || index == self.default_cpu)
    }

    /// Whether it supports memory on this device.
    #[inline]
    pub fn supports_device(&self, device: Device) -> bool {
        match self.devices {
            SupportedDevices::Host => device.is_host(),
            SupportedDevices::Cuda => device.is_cuda(),
            SupportedDevices::Both => device.is_host() || device.is_cuda(),
        }
    }
}

/// The devices that a framework supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SupportedDevices {
    /// Only the host.
    Host,
    /// Only CUDA GPUs.
    Cuda,
    /// The host and CUDA GPUs.
    Both,
}

/// The strides that a framework supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strides {
    /// Any number of bytes (NumPy).
    Bytes,
    /// Multiples of the element size, of either sign.
    Elements,
    /// Multiples of the element size, not negative (PyTorch).
    Forward,
    /// No gaps, in any order of the dimensions (JAX).
    Permuted,
    /// Dense row-major (TensorFlow).
    Dense,
}

/// Whether the users of a framework may write imported memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetMutability {
    /// Each array has a read-only flag.
    Flagged,
    /// All tensors are immutable.
    Immutable,
    /// All tensors are writable.
    Writable,
}

/// The element type that the caller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DTypeRequest {
    /// The type of the source.
    Same,
    /// The target's default width.
    Default,
    /// This type.
    Type(DType),
}

/// The device that the caller requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRequest {
    /// The device of the source, or the nearest one that the target supports.
    Nearest,
    /// The target's default device.
    Default,
    /// This device.
    At(Device),
}

/// The options of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvertOptions {
    /// The element type of the result.
    pub dtype: DTypeRequest,
    /// `Some(true)`: always copy. `Some(false)`: share or fail.
    pub copy: Option<bool>,
    /// `Some(true)`: writes to the result must not affect an immutable or read-only source. `Some(false)`: the result must
    /// be read-only.
    pub writable: Option<bool>,
    /// The limit on new memory, in bytes.
    pub budget: Option<usize>,
    /// The device of the result.
    pub device: DeviceRequest,
}

impl ConvertOptions {
    /// The defaults.
    pub const NONE: Self = Self {
        dtype: DTypeRequest::Same,
        copy: None,
        writable: None,
        budget: None,
        device: DeviceRequest::Nearest,
    };
}

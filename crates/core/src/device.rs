//! Devices, by the kinds of DLPack.

use std::fmt;

/// A device that has memory, in DLPack's terms.
///
/// The core represents every device. The planner and the crates above decide which of them are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The index among the devices of its kind. A framework may divide the host into several CPU devices (JAX, TensorFlow).
    pub index: i32,
}

/// The device kinds of DLPack, by their codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
#[non_exhaustive]
pub enum DeviceKind {
    /// Ordinary host memory.
    Cpu = 1,
    /// Memory of a CUDA GPU.
    Cuda = 2,
    /// Host memory pinned for CUDA.
    CudaHost = 3,
    /// OpenCL buffers.
    OpenCl = 4,
    /// Vulkan buffers.
    Vulkan = 7,
    /// Apple Metal.
    Metal = 8,
    /// Verilog simulator buffers.
    Vpi = 9,
    /// Memory of an AMD ROCm GPU.
    Rocm = 10,
    /// Host memory pinned for ROCm.
    RocmHost = 11,
    /// Reserved for extensions.
    Extension = 12,
    /// CUDA managed memory.
    CudaManaged = 13,
    /// oneAPI unified shared memory.
    OneApi = 14,
    /// WebGPU.
    WebGpu = 15,
    /// Qualcomm Hexagon.
    Hexagon = 16,
    /// Microsoft MAIA.
    Maia = 17,
    /// AWS Trainium.
    Trainium = 18,
}

impl DeviceKind {
    const ALL: [DeviceKind; 16] = [
        DeviceKind::Cpu,
        DeviceKind::Cuda,
        DeviceKind::CudaHost,
        DeviceKind::OpenCl,
        DeviceKind::Vulkan,
        DeviceKind::Metal,
        DeviceKind::Vpi,
        DeviceKind::Rocm,
        DeviceKind::RocmHost,
        DeviceKind::Extension,
        DeviceKind::CudaManaged,
        DeviceKind::OneApi,
        DeviceKind::WebGpu,
        DeviceKind::Hexagon,
        DeviceKind::Maia,
        DeviceKind::Trainium,
    ];

    /// The kind with this DLPack code.
    pub fn from_code(code: i32) -> Option<Self> {
        if code == Self::Cpu as i32 {
            return Some(Self::Cpu);
        }
        Self::ALL.into_iter().find(|kind| *kind as i32 == code)
    }

    /// The short name that users write and read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::CudaHost => "cuda_host",
            Self::OpenCl => "opencl",
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::Vpi => "vpi",
            Self::Rocm => "rocm",
            Self::RocmHost => "rocm_host",
            Self::Extension => "extension",
            Self::CudaManaged => "cuda_managed",
            Self::OneApi => "oneapi",
            Self::WebGpu => "webgpu",
            Self::Hexagon => "hexagon",
            Self::Maia => "maia",
            Self::Trainium => "trainium",
        }
    }
}

impl Device {
    /// Ordinary host memory.
    pub const CPU: Device = Device { kind: DeviceKind::Cpu, index: 0 };

    /// The CUDA GPU with this index.
    pub const fn cuda(index: i32) -> Device {
        Device { kind: DeviceKind::Cuda, index }
    }

    /// Whether it is host memory, ordinary or pinned.
    #[inline]
    pub fn is_host(self) -> bool {
        matches!(self.kind, DeviceKind::Cpu | DeviceKind::CudaHost)
    }

    /// Whether it is memory of a CUDA GPU, ordinary or managed.
    #[inline]
    pub fn is_cuda(self) -> bool {
        matches!(self.kind, DeviceKind::Cuda | DeviceKind::CudaManaged)
    }

    /// The device without the kind of allocation: pinned memory is on the CPU, and managed memory on the GPU.
    #[doc(hidden)]
    pub fn base_device(self) -> Self {
        match self.kind {
            DeviceKind::CudaHost => Self::CPU,
            DeviceKind::CudaManaged => Self::cuda(self.index),
            _ => self,
        }
    }

    /// The device as DLPack states it: the host is one device, also for a framework with several CPU devices.
    #[doc(hidden)]
    pub fn physical(self) -> Self {
        if self.is_host() { Self::CPU } else { self.base_device() }
    }

    /// Whether both devices use the same physical memory.
    #[doc(hidden)]
    pub fn is_same_memory_as(self, other: Self) -> bool {
        (self.is_host() && other.is_host())
            || (self.is_cuda() && other.is_cuda() && self.index == other.index)
            || self == other
    }

    /// Parses `"cpu"`, `"cuda"`, `"cuda:1"`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) if !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit()) => {
                (name, index.parse().ok()?)
            }
            Some(_) => return None,
            None => (text, 0),
        };
        let name = if name.eq_ignore_ascii_case("gpu") { "cuda" } else { name };
        let kind = DeviceKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))?;
        Some(Self { kind, index })
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Cpu if self.index == 0 => f.write_str("cpu"),
            kind => write!(f, "{}:{}", kind.name(), self.index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_reads_back() {
        for kind in DeviceKind::ALL {
            assert_eq!(DeviceKind::from_code(kind as i32), Some(kind));
            assert_eq!(Device::parse(kind.name()).map(|d| d.kind), Some(kind));
        }
        assert_eq!(DeviceKind::from_code(0), None);
        assert_eq!(DeviceKind::from_code(5), None);
    }

    #[test]
    fn pinned_and_managed_memory() {
        let pinned = Device { kind: DeviceKind::CudaHost, index: 0 };
        let managed = Device { kind: DeviceKind::CudaManaged, index: 1 };
        assert!(Device::CPU.is_same_memory_as(pinned) && pinned.is_same_memory_as(Device::CPU));
        assert!(Device::cuda(1).is_same_memory_as(managed));
        assert_eq!((pinned.base_device(), managed.base_device()), (Device::CPU, Device::cuda(1)));
        assert!(
            !Device::cuda(0).is_same_memory_as(managed) && !Device::cuda(0).is_same_memory_as(Device::CPU)
        );
    }

    #[test]
    fn cpu_devices_share_the_host() {
        let second = Device { kind: DeviceKind::Cpu, index: 1 };
        assert!(second.is_same_memory_as(Device::CPU) && second != Device::CPU);
        assert_eq!((second.base_device(), second.physical()), (second, Device::CPU));
        assert_eq!(Device { kind: DeviceKind::CudaHost, index: 1 }.physical(), Device::CPU);
        assert_eq!(Device { kind: DeviceKind::CudaManaged, index: 1 }.physical(), Device::cuda(1));
        assert_eq!((second.to_string(), Device::CPU.to_string()), ("cpu:1".into(), "cpu".into()));
        assert_eq!(Device::parse("cpu:1"), Some(second));
    }

    #[test]
    fn names_with_an_index() {
        assert_eq!(Device::parse("cuda:1"), Some(Device { kind: DeviceKind::Cuda, index: 1 }));
        assert_eq!(Device::parse("GPU"), Some(Device { kind: DeviceKind::Cuda, index: 0 }));
        assert_eq!(Device::parse("cpu:0"), Some(Device::CPU));
        for invalid in ["", "cuda:", "cuda:-1", "cuda:x", "tpu", "cuda:99999999999"] {
            assert_eq!(Device::parse(invalid), None, "{invalid}");
        }
    }
}

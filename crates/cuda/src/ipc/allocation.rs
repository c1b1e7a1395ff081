//! What an address belongs to, and whether that can be handed to another process.

use super::arena::{ExportHandle, GpuArena, Hold, Name, legacy};
use super::physical::Physical;
use super::registry;
use crate::abi::{BUFFER, DESCRIPTOR, HANDLES, IS_LEGACY, MAPPING_BYTES, MAPPING_START, POOL};
use crate::driver::{Address, needed};
use crate::gpu::Gpu;
use crate::memory::device_of_address;
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use tensorferry_core::device::DeviceKind;
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// How an allocation can be handed to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportMethod {
    /// By a descriptor of its own; the only way on which it can be read-only there.
    Descriptor,
    /// By a legacy handle.
    Legacy,
    /// Not at all.
    None,
}

/// The allocation that an address lies in.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    gpu: &'static Gpu,
    base: Address,
    bytes: usize,
    offset: usize,
    way: ExportMethod,
    buffer: u64,
}

impl Allocation {
    /// What the driver knows of the allocation at an address of a GPU. Nothing is tried, so that nothing fails.
    ///
    /// # Errors
    /// When it is not memory of a GPU alone, or there is no driver.
    pub fn of(address: *const u8) -> Result<Self> {
        let place = device_of_address(address as usize)?;
        if place.kind != DeviceKind::Cuda {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the address is memory of {place}, and only that of a GPU can be exported"),
            )
            .with_advice("move the tensor to the GPU first, or publish it from the CPU"));
        }
        let gpu = Gpu::get(place.index)?;
        let _entered = gpu.enter()?;
        let address = address as Address;
        let (mut base, mut bytes) = (0, 0);
        // SAFETY: places for the answers.
        needed("cuMemGetAddressRange", unsafe {
            gpu.driver.address_range(&raw mut base, &raw mut bytes, address)
        })?;
        // An old driver does not know all of these questions: what it cannot answer is not exported.
        let [is_legacy, handles, pool, buffer] =
            ask(gpu, [IS_LEGACY, HANDLES, POOL, BUFFER], address).unwrap_or_default();
        let [start, length] = ask(gpu, [MAPPING_START, MAPPING_BYTES], address).unwrap_or_default();
        let exports = handles & DESCRIPTOR as u64 != 0;
        // A handle covers one mapping, of perhaps many in the range of addresses.
        let maps = start <= address && address - start < length;
        let way = match (pool != 0, exports, is_legacy & 0xff != 0) {
            // Of a pool: see the essay.
            (true, ..) => ExportMethod::None,
            (false, true, _) if maps => ExportMethod::Descriptor,
            (false, _, true) => ExportMethod::Legacy,
            _ => ExportMethod::None,
        };
        if way == ExportMethod::Descriptor {
            (base, bytes) = (start, length as usize);
        }
        let offset = address.wrapping_sub(base) as usize;
        Ok(Self { gpu, base, bytes, offset, way, buffer })
    }

    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// How many bytes another process would see.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How far from the beginning of the allocation the address is.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How it can be handed over.
    pub fn way(&self) -> ExportMethod {
        self.way
    }

    /// Whether others can be handed it so that they cannot write.
    pub fn can_be_read_only(&self) -> bool {
        self.way == ExportMethod::Descriptor
    }

    /// Exports it. What comes back can be published; it keeps `owner` for as long as anybody has it.
    ///
    /// # Errors
    /// When there is no way, or the driver refuses.
    ///
    /// # Safety
    /// The allocation stays where it is and as it is for as long as `owner` lives.
    pub unsafe fn export(&self, owner: Box<dyn Any + Send + Sync>) -> Result<Arc<GpuArena>> {
        let _entered = self.gpu.enter()?;
        let name = registry::name((self.buffer, self.base, self.bytes), || {
            Ok(Name { id: super::random()?, door: self.door()? })
        })?;
        let place = (self.base, self.bytes);
        let hold = Hold::Kept(owner);
        Ok(registry::keep(GpuArena::assemble(self.gpu, place, Access::ReadWrite, name, hold, false)))
    }

    fn door(&self) -> Result<ExportHandle> {
        match self.way {
            ExportMethod::Descriptor => {
                Ok(ExportHandle::Descriptor(Physical::behind(self.gpu, self.base)?.export()?))
            }
            ExportMethod::Legacy => legacy(self.gpu, self.base),
            ExportMethod::None => Err(Error::new(
                ErrorKind::CopyRequired,
                "the allocation cannot be handed to another process: its framework did not make it for that",
            )
            .with_advice("publish a copy")),
        }
    }
}

/// Answers about an address, all or none.
fn ask<const COUNT: usize>(gpu: &Gpu, which: [c_int; COUNT], address: Address) -> Option<[u64; COUNT]> {
    // Some answers are shorter than eight bytes; the rest stays zero.
    let mut answers = [0u64; COUNT];
    let into: [*mut c_void; COUNT] = std::array::from_fn(|at| (&raw mut answers[at]).cast());
    // SAFETY: as many questions as places, each large enough for any answer.
    unsafe { gpu.driver.pointer_attributes(COUNT as u32, which.as_ptr(), into.as_ptr(), address) }.ok()?;
    Some(answers)
}

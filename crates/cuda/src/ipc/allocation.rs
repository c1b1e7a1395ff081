//! The allocation behind an address, and whether it can be exported to another process.

use super::arena::{ArenaMemory, GpuArena};
use super::identity::{ArenaIdentity, ExportHandle, random_id};
use super::physical::PhysicalMemory;
use crate::abi::{FILE_DESCRIPTOR_HANDLE, PointerAttribute};
use crate::driver::handles::Address;
use crate::driver::require;
use crate::gpu::Gpu;
use crate::hints;
use crate::memory::device_of_address;
use std::any::Any;
use std::sync::Arc;
use tensorferry_core::device::DeviceKind;
use tensorferry_core::{Access, Error, ErrorKind, Result};

/// How an allocation can be exported to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportMethod {
    /// By a file descriptor, the only method that allows read-only access.
    Descriptor,
    /// By a legacy IPC handle.
    Legacy,
    /// Not at all.
    None,
}

/// The allocation that contains an address.
#[derive(Clone, Copy, Debug)]
pub struct Allocation {
    gpu: &'static Gpu,
    base: Address,
    bytes: usize,
    offset: usize,
    export_method: ExportMethod,
    buffer_id: u64,
}

impl Allocation {
    /// Queries the driver about the allocation at an address of a GPU. No export is tried, because a failed export leaves
    /// some drivers in an error state.
    ///
    /// # Errors
    /// If the address is not GPU memory, or the driver is missing.
    pub fn of(address: *const u8) -> Result<Self> {
        let device = device_of_address(address as usize)?;
        if device.kind != DeviceKind::Cuda {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the memory is on {device}, and only GPU memory can be exported"),
            )
            .with_hint(hints::MOVE_TO_GPU));
        }
        let gpu = Gpu::get(device.index)?;
        let _entered = gpu.enter()?;
        let address = address as Address;
        let (mut base, mut bytes) = (0, 0);
        require("cuMemGetAddressRange", gpu.driver.address_range(&mut base, &mut bytes, address))?;
        // An old driver lacks some of these attributes. Allocations that it cannot describe are not exported.
        let export_attributes = [
            PointerAttribute::IS_LEGACY_IPC_CAPABLE,
            PointerAttribute::ALLOWED_HANDLE_TYPES,
            PointerAttribute::MEMPOOL_HANDLE,
            PointerAttribute::BUFFER_ID,
        ];
        let [is_legacy, handle_types, pool, buffer_id] =
            gpu.driver.query_address(export_attributes, address).unwrap_or_default();
        let mapping_attributes = [PointerAttribute::MAPPING_BASE_ADDRESS, PointerAttribute::MAPPING_SIZE];
        let [start, length] = gpu.driver.query_address(mapping_attributes, address).unwrap_or_default();
        let has_descriptor = handle_types & FILE_DESCRIPTOR_HANDLE as u64 != 0;
        // A handle covers one mapping, of perhaps many in the address range.
        let is_in_mapping = start <= address && address - start < length;
        let export_method = match (pool != 0, has_descriptor, is_legacy & 0xff != 0) {
            // Memory pools are not supported: see the module documentation of `ipc`.
            (true, ..) => ExportMethod::None,
            (false, true, _) if is_in_mapping => ExportMethod::Descriptor,
            (false, _, true) => ExportMethod::Legacy,
            _ => ExportMethod::None,
        };
        if export_method == ExportMethod::Descriptor {
            (base, bytes) = (start, length as usize);
        }
        let offset = address.wrapping_sub(base) as usize;
        Ok(Self { gpu, base, bytes, offset, export_method, buffer_id })
    }

    /// The GPU.
    pub fn gpu(&self) -> &'static Gpu {
        self.gpu
    }

    /// The bytes that another process would see.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The offset of the address in the allocation.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How it can be exported.
    pub fn export_method(&self) -> ExportMethod {
        self.export_method
    }

    /// Whether other processes can be given read-only access.
    pub fn can_be_read_only(&self) -> bool {
        self.export_method == ExportMethod::Descriptor
    }

    /// Exports it as an arena that can be published. The arena keeps `owner` alive.
    ///
    /// # Errors
    /// If the allocation cannot be exported, or the driver refuses.
    ///
    /// ```compile_fail,E0133
    /// # use tensorferry_cuda::{DeviceBlock, Gpu, Stream, ipc::Allocation};
    /// let block = DeviceBlock::new_exportable(Gpu::get(0)?, 64, Stream::LEGACY)?;
    /// let arena = Allocation::of(block.data())?.export(Box::new(()))?;
    /// drop(block); // The arena would outlive its memory.
    /// # Ok::<(), tensorferry_core::Error>(())
    /// ```
    ///
    /// # Safety
    /// The allocation that [`Allocation::of`] found still exists, and is neither freed nor mapped elsewhere for as long as
    /// `owner` lives.
    pub unsafe fn export(&self, owner: Box<dyn Any + Send + Sync>) -> Result<Arc<GpuArena>> {
        let _entered = self.gpu.enter()?;
        let identity = ArenaIdentity::of_allocation((self.buffer_id, self.base, self.bytes), || {
            Ok(ArenaIdentity { id: random_id()?, handle: self.export_handle()? })
        })?;
        let range = (self.base, self.bytes);
        let memory = ArenaMemory::Borrowed(owner);
        Ok(GpuArena::assemble(self.gpu, range, Access::ReadWrite, identity, memory, false).register())
    }

    fn export_handle(&self) -> Result<ExportHandle> {
        match self.export_method {
            ExportMethod::Descriptor => {
                Ok(ExportHandle::Descriptor(PhysicalMemory::mapped_at(self.gpu, self.base)?.export()?))
            }
            ExportMethod::Legacy => ExportHandle::legacy(self.gpu, self.base),
            ExportMethod::None => Err(Error::new(
                ErrorKind::CopyRequired,
                "the allocation cannot be exported to another process: its framework did not allocate it for that",
            )
            .with_hint(hints::PUBLISH_COPY)),
        }
    }
}

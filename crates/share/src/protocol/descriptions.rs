//! Descriptions of GPUs, memories and tensors in a delivery.

use super::limits::MAX_DIMENSIONS;
use super::reader::{Reader, check_limit};
use crate::errors::protocol_error;
use tensorferry_core::fallible::try_reserve;
use tensorferry_core::{Access, DType, Layout, Result};

/// A GPU of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDescription {
    /// The UUID, which is the same in every process.
    pub uuid: [u8; 16],
    /// The handle of the event to wait for, unless all tensors are ready.
    pub event: Option<[u8; 64]>,
}

impl GpuDescription {
    /// The encoded size without an event.
    pub(super) const MIN_BYTES: usize = 17;

    pub(super) fn write(&self, body: &mut Vec<u8>) {
        body.extend(self.uuid);
        body.push(u8::from(self.event.is_some()));
        self.event.iter().for_each(|event| body.extend(event));
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let uuid = reader.array()?;
        let event = match reader.u8()? {
            0 => None,
            1 => Some(reader.array()?),
            other => return Err(protocol_error(format!("unknown event flag {other}"))),
        };
        Ok(Self { uuid, event })
    }
}

/// How the producer exports GPU memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportDescription {
    /// By a file descriptor, which is sent with the reply.
    Descriptor,
    /// By this legacy IPC handle.
    Legacy([u8; 64]),
}

/// The device of a memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// Host memory; its descriptor is sent with the reply.
    Host,
    /// GPU memory.
    Gpu {
        /// The index of the GPU in the delivery.
        gpu: u32,
        /// The id of the allocation.
        id: [u8; 16],
        /// How to import it.
        export: ExportDescription,
    },
}

/// A memory of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDescription {
    /// The length.
    pub bytes: u64,
    /// The device.
    pub location: MemoryLocation,
}

impl MemoryDescription {
    /// The encoded size of host memory.
    pub(super) const MIN_BYTES: usize = 9;

    /// Host memory.
    pub fn host(bytes: u64) -> Self {
        Self { bytes, location: MemoryLocation::Host }
    }

    /// Whether a descriptor is sent for it.
    pub fn has_descriptor(&self) -> bool {
        !matches!(self.location, MemoryLocation::Gpu { export: ExportDescription::Legacy(_), .. })
    }

    pub(super) fn write(&self, body: &mut Vec<u8>) -> Result<()> {
        try_reserve(body, size_of::<Self>())?;
        let kind = match &self.location {
            MemoryLocation::Host => 0,
            MemoryLocation::Gpu { export: ExportDescription::Descriptor, .. } => 1,
            MemoryLocation::Gpu { export: ExportDescription::Legacy(_), .. } => 2,
        };
        body.push(kind);
        body.extend(self.bytes.to_le_bytes());
        if let MemoryLocation::Gpu { gpu, id, export } = &self.location {
            body.extend(gpu.to_le_bytes());
            body.extend(id);
            if let ExportDescription::Legacy(handle) = export {
                body.extend(handle);
            }
        }
        Ok(())
    }

    pub(super) fn read(reader: &mut Reader<'_>, access: Access) -> Result<Self> {
        let (kind, bytes) = (reader.u8()?, reader.u64()?);
        if kind == 0 {
            return Ok(Self::host(bytes));
        }
        let (gpu, id) = (reader.u32()?, reader.array()?);
        let export = match kind {
            1 => ExportDescription::Descriptor,
            2 => ExportDescription::Legacy(reader.array()?),
            other => return Err(protocol_error(format!("unknown memory kind {other}"))),
        };
        if access == Access::ReadOnly && export != ExportDescription::Descriptor {
            return Err(protocol_error("legacy GPU memory cannot be protected as read-only"));
        }
        Ok(Self { bytes, location: MemoryLocation::Gpu { gpu, id, export } })
    }

    /// Checks the index of the GPU.
    pub(super) fn check(&self, gpus: usize) -> Result<()> {
        match self.location {
            MemoryLocation::Gpu { gpu, .. } if gpu as usize >= gpus => {
                Err(protocol_error(format!("a memory is on GPU {gpu}, but the reply lists {gpus} GPUs")))
            }
            _ => Ok(()),
        }
    }
}

/// A tensor of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDescription {
    /// The index of its memory in the delivery.
    pub memory: u32,
    /// The offset in the memory of the element with index zero in every dimension.
    pub offset: u64,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

impl TensorDescription {
    /// The encoded size of a scalar.
    pub(super) const MIN_BYTES: usize = 16;

    pub(super) fn write(&self, body: &mut Vec<u8>) -> Result<()> {
        try_reserve(body, 16 + 16 * self.layout.rank())?;
        let (code, bits) = self.dtype.dlpack_code();
        body.extend(self.memory.to_le_bytes());
        body.extend(self.offset.to_le_bytes());
        body.extend([code, bits]);
        body.extend((self.layout.rank() as u16).to_le_bytes());
        let numbers = self.layout.shape().iter().chain(self.layout.strides());
        numbers.for_each(|number| body.extend(number.to_le_bytes()));
        Ok(())
    }

    /// Decodes a tensor. The two vectors are buffers, which the caller reuses for all tensors.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        shape: &mut Vec<i64>,
        strides: &mut Vec<i64>,
    ) -> Result<Self> {
        let (memory, offset) = (reader.u32()?, reader.u64()?);
        let (code, bits) = (reader.u8()?, reader.u8()?);
        let dtype = DType::from_dlpack_code(code, bits);
        let dtype =
            dtype.ok_or_else(|| protocol_error(format!("unknown element type {code} of {bits} bits")))?;
        let rank = usize::from(reader.u16()?);
        check_limit("dimensions", rank, MAX_DIMENSIONS)?;
        for numbers in [&mut *shape, &mut *strides] {
            numbers.clear();
            for bytes in reader.take(rank * 8)?.chunks_exact(8) {
                numbers.push(Reader(bytes).u64()? as i64);
            }
        }
        let layout = Layout::strided(dtype.size(), shape, strides);
        let layout = layout.map_err(|error| protocol_error(error.fact().to_owned()))?;
        Ok(Self { memory, offset, dtype, layout })
    }

    /// Checks that every element is inside the tensor's memory.
    pub(super) fn check(&self, memories: &[MemoryDescription]) -> Result<()> {
        check_limit("dimensions", self.layout.rank(), MAX_DIMENSIONS)?;
        if self.layout.item() != self.dtype.size() {
            let (item, size) = (self.layout.item(), self.dtype.size());
            return Err(protocol_error(format!("{} has elements of {size} bytes, not {item}", self.dtype)));
        }
        let Some(&MemoryDescription { bytes: length, .. }) = memories.get(self.memory as usize) else {
            return Err(protocol_error(format!(
                "a tensor is in memory {}, but the reply lists {} memories",
                self.memory,
                memories.len()
            )));
        };
        let (low, high) = self.layout.extent();
        let fits = |reach| self.offset.checked_add_signed(reach).is_some_and(|at| at <= length);
        if fits(low) && fits(high) {
            return Ok(());
        }
        Err(protocol_error(format!(
            "a tensor of shape {:?} at offset {} does not fit into memory of {length} bytes",
            &self.layout.shape()[..self.layout.rank().min(8)],
            self.offset
        )))
    }
}

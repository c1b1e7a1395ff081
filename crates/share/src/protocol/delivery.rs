//! The body of a reply that delivers tensors.

use super::descriptions::{GpuDescription, MemoryDescription, TensorDescription};
use super::limits::{MAX_GPUS, MAX_MEMORIES, MAX_STRUCTURE_BYTES, MAX_TENSORS};
use super::reader::{Reader, check_limit};
use crate::errors::protocol_error;
use tensorferry_core::fallible::{try_copy, try_reserve};
use tensorferry_core::{Access, Result};

/// What a consumer receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The access that consumers have to all memories.
    pub access: Access,
    /// The GPUs of the memories.
    pub gpus: Vec<GpuDescription>,
    /// The memories.
    pub memories: Vec<MemoryDescription>,
    /// The tensors in them.
    pub tensors: Vec<TensorDescription>,
    /// The tree around the tensors, as the producer encoded it.
    pub structure: Vec<u8>,
}

impl Delivery {
    pub(super) fn write(&self, body: &mut Vec<u8>) -> Result<()> {
        check_limit("GPUs", self.gpus.len(), MAX_GPUS)?;
        check_limit("memories", self.memories.len(), MAX_MEMORIES)?;
        check_limit("tensors", self.tensors.len(), MAX_TENSORS)?;
        check_limit("bytes of tree structure", self.structure.len(), MAX_STRUCTURE_BYTES)?;
        body.extend([0, u8::from(self.access == Access::ReadWrite)]);
        body.extend((self.gpus.len() as u32).to_le_bytes());
        self.gpus.iter().for_each(|gpu| gpu.write(body));
        body.extend((self.memories.len() as u32).to_le_bytes());
        for memory in &self.memories {
            memory.check(self.gpus.len())?;
            memory.write(body)?;
        }
        body.extend((self.tensors.len() as u32).to_le_bytes());
        for tensor in &self.tensors {
            tensor.check(&self.memories)?;
            tensor.write(body)?;
        }
        try_reserve(body, 4 + self.structure.len())?;
        body.extend((self.structure.len() as u32).to_le_bytes());
        body.extend(&self.structure);
        Ok(())
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let access = match reader.u8()? {
            0 => Access::ReadOnly,
            1 => Access::ReadWrite,
            other => return Err(protocol_error(format!("unknown access mode {other}"))),
        };
        let count = reader.count("GPUs", MAX_GPUS, GpuDescription::MIN_BYTES)?;
        let mut gpus: Vec<GpuDescription> = Vec::with_capacity(count);
        for _ in 0..count {
            let gpu = GpuDescription::read(reader)?;
            if gpus.iter().any(|other| other.uuid == gpu.uuid) {
                return Err(protocol_error("the reply lists a GPU twice"));
            }
            gpus.push(gpu);
        }
        let count = reader.count("memories", MAX_MEMORIES, MemoryDescription::MIN_BYTES)?;
        let mut memories = Vec::new();
        try_reserve(&mut memories, count)?;
        for _ in 0..count {
            let memory = MemoryDescription::read(reader, access)?;
            memory.check(gpus.len())?;
            memories.push(memory);
        }
        let count = reader.count("tensors", MAX_TENSORS, TensorDescription::MIN_BYTES)?;
        let mut tensors = Vec::new();
        try_reserve(&mut tensors, count)?;
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let tensor = TensorDescription::read(reader, &mut shape, &mut strides)?;
            tensor.check(&memories)?;
            tensors.push(tensor);
        }
        let count = reader.count("bytes of tree structure", MAX_STRUCTURE_BYTES, 1)?;
        let structure = try_copy(reader.take(count)?)?;
        Ok(Self { access, gpus, memories, tensors, structure })
    }
}

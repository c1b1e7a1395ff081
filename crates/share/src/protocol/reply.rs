//! What goes over the socket: one request, one reply, in a fixed binary format.
//!
//! All numbers are little-endian. A message is a head (magic `TFSH`, version u16, kind u16, length of the body u32) and a
//! body.
//!
//! - A request: id (16 bytes), secret (16 bytes).
//! - A refusal: status 1 (u8), reason (u8), length of the text (u16), text.
//! - A hand-over: status 0 (u8), access (u8, 0 read-only, 1 read-write); number of GPUs (u32), for each its UUID (16
//!   bytes), whether there is work to wait for (u8), and if so the handle of an event (64 bytes); number of memories (u32),
//!   for each its kind (u8: 0 the host's, 1 a GPU's with a handle of its own, 2 legacy) and length (u64), and
//!   if it is a GPU's the index of the GPU (u32), the name of the allocation (16 bytes), and for kind 2 a handle (64
//!   bytes); number of tensors (u32), for each its memory (u32), the offset of its first element (u64), DLPack's type code
//!   and bits (u8, u8), rank (u16), shape and strides in bytes (i64 each); length of the structure (u32), structure. The
//!   descriptors of the memories, of all kinds but legacy, come with the bytes, in their order.
//!
//! The other side is not trusted. Every number is bounded, and compared with the bytes that are really there, before
//! anything is allocated for it; every element of every tensor must lie in its memory. What the structure means is for the
//! caller to check. One message has one form: whatever reads as valid is written the same again.

use crate::errors::broken;
use std::fmt;
use tensorferry_core::fallible::{try_copy, try_reserve};
use tensorferry_core::{Access, DType, Layout, Result};

/// What every message begins with.
const MAGIC: [u8; 4] = *b"TFSH";
/// The version of the format.
const VERSION: u16 = 2;
/// Bytes of a head.
pub const HEADER_BYTES: usize = 12;
/// Bytes of a request, its head included.
pub const REQUEST_BYTES: usize = HEADER_BYTES + 32;
/// The most GPUs in a reply.
pub const MAX_GPUS: usize = 64;
/// The most memories in a reply.
pub const MAX_MEMORIES: usize = 4096;
/// The most tensors in a reply.
pub const MAX_TENSORS: usize = 1 << 20;
/// The most bytes of a structure.
pub const MAX_STRUCTURE_BYTES: usize = 16 << 20;
/// The most bytes of a body.
pub const MAX_BODY_BYTES: usize = 256 << 20;
/// The most dimensions, as the core takes them from DLPack.
pub const MAX_DIMENSIONS: usize = 1024;
const MOST_TEXT: usize = 512;

/// The kinds of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// From consumer to producer.
    Request = 1,
    /// From producer to consumer.
    Reply = 2,
}

/// What a consumer asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Which publication.
    pub id: [u8; 16],
    /// What proves the right to it.
    pub secret: [u8; 16],
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    /// Withdrawn, or never given out; the secret may be wrong too.
    Unknown = 1,
    /// Its time is over.
    Expired = 2,
    /// It was good for one consumer, and had one.
    Used = 3,
    /// The request breaks the rules.
    Malformed = 4,
    /// The producer could not do it; the text says why.
    Failed = 5,
    /// The producer has no descriptor left; the text says of how many.
    NoDescriptor = 6,
    /// Too many descriptors are on their way to consumers that do not read; the text says how many.
    Crowded = 7,
}

impl RejectReason {
    /// All that there are.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Expired,
        Self::Used,
        Self::Malformed,
        Self::Failed,
        Self::NoDescriptor,
        Self::Crowded,
    ];

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&reason| reason as u8 == code)
    }
}

/// A GPU of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuDescription {
    /// Which one, in every process.
    pub uuid: [u8; 16],
    /// The event to wait for, where not all is ready.
    pub event: Option<[u8; 64]>,
}

/// How a consumer comes to a GPU's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportedBy {
    /// By a descriptor.
    Descriptor,
    /// By this handle.
    Legacy([u8; 64]),
}

/// Where a memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryLocation {
    /// On the host; a descriptor comes with it.
    Host,
    /// On a GPU.
    Gpu {
        /// The index of the GPU in the reply.
        gpu: u32,
        /// The name of the allocation.
        id: [u8; 16],
        /// How to come to it.
        way: ExportedBy,
    },
}

/// A memory of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryDescription {
    /// Its length.
    pub bytes: u64,
    /// Where it is.
    pub place: MemoryLocation,
}

impl MemoryDescription {
    /// Memory of the host.
    pub fn host(bytes: u64) -> Self {
        Self { bytes, place: MemoryLocation::Host }
    }

    /// Whether a descriptor comes with it.
    pub fn has_descriptor(&self) -> bool {
        !matches!(self.place, MemoryLocation::Gpu { way: ExportedBy::Legacy(_), .. })
    }

    fn write(&self, body: &mut Vec<u8>) {
        let kind = match &self.place {
            MemoryLocation::Host => 0,
            MemoryLocation::Gpu { way: ExportedBy::Descriptor, .. } => 1,
            MemoryLocation::Gpu { way: ExportedBy::Legacy(_), .. } => 2,
        };
        body.push(kind);
        body.extend(self.bytes.to_le_bytes());
        if let MemoryLocation::Gpu { gpu, id, way } = &self.place {
            body.extend(gpu.to_le_bytes());
            body.extend(id);
            if let ExportedBy::Legacy(handle) = way {
                body.extend(handle);
            }
        }
    }

    fn read(reader: &mut Reader<'_>, access: Access) -> Result<Self> {
        let (kind, bytes) = (reader.u8()?, reader.u64()?);
        if kind == 0 {
            return Ok(Self::host(bytes));
        }
        let (gpu, id) = (reader.u32()?, reader.array()?);
        let way = match kind {
            1 => ExportedBy::Descriptor,
            2 => ExportedBy::Legacy(reader.array()?),
            other => return Err(broken(format!("a memory has the unknown kind {other}"))),
        };
        if access == Access::ReadOnly && way != ExportedBy::Descriptor {
            return Err(broken("the producer sent as read-only what cannot be protected"));
        }
        Ok(Self { bytes, place: MemoryLocation::Gpu { gpu, id, way } })
    }

    fn check(&self, gpus: usize) -> Result<()> {
        match self.place {
            MemoryLocation::Gpu { gpu, .. } if gpu as usize >= gpus => {
                Err(broken(format!("a memory is on GPU {gpu} of {gpus}")))
            }
            _ => Ok(()),
        }
    }
}

/// A tensor of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorDescription {
    /// The index of its memory.
    pub memory: u32,
    /// Where in the memory the element with index zero in every dimension begins.
    pub offset: u64,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

/// What a consumer is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What may be done to the memories.
    pub access: Access,
    /// The GPUs on which some of the memories are.
    pub gpus: Vec<GpuDescription>,
    /// The memories.
    pub memories: Vec<MemoryDescription>,
    /// The tensors in them.
    pub tensors: Vec<TensorDescription>,
    /// How the tensors belong together, in the caller's words.
    pub structure: Vec<u8>,
}

/// What a producer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// No, and why.
    Refusal {
        /// Which sort of no.
        reason: RejectReason,
        /// The same as text.
        text: String,
    },
    /// The tensors.
    Delivery(Delivery),
}

fn head(kind: MessageKind, body: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend((kind as u16).to_le_bytes());
    bytes.extend((body as u32).to_le_bytes());
    bytes
}

/// The length of the body that follows a head.
///
/// # Errors
/// When it is no head of that kind, or announces more than there may be.
pub fn read_head(bytes: &[u8; HEADER_BYTES], kind: MessageKind) -> Result<usize> {
    let mut reader = Reader(bytes);
    if reader.array::<4>()? != MAGIC {
        return Err(broken("the other process does not speak as tensorferry does"));
    }
    let version = reader.u16()?;
    if version != VERSION {
        return Err(broken(format!(
            "the other process speaks version {version}, and this one speaks version {VERSION}"
        )));
    }
    if reader.u16()? != kind as u16 {
        return Err(broken("a message is of the wrong kind"));
    }
    let length = reader.u32()? as usize;
    let right = match kind {
        MessageKind::Request => length == REQUEST_BYTES - HEADER_BYTES,
        MessageKind::Reply => (1..=MAX_BODY_BYTES).contains(&length),
    };
    if right { Ok(length) } else { Err(broken(format!("a message announces a body of {length} bytes"))) }
}

impl Request {
    /// The message.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = head(MessageKind::Request, REQUEST_BYTES - HEADER_BYTES);
        bytes.extend(self.id);
        bytes.extend(self.secret);
        bytes
    }

    /// A request out of its message.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(bytes: &[u8; REQUEST_BYTES]) -> Result<Self> {
        let mut reader = Reader(bytes);
        read_head(&reader.array()?, MessageKind::Request)?;
        Ok(Self { id: reader.array()?, secret: reader.array()? })
    }
}

impl Reply {
    /// The message, head included.
    ///
    /// # Errors
    /// When there is more in it than a message may hold.
    pub fn write(&self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        match self {
            Self::Refusal { reason, text } => {
                let end = (0..=text.len().min(MOST_TEXT)).rev().find(|&end| text.is_char_boundary(end));
                let text = &text.as_bytes()[..end.unwrap_or(0)];
                body.extend([1, *reason as u8]);
                body.extend((text.len() as u16).to_le_bytes());
                body.extend(text);
            }
            Self::Delivery(given) => given.write(&mut body)?,
        }
        bound("bytes in the message", body.len(), MAX_BODY_BYTES)?;
        let mut message = head(MessageKind::Reply, body.len());
        try_reserve(&mut message, body.len())?;
        message.extend(body);
        Ok(message)
    }

    /// A reply out of the body of its message.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(body: &[u8]) -> Result<Self> {
        let mut reader = Reader(body);
        let reply = match reader.u8()? {
            0 => Self::Delivery(Delivery::read(&mut reader)?),
            1 => {
                let reason = RejectReason::from_code(reader.u8()?);
                let reason = reason.ok_or_else(|| broken("a refusal has an unknown reason"))?;
                let length = usize::from(reader.u16()?);
                bound("letters in the refusal", length, MOST_TEXT)?;
                let text = String::from_utf8(reader.take(length)?.to_vec());
                Self::Refusal { reason, text: text.map_err(|_| broken("a refusal is no text"))? }
            }
            status => return Err(broken(format!("a reply has the unknown status {status}"))),
        };
        if reader.0.is_empty() {
            Ok(reply)
        } else {
            Err(broken(format!("a reply has {} bytes too many", reader.0.len())))
        }
    }
}

impl Delivery {
    fn write(&self, body: &mut Vec<u8>) -> Result<()> {
        bound("GPUs", self.gpus.len(), MAX_GPUS)?;
        bound("memories", self.memories.len(), MAX_MEMORIES)?;
        bound("tensors", self.tensors.len(), MAX_TENSORS)?;
        bound("bytes of structure", self.structure.len(), MAX_STRUCTURE_BYTES)?;
        body.extend([0, u8::from(self.access == Access::ReadWrite)]);
        body.extend((self.gpus.len() as u32).to_le_bytes());
        for gpu in &self.gpus {
            body.extend(gpu.uuid);
            body.push(u8::from(gpu.event.is_some()));
            gpu.event.iter().for_each(|event| body.extend(event));
        }
        body.extend((self.memories.len() as u32).to_le_bytes());
        for memory in &self.memories {
            memory.check(self.gpus.len())?;
            try_reserve(body, size_of::<MemoryDescription>())?;
            memory.write(body);
        }
        body.extend((self.tensors.len() as u32).to_le_bytes());
        for tensor in &self.tensors {
            tensor.check(&self.memories)?;
            try_reserve(body, 16 + 16 * tensor.layout.rank())?;
            let (code, bits) = tensor.dtype.dlpack_code();
            body.extend(tensor.memory.to_le_bytes());
            body.extend(tensor.offset.to_le_bytes());
            body.extend([code, bits]);
            body.extend((tensor.layout.rank() as u16).to_le_bytes());
            let numbers = tensor.layout.shape().iter().chain(tensor.layout.strides());
            numbers.for_each(|number| body.extend(number.to_le_bytes()));
        }
        try_reserve(body, 4 + self.structure.len())?;
        body.extend((self.structure.len() as u32).to_le_bytes());
        body.extend(&self.structure);
        Ok(())
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let access = match reader.u8()? {
            0 => Access::ReadOnly,
            1 => Access::ReadWrite,
            other => return Err(broken(format!("a reply has the unknown access {other}"))),
        };
        let count = reader.count("GPUs", MAX_GPUS, 17)?;
        let mut gpus: Vec<GpuDescription> = Vec::with_capacity(count);
        for _ in 0..count {
            let uuid = reader.array()?;
            let event = match reader.u8()? {
                0 => None,
                1 => Some(reader.array()?),
                other => return Err(broken(format!("a GPU has the unknown state {other}"))),
            };
            if gpus.iter().any(|gpu| gpu.uuid == uuid) {
                return Err(broken("a reply has a GPU twice"));
            }
            gpus.push(GpuDescription { uuid, event });
        }
        // One of the host takes 9 bytes.
        let count = reader.count("memories", MAX_MEMORIES, 9)?;
        let mut memories = Vec::new();
        try_reserve(&mut memories, count)?;
        for _ in 0..count {
            let memory = MemoryDescription::read(reader, access)?;
            memory.check(gpus.len())?;
            memories.push(memory);
        }
        // A scalar takes 16 bytes.
        let count = reader.count("tensors", MAX_TENSORS, 16)?;
        let mut tensors = Vec::new();
        try_reserve(&mut tensors, count)?;
        let (mut shape, mut strides) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let (memory, offset) = (reader.u32()?, reader.u64()?);
            let (code, bits) = (reader.u8()?, reader.u8()?);
            let dtype = DType::from_dlpack_code(code, bits);
            let dtype = dtype
                .ok_or_else(|| broken(format!("a tensor has the unknown type {code} of {bits} bits")))?;
            let rank = usize::from(reader.u16()?);
            bound("dimensions", rank, MAX_DIMENSIONS)?;
            for numbers in [&mut shape, &mut strides] {
                numbers.clear();
                for bytes in reader.take(rank * 8)?.chunks_exact(8) {
                    numbers.push(Reader(bytes).u64()? as i64);
                }
            }
            let layout = Layout::strided(dtype.size(), &shape, &strides);
            let layout = layout.map_err(|error| broken(error.fact().to_owned()))?;
            let tensor = TensorDescription { memory, offset, dtype, layout };
            tensor.check(&memories)?;
            tensors.push(tensor);
        }
        let count = reader.count("bytes of structure", MAX_STRUCTURE_BYTES, 1)?;
        let structure = try_copy(reader.take(count)?)?;
        Ok(Self { access, gpus, memories, tensors, structure })
    }
}

impl TensorDescription {
    /// Whether every element lies in the tensor's memory.
    fn check(&self, memories: &[MemoryDescription]) -> Result<()> {
        bound("dimensions", self.layout.rank(), MAX_DIMENSIONS)?;
        if self.layout.item() != self.dtype.size() {
            return Err(broken(format!("elements of {} bytes cannot be {}", self.layout.item(), self.dtype)));
        }
        let Some(&MemoryDescription { bytes: length, .. }) = memories.get(self.memory as usize) else {
            return Err(broken(format!("a tensor lies in memory {} of {}", self.memory, memories.len())));
        };
        let (low, high) = self.layout.extent();
        let fits = |reach| self.offset.checked_add_signed(reach).is_some_and(|at| at <= length);
        if fits(low) && fits(high) {
            return Ok(());
        }
        Err(broken(format!(
            "a tensor of shape {:?} at offset {} does not fit into memory of {length} bytes",
            &self.layout.shape()[..self.layout.rank().min(8)],
            self.offset
        )))
    }
}

pub(crate) fn bound(what: &str, count: usize, most: usize) -> Result<()> {
    if count <= most {
        Ok(())
    } else {
        Err(broken(format!("{count} {what} are more than the {most} that there may be")))
    }
}

/// The bytes that are left.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err(broken(format!("a message ends {} bytes early", count - self.0.len())));
        };
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT]> {
        let mut array = [0; COUNT];
        array.copy_from_slice(self.take(COUNT)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number of things that take `least` bytes each: no more than may be, and no more than there are bytes for.
    pub(crate) fn count(&mut self, what: &str, most: usize, least: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        bound(what, count, most)?;
        bound(what, count, self.0.len() / least)?;
        Ok(count)
    }
}

//! Attaching a ticket: requesting a publication, and mapping what the producer delivers.
//!
//! # Guarantees
//!
//! - The producer is not trusted. It must be the process that the ticket names and run as the same user, its reply is
//!   checked ([`crate::protocol`]), and every descriptor must be sealed memory of the announced size. Other
//!   descriptors are closed.
//! - Memory is mapped once in a process for each kind of access, however many tickets refer to it.
//! - GPUs are identified by UUID. The caller has streams wait for the producer's work on each GPU
//!   ([`ReadyState`]) before they use its tensors.
//! - Each tensor keeps its memory and the lease. When the last tensor of a ticket is dropped, the connection is
//!   closed, which tells the producer. If the producer ends first, host memory stays valid.
//!
//! Producer and consumer must be in the same pid namespace: two containers are not, unless they share one.

use super::attached_tensor::AttachedTensor;
use super::producer_connection::{Deadline, connect, receive, send};
use super::ready_state::ReadyState;
use super::ticket_errors::{rejected, stale};
use crate::errors::{other_user, protocol_error, ticket_rejected};
use crate::lease::Lease;
use crate::memory::arena::Arena;
use crate::memory::registry;
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::{
    AttachRequest, Delivery, ExportDescription, MemoryDescription, MemoryLocation, Reply, TensorDescription,
};
use crate::system;
use crate::ticket::{Ticket, is_producer_alive};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tensorferry_core::fallible::{try_collect, try_reserve};
use tensorferry_core::{Access, Result};
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::{GpuArena, ImportHandle, RemoteEvent, Uuid};

/// The result of [`attach`].
#[derive(Debug)]
pub struct Attached {
    /// The tensors, in the order in which they were published.
    pub tensors: Vec<AttachedTensor>,
    /// The encoded tree structure. It comes from another process and is not checked.
    pub structure: Vec<u8>,
    /// When the tensors on each GPU are ready. A stream must wait for it before it uses them.
    pub ready: Vec<ReadyState>,
}

/// Attaches the tensors of a ticket.
///
/// # Errors
/// - The ticket is stale, unknown, used or expired.
/// - The producer does not reply before the timeout, or breaks the protocol.
/// - The system or the driver fails.
pub fn attach(ticket: &Ticket, timeout: Duration) -> Result<Attached> {
    attach_cancellable(ticket, timeout, &|| Ok(()))
}

/// As [`attach`]. It calls `check_cancelled` while it waits: after every signal, and at least ten times per second.
///
/// # Errors
/// As [`attach`], and the error that `check_cancelled` returns.
pub fn attach_cancellable(
    ticket: &Ticket,
    timeout: Duration,
    check_cancelled: &dyn Fn() -> Result<()>,
) -> Result<Attached> {
    let deadline = Deadline::new(timeout, check_cancelled);
    let connection = connect(ticket, &deadline)?;
    let peer = system::peer_credentials(connection.as_fd())?;
    if peer.user != system::user_id() {
        return Err(other_user(format!("the socket of {ticket} belongs to another user")));
    }
    if peer.process != ticket.process() {
        return Err(ticket_rejected(format!("the socket of {ticket} belongs to process {}", peer.process)));
    }
    let request = AttachRequest { id: *ticket.id(), secret: *ticket.secret() };
    send(&connection, &request.write(), &deadline, ticket)?;
    // After sending, so that the producer works meanwhile.
    if !is_producer_alive(ticket) {
        return Err(stale(ticket));
    }
    let mut descriptors = Vec::new();
    let delivery = match receive(&connection, &mut descriptors, &deadline, ticket)? {
        Reply::Delivery(delivery) => delivery,
        Reply::Rejection { reason, text } => return Err(rejected(ticket, reason, &text)),
    };
    let expected = delivery.memories.iter().filter(|memory| memory.has_descriptor()).count();
    if descriptors.len() != expected {
        return Err(protocol_error(format!(
            "the producer announced {expected} memories with descriptors and sent {} descriptors",
            descriptors.len()
        )));
    }
    map_delivery(delivery, descriptors, connection)
}

/// Maps the memories of a delivery.
fn map_delivery(delivery: Delivery, descriptors: Vec<OwnedFd>, connection: OwnedFd) -> Result<Attached> {
    let gpus = delivery.gpus.iter().map(|gpu| Gpu::by_uuid(Uuid(gpu.uuid))).collect::<Result<Vec<_>>>()?;
    let lease = Lease::new(connection, gpus.clone());
    // Each received descriptor is closed as soon as it has been reopened: there may be many, and the limit may be low.
    let mut descriptors = descriptors.into_iter();
    let mut memories = Vec::new();
    try_reserve(&mut memories, delivery.memories.len())?;
    for memory in &delivery.memories {
        let descriptor = if memory.has_descriptor() { descriptors.next() } else { None };
        memories.push(map_memory(memory, descriptor.as_ref(), &gpus, delivery.access, &lease)?);
    }
    let attached_tensor = |tensor: TensorDescription| {
        let memory = memories.get(tensor.memory as usize).cloned();
        let memory = memory.ok_or_else(|| protocol_error("a tensor has an unknown memory"))?;
        // Decoding has checked the offset against the announced length, and mapping has checked that length.
        let offset = tensor.offset as usize;
        let (dtype, layout, lease) = (tensor.dtype, tensor.layout, lease.clone());
        Ok(AttachedTensor { offset, dtype, layout, memory, lease })
    };
    let tensors = try_collect(delivery.tensors.into_iter().map(attached_tensor))?;
    let ready = gpus.into_iter().zip(&delivery.gpus).map(|(gpu, description)| {
        let event = description.event.as_ref().map(|handle| RemoteEvent::open(gpu, handle)).transpose()?;
        Ok(ReadyState { gpu, event, lease: lease.clone() })
    });
    let ready = ready.collect::<Result<Vec<_>>>()?;
    Ok(Attached { tensors, structure: delivery.structure, ready })
}

/// Maps one memory, and records the lease on it.
fn map_memory(
    memory: &MemoryDescription,
    descriptor: Option<&OwnedFd>,
    gpus: &[&'static Gpu],
    access: Access,
    lease: &Arc<Lease>,
) -> Result<SharedMemory> {
    let descriptor = || descriptor.ok_or_else(|| protocol_error("a memory has no descriptor"));
    let MemoryLocation::Gpu { gpu, id, export } = &memory.location else {
        let arena = Arena::attach(descriptor()?, memory.bytes, access)?;
        if !arena.is_own() {
            registry::add_lease(&arena, lease);
        }
        return Ok(SharedMemory::Host(arena));
    };
    let handle = match export {
        ExportDescription::Descriptor => ImportHandle::Descriptor(descriptor()?.as_fd()),
        ExportDescription::Legacy(handle) => ImportHandle::Legacy(handle),
    };
    let gpu = gpus.get(*gpu as usize).ok_or_else(|| protocol_error("a memory is on an unknown GPU"))?;
    let arena = GpuArena::attach(gpu, id, memory.bytes, access, handle)?;
    if !arena.is_own() {
        registry::add_gpu_lease(&arena, lease);
    }
    Ok(SharedMemory::Gpu(arena))
}

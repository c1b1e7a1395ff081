//! Publications: creating them from tensors and recorded events, and their handle.

use super::memory_descriptions::{describe_gpus, describe_memory};
use super::publication_record::{ExpectedConsumers, Published, Usage};
use super::publish_options::{PublishOptions, PublishedTensor};
use super::server;
use crate::errors::invalid_argument;
use crate::fork_handlers;
use crate::hints;
use crate::memory::registry;
use crate::memory::shared_memory::SharedMemory;
use crate::protocol::{Delivery, Reply, TensorDescription};
use crate::system;
use crate::ticket::Ticket;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tensorferry_core::fallible::{try_copy, try_push, try_reserve};
use tensorferry_core::{Access, ErrorKind, Result};
use tensorferry_cuda::Gpu;
use tensorferry_cuda::ipc::ReadyEvent;

/// Tensors that consumers may attach until this is dropped.
///
/// It holds the memory until it is dropped, or until the ticket has expired or is used up. Leases hold the memory
/// longer, and so do expected consumers ([`Publication::expect_consumer`]).
#[derive(Debug)]
pub struct Publication {
    ticket: Ticket,
    usage: Arc<Usage>,
}

impl Publication {
    /// The ticket for consumers. It may be copied, and used by several of them.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The number of consumers that hold a lease now. The end of a consumer that was killed is noticed within
    /// milliseconds.
    pub fn leases(&self) -> usize {
        self.usage.leases.load(Ordering::Acquire)
    }

    /// The number of consumers that ever received the tensors completely.
    pub fn deliveries(&self) -> usize {
        self.usage.deliveries.load(Ordering::Acquire)
    }

    /// Expects one more consumer: the publication stays available for it after this handle is dropped.
    pub fn expect_consumer(&self) {
        if let Some(published) = server::lock().live(self.ticket.id()) {
            published.expect_consumer();
        }
    }

    /// Makes the ticket invalid, whichever consumers are expected. Existing leases last longer.
    pub fn withdraw(&self) {
        let entry = server::lock().remove(self.ticket.id());
        // Without the lock: the entry may hold much memory.
        drop(entry);
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if !server::lock().orphan(self.ticket.id()) {
            self.withdraw();
        }
    }
}

/// Publishes tensors. `owner` is dropped when no consumer can have the memory any more. `record` records the event on a GPU
/// for which consumers must wait, if there is one.
///
/// # Errors
/// As [`crate::publish`], and those of `record`.
pub(crate) fn publish_recorded(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
    owner: Option<Box<dyn Any + Send + Sync>>,
    record: impl FnMut(&'static Gpu) -> Result<Option<Arc<ReadyEvent>>>,
) -> Result<Publication> {
    let (mut memories, mut owners): (Vec<SharedMemory>, Vec<SharedMemory>) = (Vec::new(), Vec::new());
    let mut indices = BTreeMap::new();
    let mut descriptions = Vec::new();
    try_reserve(&mut descriptions, tensors.len())?;
    for tensor in tensors {
        check_access(&tensor.memory, options.access)?;
        let memory = *indices.entry(tensor.memory.key()).or_insert(memories.len());
        let list = if memory == memories.len() { &mut memories } else { &mut owners };
        try_push(list, tensor.memory.clone())?;
        let (dtype, layout) = (tensor.dtype, tensor.layout.clone());
        let (memory, offset) = (memory as u32, tensor.offset as u64);
        descriptions.push(TensorDescription { memory, offset, dtype, layout });
    }
    // Equal keys of host memory are the same arena, which needs no further owner.
    owners.retain(|memory| matches!(memory, SharedMemory::Gpu(_)));
    let (gpus, events) = describe_gpus(&memories, record)?;
    let delivery = Delivery {
        access: options.access,
        memories: memories.iter().map(|memory| describe_memory(memory, &gpus)).collect::<Result<_>>()?,
        gpus: gpus.into_iter().map(|(_, gpu)| gpu).collect(),
        tensors: descriptions,
        structure: try_copy(structure)?,
    };
    let encoded_reply = Reply::Delivery(delivery).write().map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => error,
        _ => invalid_argument(error.fact().to_owned(), hints::PUBLISH_FEWER_TENSORS),
    })?;
    let (id, secret) = (system::random_bytes()?, system::random_bytes()?);
    let usage = Arc::new(Usage::default());
    let expires_at = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let leases = memories.iter().flat_map(|memory| match memory {
        SharedMemory::Host(arena) => registry::leases_of(arena),
        SharedMemory::Gpu(arena) => registry::gpu_leases_of(arena),
    });
    let published = Arc::new(Published {
        id,
        secret,
        encoded_reply,
        _leases: leases.collect(),
        memories,
        access: options.access,
        _owners: owners,
        owner,
        _events: events,
        once: options.once,
        expires_at,
        usage: usage.clone(),
        expected: ExpectedConsumers::default(),
    });
    fork_handlers::install();
    let ticket = server::lock().publish(published)?;
    Ok(Publication { ticket, usage })
}

/// Checks that consumers can have this access to a memory.
fn check_access(memory: &SharedMemory, access: Access) -> Result<()> {
    if access == Access::ReadWrite && memory.access() == Access::ReadOnly {
        let fact = "memory that was attached as read-only cannot be published as writable";
        return Err(invalid_argument(fact, hints::PUBLISH_READ_ONLY));
    }
    if access == Access::ReadOnly && !memory.can_be_read_only() {
        let fact = "GPU memory without a shareable handle cannot be published as read-only";
        return Err(invalid_argument(fact, hints::PUBLISH_COPY));
    }
    Ok(())
}

//! Tensors that others may attach: what they are told, what is held for them, and for how long.

use crate::errors::wrong;
use crate::memory::registry::{self, Lease};
use crate::memory::shared_memory::SharedMemory;
use crate::producer::descriptions::{announce, gpus_of};
use crate::producer::server;
use crate::protocol::{Delivery, Reply, TensorDescription};
use crate::system;
use crate::ticket::Ticket;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tensorferry_core::fallible::{try_copy, try_push, try_reserve};
use tensorferry_core::{Access, DType, ErrorKind, Layout, Result};
use tensorferry_cuda::ipc::ReadyEvent;
use tensorferry_cuda::{Gpu, SyncPoint};

/// How long promises are kept when the publication is gone: whoever was to come has died.
const PROMISED: Duration = Duration::from_secs(3600);

/// Memory from here on is not let go in passing.
const LARGE: usize = 64 << 20;

/// A tensor to be published: where in shared memory it lies, and what it is.
#[derive(Clone, Debug)]
pub struct PublishedTensor {
    /// The memory, made here or attached from somebody else.
    pub memory: SharedMemory,
    /// Where in the memory the element with index zero in every dimension begins.
    pub offset: usize,
    /// The element type.
    pub dtype: DType,
    /// Shape and strides.
    pub layout: Layout,
}

/// How a publication may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishOptions {
    /// Whether the first consumer is the last.
    pub once: bool,
    /// How long the ticket may be used; leases that exist go on.
    pub timeout: Option<Duration>,
    /// What consumers may do to the memory.
    pub access: Access,
}

impl Default for PublishOptions {
    fn default() -> Self {
        Self { once: false, timeout: None, access: Access::ReadWrite }
    }
}

/// Tensors that others may attach, until this is dropped. It holds the memory until then, or until the ticket has expired
/// or is used up; leases hold it beyond that, and so do promises.
#[derive(Debug)]
pub struct Publication {
    ticket: Ticket,
    uses: Arc<Uses>,
}

/// How a publication is used.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Consumers that have it, or are being answered.
    pub(crate) given: AtomicUsize,
    /// Consumers that were answered to the end, ever.
    pub(crate) served: AtomicUsize,
}

impl Publication {
    /// What a consumer needs. It may be copied, and used by several.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// How many consumers have it just now. One that was killed is noticed within moments.
    pub fn leases(&self) -> usize {
        self.uses.given.load(Ordering::Acquire)
    }

    /// How many consumers were handed it to the end, those included that have let go of it since.
    pub fn served(&self) -> usize {
        self.uses.served.load(Ordering::Acquire)
    }

    /// Promises that one more consumer is let in, also when this is gone by then: its ticket is on the way.
    pub fn promise(&self) {
        if let Some(published) = server::lock().live(self.ticket.id()) {
            published.promised.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets nobody in any more, whatever was promised. Leases that exist go on.
    pub fn withdraw(&self) {
        let entry = server::lock().strike(self.ticket.id());
        // Without the lock: what it held may be a lot of memory.
        drop(entry);
    }
}

impl Drop for Publication {
    fn drop(&mut self) {
        if !server::lock().leave(self.ticket.id()) {
            self.withdraw();
        }
    }
}

/// What is published, for the table and for each lease.
pub(crate) struct Published {
    pub(crate) id: [u8; 16],
    pub(crate) secret: [u8; 16],
    pub(crate) message: Vec<u8>,
    /// One for each in the message, in its order.
    pub(crate) memories: Vec<SharedMemory>,
    pub(crate) access: Access,
    /// Further owners of the same memories.
    _owners: Vec<SharedMemory>,
    _events: Vec<Arc<ReadyEvent>>,
    _leases: Vec<Arc<Lease>>,
    pub(crate) once: bool,
    expires: Option<Instant>,
    pub(crate) uses: Arc<Uses>,
    /// Consumers that were promised to be let in, and have not come.
    promised: AtomicUsize,
    /// Since when the publication is gone, and only promises keep this.
    left: OnceLock<Instant>,
}

impl Published {
    /// Notes that a consumer is let in; true if nobody else can be, and nobody is left who would let go of it later.
    pub(crate) fn let_in(&self) -> bool {
        let promised = self.promised.load(Ordering::Relaxed).saturating_sub(1);
        self.promised.store(promised, Ordering::Relaxed);
        self.is_left() && (self.once || promised == 0)
    }

    /// Whether its publication is gone, and only promises keep it.
    pub(crate) fn is_left(&self) -> bool {
        self.left.get().is_some()
    }

    /// Leaves it to those who were promised to be let in; false if nobody was.
    pub(crate) fn leave(&self) -> bool {
        let promised = self.promised.load(Ordering::Relaxed) > 0;
        promised && self.left.set(Instant::now()).is_ok()
    }

    /// When nobody is let in any more, unless it is withdrawn before.
    pub(crate) fn ends(&self) -> Option<Instant> {
        let forgotten = self.left.get().and_then(|since| since.checked_add(PROMISED));
        self.expires.into_iter().chain(forgotten).min()
    }

    /// Whether it takes time to let go of it: work on a GPU may have to be waited for, and the system clears pages at some
    /// gigabytes a second.
    pub(crate) fn takes_time_to_drop(self: &Arc<Self>) -> bool {
        self.memories.iter().any(|memory| match memory {
            SharedMemory::Gpu(_) => true,
            SharedMemory::Host(arena) => {
                arena.bytes() >= LARGE && Arc::strong_count(self) == 1 && Arc::strong_count(arena) == 1
            }
        })
    }
}

/// Publishes tensors, with a structure of at most 16 MiB that says how they belong together. Those on GPUs are ready for
/// consumers when all that this process has queued there until now is done; who knows which streams those are calls
/// [`publish_after`].
///
/// # Errors
/// When a tensor does not lie in its memory, memory that was attached as read-only is to be written by others, memory of a
/// GPU cannot be made read-only as asked ([`SharedMemory::can_be_read_only`]), there is more than a message may hold, or the
/// system or the driver refuses.
pub fn publish(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
) -> Result<Publication> {
    let mut ready: Vec<(&'static Gpu, SyncPoint)> = Vec::new();
    for tensor in tensors {
        if let SharedMemory::Gpu(arena) = &tensor.memory
            && !ready.iter().any(|(gpu, _)| std::ptr::eq(*gpu, arena.gpu()))
        {
            ready.push((arena.gpu(), SyncPoint::Everything));
        }
    }
    // SAFETY: no stream is named.
    unsafe { publish_after(tensors, structure, options, &ready) }
}

/// The same, where consumers wait for these sides of these GPUs: for all that is queued there until now, and for nothing
/// else.
///
/// # Errors
/// As [`publish`], and when a stream is being captured.
///
/// # Safety
/// The streams are alive, and of their GPU or default ones.
pub unsafe fn publish_after(
    tensors: &[PublishedTensor],
    structure: &[u8],
    options: &PublishOptions,
    ready: &[(&'static Gpu, SyncPoint)],
) -> Result<Publication> {
    let (mut memories, mut owners): (Vec<SharedMemory>, Vec<SharedMemory>) = (Vec::new(), Vec::new());
    let mut indices = BTreeMap::new();
    let mut placed = Vec::new();
    try_reserve(&mut placed, tensors.len())?;
    for tensor in tensors {
        if options.access == Access::ReadWrite && tensor.memory.access() == Access::ReadOnly {
            return Err(wrong(
                "memory that was attached as read-only cannot be handed on for writing",
                "publish it as read-only, or publish a copy",
            ));
        }
        if options.access == Access::ReadOnly && !tensor.memory.can_be_read_only() {
            return Err(wrong(
                "memory of a GPU that has no handle of its own cannot be protected from others' writing",
                "publish a copy, or publish it for writing",
            ));
        }
        let memory = *indices.entry(tensor.memory.key()).or_insert(memories.len());
        let list = if memory == memories.len() { &mut memories } else { &mut owners };
        try_push(list, tensor.memory.clone())?;
        let (dtype, layout) = (tensor.dtype, tensor.layout.clone());
        placed.push(TensorDescription { memory: memory as u32, offset: tensor.offset as u64, dtype, layout });
    }
    // Host memory needs no further owner: it was the same arena.
    owners.retain(|memory| matches!(memory, SharedMemory::Gpu(_)));
    // SAFETY: the caller's contract.
    let (gpus, events) = unsafe { gpus_of(&memories, ready)? };
    let announced = memories.iter().map(|memory| announce(memory, &gpus)).collect::<Result<_>>()?;
    let given = Delivery {
        access: options.access,
        gpus: gpus.into_iter().map(|(_, gpu)| gpu).collect(),
        memories: announced,
        tensors: placed,
        structure: try_copy(structure)?,
    };
    let message = Reply::Delivery(given).write().map_err(|error| match error.kind() {
        ErrorKind::OutOfMemory => error,
        _ => wrong(
            error.fact().to_owned(),
            "see that every tensor lies in its memory, and publish fewer with one ticket",
        ),
    })?;
    let (id, secret) = (system::random()?, system::random()?);
    let uses = Arc::new(Uses::default());
    let expires = options.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let leases = memories.iter().flat_map(|memory| match memory {
        SharedMemory::Host(arena) => registry::leases_of(arena),
        SharedMemory::Gpu(arena) => registry::leases_of_gpu(arena),
    });
    let published = Arc::new(Published {
        id,
        secret,
        message,
        _leases: leases.collect(),
        memories,
        access: options.access,
        _owners: owners,
        _events: events,
        once: options.once,
        expires,
        uses: uses.clone(),
        promised: AtomicUsize::new(0),
        left: OnceLock::new(),
    });
    registry::watch_forks();
    let ticket = server::lock().enter(published)?;
    Ok(Publication { ticket, uses })
}

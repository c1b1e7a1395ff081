//! A pool of large host blocks, which keeps freed memory mapped for the next tensor of about the same size.
//!
//! # Guarantees
//!
//! Fresh memory is slow: the system clears every page at the first touch, which costs more than the copy that follows. A
//! large block that is dropped therefore stays mapped, and the next request of about its size gets it, uncleared. The total
//! size of idle blocks has a limit; above it the least recently used block is unmapped first.
//!
//! - The default limit is an eighth of the memory of the machine or of its container; [`set_limit`] changes it.
//! - If the system refuses memory for a block, the pool unmaps the idle ones and tries again before it fails.
//! - If a very large block is freed while memory is short, it and all idle blocks are unmapped.
//! - Idle memory of another cache, which registers itself, counts towards the same limit ([`OtherCache`]).
//!
//! # Implementation
//!
//! Blocks consist of huge pages where the system has them, because clearing those is twice as fast. The list of idle blocks
//! has a lock that is held for a few instructions and never during a system call.
//!
//! The lock must not hang the child of a `fork()` if a thread of the parent held it. It therefore stores the process of its
//! holder. A child that finds the lock of another process takes it and discards the list, which may be half changed. If the
//! lock was free, the child unmaps the inherited blocks, because its first write to each page would copy unneeded data. A
//! block that belonged to a thread of the parent counts as used in the child for good.
//!
//! # Pinned blocks
//!
//! A device transfers at the full speed of the link to a block that its driver has pinned ([`PoolBlock::pin`]). The block
//! stays pinned while it is idle, because pinning takes about as long as a transfer. Callers request pinned blocks
//! explicitly. Results and staging buffers are kept apart: a result that was dropped may still be the source of an
//! asynchronous copy, while a staging buffer is filled at once. Pinned blocks count towards the limit, and results are
//! pinned only while all pinned blocks together stay within it ([`may_pin`]), because the system can neither move nor swap
//! them.
//!
//! # Rejected
//!
//! - Small blocks: the allocator caches those well, and clearing a huge page for 1 MiB is wasteful.
//! - Fork handlers (`pthread_atfork`): registering them exactly once needs a lock that survives forks.
//! - Blocks that are much larger than the request: they would be missing where they are needed.

mod block_pool;
mod other_cache;
mod pages;
mod parse_bytes;
mod system_memory;

pub use block_pool::{
    BlockUse, PoolBlock, PoolStats, Unpin, count_request, has_idle, limit_for, make_room, may_pin,
    register_other_cache, release_idle, set_limit, stats,
};
pub use other_cache::{IdleTotals, OtherCache};
pub(crate) use pages::time_first_touch;
pub use parse_bytes::parse_bytes;

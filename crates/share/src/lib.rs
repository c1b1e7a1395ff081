//! Sharing of tensors between processes of one user on one Linux machine, without a copy.
//!
//! A producer writes tensors into shared memory ([`ArenaBlock`]), publishes them ([`publish`]) and passes the
//! [`Ticket`] on by any means. A consumer attaches the ticket ([`attach`]) and maps the same memory. The producer
//! holds that memory while the connection is open: the connection is the lease.
//!
//! GPU memory is shared by `tensorferry_cuda::ipc`; the driver is not loaded for host memory. The modules, lowest
//! first:
//!
//! | module | contents |
//! |---|---|
//! | `libc_calls`, `system`, `socket` | wrappers of system calls; descriptors over a Unix socket |
//! | `memory` | arenas in sealed memfds, blocks in them, and the registry of what is mapped |
//! | [`protocol`] | the request and the reply on the socket, with all checks |
//! | `ticket`, `lease` | what a consumer needs to attach, and what holds the memory for it |
//! | `producer` | publications, and the server thread that delivers them |
//! | `consumer` | attaching a ticket |
//! | `stream_order` | publishing and attaching in the order of GPU work |
//! | `fork_handlers` | what happens to all of this at a fork |
//!
//! The interface of this crate changes with any version. Programs use the crate `tensorferry`, whose interface is stable.

mod base64;
mod consumer;
mod counts;
mod errors;
mod fork_count;
mod fork_handlers;
pub mod hints;
mod lease;
mod libc_calls;
mod memory;
mod producer;
pub mod protocol;
mod socket;
mod stream_order;
mod system;
mod ticket;

pub use consumer::attach::{Attached, attach, attach_cancellable};
pub use consumer::attached_tensor::AttachedTensor;
pub use consumer::ready_state::ReadyState;
pub use counts::{ShareCounts, counts};
pub use lease::Lease;
pub use memory::arena::Arena;
pub use memory::arena_block::{ArenaBlock, release_idle};
pub use memory::registry::find_arena;
pub use memory::shared_memory::SharedMemory;
pub use producer::publication::Publication;
pub use producer::publish_options::{PublishOptions, PublishedTensor};
pub use producer::server_thread::shut_down;
pub use protocol::TreeStructure;
pub use stream_order::{publish, publish_after, publish_with_owner};
pub use ticket::Ticket;

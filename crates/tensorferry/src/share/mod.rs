//! Tensors between processes of one user on one Linux machine, without a copy.
//!
//! A producer publishes tensors and passes a [`Ticket`] on, by any channel. A consumer attaches the ticket and maps the same
//! memory. Producers and consumers can be Rust programs, or Python programs with `ferry.publish` and `ferry.attach`.
//!
//! ```
//! use tensorferry::Tensor;
//! use tensorferry::share::{PublishOptions, Ticket, attach, publish_named};
//! # use std::time::Duration;
//!
//! let weight = Tensor::from_vec(vec![0.5f32; 6], &[2, 3])?;
//! let publication = publish_named([("weight", &weight)], &PublishOptions::new())?;
//! let text = publication.ticket().to_text();
//!
//! // Usually in another process:
//! let attached = attach(&Ticket::from_text(&text)?, Duration::from_secs(30))?;
//! let copy = attached.get("weight")?.to_host()?;
//! assert_eq!(copy.as_slice::<f32>()?, [0.5; 6]);
//! # Ok::<(), tensorferry::Error>(())
//! ```
//!
//! # Leases
//!
//! A consumer holds a lease while it has an [`AttachedTensor`], or a tensor over its memory. The lease is a connection: it ends
//! when the consumer drops the tensors or ends, however it ends. The producer holds the memory until the ticket is invalid and
//! all leases have ended. If the producer ends first, the consumer keeps the host memory.
//!
//! # What is safe
//!
//! Another process can write memory that it attached as writable, at any time. So a consumer reads attached memory by a copy
//! ([`AttachedTensor::to_host`]), or promises that nothing writes it ([`AttachedTensor::share`]). A producer publishes memory
//! as read-only, or promises not to use it while consumers write it ([`publish_writable`]). Memory that is published
//! in place has another handle until the last lease ends, so that safe code cannot write it meanwhile.

mod attach;
mod attached_tensor;
mod memory;
mod publish;
mod publish_options;
mod ticket;

pub use attach::{Attached, attach};
pub use attached_tensor::AttachedTensor;
pub use publish::{Publication, publish, publish_named, publish_named_writable, publish_writable};
pub use publish_options::PublishOptions;
pub use ticket::Ticket;

#[cfg(feature = "files")]
pub(crate) use memory::over_block;

//! A replacement for the CUDA driver over host memory, for tests on machines without a GPU. No wheel contains it.
//!
//! - It exports the driver's functions ([`api`]) for two devices. The environment can choose others (`devices`).
//! - Streams run only when something waits for them (`timeline`), so that a missing wait shows as a wrong value.
//! - Tests count calls, make calls fail, hold waits, lose devices and capture streams ([`control`]).
//! - Memory and events cross processes as with the real driver, which refuses the same requests.

#![expect(clippy::missing_safety_doc, reason = "the contracts are those of the CUDA driver's documentation")]

mod abi;
pub mod api;
pub mod control;
mod devices;
mod handles;
mod ipc_event;
mod ipc_handle;
#[path = "../../cuda/src/jobs.rs"]
mod jobs;
mod kernels;
mod memfd;
mod memory;
mod state;
mod status;
mod timeline;
mod virtual_memory;
mod work;

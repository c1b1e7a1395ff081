//! Sharing GPU memory between processes.
//!
//! Without a GPU the tests run on the test driver, which `make test-rust` puts on the library path. The program also
//! runs on a machine with a GPU, because it accesses memory only through the driver. Tests that need the test driver
//! (failing calls, further GPUs) are skipped there.
//!
//! The peers are this program again; an environment variable makes them execute commands (`peer_commands`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod delivery;
#[path = "../support/descriptors.rs"]
mod descriptors;
mod driver;
#[path = "../processes/fake_producer.rs"]
mod fake_producer;
mod lifetimes;
mod peer_commands;
#[path = "../support/peer_process.rs"]
mod peer_process;
mod random_kills;
#[expect(dead_code, reason = "some calls are for host memory")]
#[path = "../support/raw_calls.rs"]
mod raw_calls;
mod rejections;

/// Not a test, but the entry point of the peer processes.
#[test]
fn peer_process() {
    peer_commands::run_commands();
}

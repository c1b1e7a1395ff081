//! Sharing host memory between processes: delivery, leases, recycling, forks, limits, malicious peers and killed processes.
//!
//! The peers are this program again; an environment variable makes them execute commands (`peer_commands`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod delivery;
#[path = "../support/descriptors.rs"]
mod descriptors;
mod fake_producer;
mod forks;
mod leases;
mod malicious_consumers;
mod malicious_producers;
mod peer_commands;
#[path = "../support/peer_process.rs"]
mod peer_process;
mod random_kills;
#[path = "../support/raw_calls.rs"]
mod raw_calls;
mod recycling;
mod resource_limits;
mod tickets;

/// Not a test, but the entry point of the peer processes.
#[test]
fn peer_process() {
    peer_commands::run_commands();
}

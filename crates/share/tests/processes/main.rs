//! Two processes and more: hand-overs, refusals, forks, attacks, and what is left when somebody is killed.
//!
//! The other processes are this program again, told by a variable which role to play; see `peer_commands`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod delivery;
mod fake_producer;
mod forks;
mod leases;
mod malicious_consumers;
mod peer_commands;
#[path = "../support/peer_process.rs"]
mod peer_process;
mod random_kills;
mod resource_limits;

/// Not a test, but where the other processes begin.
#[test]
fn role() {
    peer_commands::play();
}

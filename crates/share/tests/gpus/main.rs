//! GPU memory between two processes and more.
//!
//! Without a GPU this runs on the stand-in driver, which `make test-rust` puts where the driver is looked for. The program
//! can also be carried to a machine that has one, and run there: memory is only touched by way of the driver. What needs
//! the stand-in (refused calls, other GPUs) is left out there.
//!
//! The other processes are this program again, told by a variable which role to play; see `peer_commands`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod delivery;
mod driver;
#[path = "../processes/fake_producer.rs"]
mod fake_producer;
mod lifetimes;
mod peer_commands;
#[path = "../support/peer_process.rs"]
mod peer_process;
mod random_kills;
mod rejections;

/// Not a test, but where the other processes begin.
#[test]
fn role() {
    peer_commands::play();
}

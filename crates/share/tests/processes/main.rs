//! Two processes and more: hand-overs, refusals, forks, attacks, and what is left when somebody is killed.
//!
//! The other processes are this program again, told by a variable which role to play; see `roles`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod attacks;
mod common;
mod fake;
mod forks;
mod hand_over;
mod killing;
mod leases;
#[path = "../support/other.rs"]
mod other;
mod roles;
mod shortages;

/// Not a test, but where the other processes begin.
#[test]
fn role() {
    roles::play();
}

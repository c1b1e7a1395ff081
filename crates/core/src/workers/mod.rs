//! Helper threads that run parts of a call in parallel: started once, and woken within microseconds.
//!
//! # Guarantees
//!
//! - [`run_parallel`] runs work on the calling thread and on at most `threads - 1` helpers, and returns when all have
//!   finished. The caller always takes part, so the work completes even without helpers.
//! - `for_each_parallel` distributes numbered tasks through a shared counter, so a helper that is late delays a call by one
//!   task at most. A job that no helper took is withdrawn.
//! - Concurrent callers share the threads and do not wait for each other: the second caller uses half of its threads,
//!   because the first one occupies the other cores.
//! - After a `fork()` the child starts its own helpers, whatever the threads of the parent were doing.
//!
//! # Implementation
//!
//! Each helper has a slot with one atomic word: vacant, idle, busy, or the address of a job on a caller's stack. The caller
//! stores its job in idle slots, works until nothing is left, withdraws the job from the slots that still hold it, and waits
//! for the helpers that took it. There is no lock that a `fork()` could copy in a locked state. The slots record the process
//! that created them, and another process creates its own.
//!
//! An idle helper spins on its slot before it sleeps, because calls come in quick succession and waking a thread costs more
//! than copying a few hundred kilobytes.
//!
//! The job is on the caller's stack, so the caller never leaves a call before `pending`, the number of slots and helpers that
//! have the job, is 0. This holds also if its own work panics. `make loom` models this protocol (`helper_threads/models.rs`).
//!
//! # Rejected
//!
//! - Threads for each call (`std::thread::scope`): 50 microseconds, as long as a copy of 1 MiB takes.
//! - rayon and similar crates: their pools hang in the child of a `fork()`.
//! - Helpers that end when idle: a sleeping thread costs a few kilobytes, starting one costs time.

mod helper_threads;

pub(crate) use helper_threads::for_each_parallel;
pub use helper_threads::run_parallel;

//! Helper threads.

mod helper_threads;

pub use helper_threads::*;

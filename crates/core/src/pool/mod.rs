//! A pool of large host blocks, which keeps freed memory mapped for the next tensor of about the same size.

mod block_pool;
mod pages;

pub use block_pool::*;

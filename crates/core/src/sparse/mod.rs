//! Kernels on the index arrays and values of sparse tensors in host memory.
//!
//! - [`validate`] checks in one pass, without writing, that indices are within bounds, sorted and unique. All other modules
//!   require validated indices.
//! - [`group`] groups elements by one axis with a counting sort, which keeps the order within a group: it transposes csr to
//!   csc and back. [`order`] finds the stable order of elements by several axes, and where each coordinate starts in it.
//! - [`compress`] converts between pointers and row indices. [`gather`] writes coordinates and values in a given order, and
//!   sums duplicates.
//! - [`scatter`] fills a dense tensor. [`blocks`] gathers elements into dense blocks and expands blocks to elements.
//!
//! Indices are `i32` or `i64`; other types are cast first. Values are opaque bytes, except in sums. Large arrays are divided
//! among the threads of [`workers`](crate::workers). Where several threads write to the same array, each has counted its
//! elements beforehand and writes to its own range.
//!
//! Comparison sorts are used only if the coordinates and the element number do not fit in 64 bits: counting sorts are several
//! times as fast, and stable.

pub mod blocks;
pub mod compress;
pub mod gather;
pub mod group;
mod index;
pub mod order;
mod parallel;
pub mod scatter;
pub mod validate;

pub use index::{Axis, Index};

//! The host copy engine: converts any layout and element type to any other, in parallel.
//!
//! # Guarantees
//!
//! - [`convert`](convert()) is total: it converts each of the 28 types to each other, from any strides (negative, zero, not a
//!   multiple of the element size), any alignment, either byte order and any rank. The only errors are different shapes and
//!   layouts whose item size is not that of the type.
//! - A result depends only on the value, not on layout, alignment, number of threads or vector instructions. The table of
//!   results is in `cast`.
//! - A copy without a type change preserves all bytes, except that bools are written as zero or one.
//! - It allocates nothing that grows with the tensor, and does not panic.
//!
//! # Implementation
//!
//! `loop_nest` reduces the two layouts to a loop nest in the order of the destination and divides it into blocks;
//! `parallelism` decides how many. The calling thread and the helpers of [`workers`](crate::workers) process the blocks.
//!
//! - `copy` copies planes of unchanged elements: `transpose` handles transposes, `strided` small constant strides and
//!   `elements` everything else.
//! - `cast` gathers elements that are not dense into small buffers, runs chains of `cast_kernels` over them and scatters the
//!   results. It copies bools too. `number` has the number formats and the rounding, `cast_avx2` the conversions by vector instructions.
//! - `non_temporal` writes results that are larger than the caches with stores that bypass them.
//!
//! # Rejected
//!
//! - Overlap between source and destination, or within the destination: callers allocate new memory or have checked.
//! - New threads for each call: starting one takes as long as copying 1 MiB.
//! - Packed types, with several elements per byte: imports reject them.

pub(crate) mod add;
mod cast;
#[cfg(target_arch = "x86_64")]
mod cast_avx2;
mod cast_kernels;
mod convert;
mod copy;
#[cfg(target_arch = "x86_64")]
mod cpu_features;
mod elements;
mod fp_environment;
mod loop_nest;
mod non_temporal;
mod number;
mod parallelism;
#[cfg(test)]
mod reference;
mod strided;
#[cfg(test)]
mod tests;
mod transpose;
#[cfg(target_arch = "x86_64")]
mod transpose_avx2;

pub use convert::{CopyDestination, CopySource, convert, convert_chunk};

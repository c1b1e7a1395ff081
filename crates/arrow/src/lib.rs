//! The Arrow C data interface: columns and tables of other libraries as tensors.
//!
//! A producer passes C structs: a schema, which describes the type of a column, and arrays, which hold its memory. A table is a
//! column of structs. A [`Field`] is a checked schema, an [`Array`] a checked array.
//!
//! Producers are not trusted more than the interface requires. Counts of buffers and children, lengths, offsets, null pointers
//! and the depth of nesting are checked before any of them is used. The sizes of buffers are not part of the interface, so they
//! cannot be checked: a producer that lies about a length makes this process read memory that is not its own.
//!
//! - [`abi`]: the C structs;
//! - `owned`: C structs whose release callback runs once;
//! - `device`: arrays in GPU memory, whose buffers are never read here;
//! - `schema`: types of columns, and the extension types that describe tensors;
//! - `array`: arrays, checked against the type of their column;
//! - `bitmap`: validity and booleans, which are stored as bits;
//! - `lists`: the offsets of lists of different lengths;
//! - `dense_lists`: lists of one length as tensors;
//! - `ragged`: lists of different lengths, as elements and offsets or padded;
//! - `gather`: the chunks of a column in one tensor;
//! - `export`: tensors as columns and tables;
//! - `stream`: arrays that a producer delivers one by one.
//!
//! The interface of this crate changes with any version. Programs use the crate `tensorferry`, whose interface is stable.

pub mod abi;
mod array;
mod bitmap;
mod dense_lists;
mod device;
mod errors;
mod export;
mod gather;
pub mod hints;
mod lists;
mod owned;
mod ragged;
mod schema;
mod stream;

pub use array::{Array, ArrayOwner, Encoding};
pub use bitmap::pack_bits;
pub use dense_lists::dense_lists;
pub use device::DeviceArray;
pub use export::{ColumnExport, TableExport};
pub use gather::{MatrixColumn, count_nulls, write_matrix, write_validity, write_values};
pub use owned::{Owned, Releasable};
pub use ragged::{PaddedLists, list_elements, write_offsets};
pub use schema::{Column, Field, MAX_DEPTH};
pub use stream::ArrayStream;

//! Import and export of tensors by DLPack.
//!
//! [`abi`] is the C header in Rust. [`import`] validates a struct of a framework and converts it to a
//! [`Tensor`](crate::Tensor). [`export`] puts a tensor into a single heap block that any framework can hold and release.
//!
//! The module does not use a crate for the ABI because the fast path needs three features together: importing a borrowed
//! `DLTensor` (the C exchange API) under any owner, exporting with an owner that is a type parameter (one allocation), and
//! elements narrower than a byte with the padding flag.

pub mod abi;
pub mod export;
pub mod import;

pub use export::{
    ExportOffer, is_own_export, offer_legacy, offer_versioned, to_legacy, to_versioned, to_versioned_by,
};
pub use import::{ManagedOwner, borrow, borrow_versioned, from_legacy, from_versioned};

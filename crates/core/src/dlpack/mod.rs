//! DLPack: the ABI that the frameworks speak, checked on the way in and owned on the way out.
//!
//! [`abi`] is the C header in Rust. [`import`] turns what a framework hands over into a checked
//! [`Tensor`](crate::Tensor); nothing of a foreign struct is believed before it has been looked at once.
//! [`export`] puts one of our tensors into a single heap block that any framework can hold and let go of.
//!
//! The ABI is our own and not a crate's because the hot path needs three things together: importing a
//! borrowed `DLTensor` (the C exchange API) under an owner of our choice, exporting with an owner that
//! is a type parameter (one allocation), and elements narrower than a byte told apart by the padding flag.

pub mod abi;
pub mod export;
pub mod import;

pub use export::{ExportOffer, offer_legacy, offer_versioned, to_legacy, to_versioned};
pub use import::{ManagedOwner, borrow, from_legacy, from_versioned};

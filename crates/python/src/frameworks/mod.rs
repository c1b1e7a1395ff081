//! The frameworks: one file each, the same functions in each, one row each in the register.

mod allocation_errors;
pub(crate) mod builtin_frameworks;
pub(crate) mod classify;
pub(crate) mod cupy;
pub(crate) mod dlpack_exchange;
mod framework;
mod import;
pub(crate) mod info;
pub(crate) mod jax;
pub(crate) mod mlx;
pub(crate) mod names;
pub(crate) mod numpy;
pub(crate) mod paddle;
pub(crate) mod register_framework;
mod target;
pub(crate) mod tensorflow;
pub(crate) mod torch;
pub(crate) mod user_frameworks;

pub(crate) use allocation_errors::allocation_failed;
pub(crate) use framework::Framework;
pub(crate) use import::{IMPORT_ORDERS, check_import, import, within};
pub(crate) use target::{Target, clear_target_cache, target, target_named};

//! Errors as Python sees them: exception classes, messages and advice.

mod classes;
mod describe;
mod failure;
mod hints;

pub(crate) use classes::register;
pub(crate) use describe::{describe, has_state_dict, not_a_tensor, type_name};
pub(crate) use failure::{Failure, Result, fail, foreign, forget, refused};
pub(crate) use hints::{advice, advice_of_hint};

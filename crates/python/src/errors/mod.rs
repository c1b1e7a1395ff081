//! Errors as Python sees them: exception classes, messages and advice.

mod classes;
mod describe;
mod failure;
mod hints;
mod library_types;

pub(crate) use classes::register;
pub(crate) use describe::{
    describe_argument, is_dataset, is_loader, known_hint, not_a_tensor, type_name, without_values,
};
pub(crate) use failure::{Failure, Result, discard_exception, fail, framework_error, wrap_exception};
pub(crate) use hints::{advice, advice_of_hint, full_text, keys};
pub(crate) use library_types::{LibraryTypes, find_refused, library_hint};

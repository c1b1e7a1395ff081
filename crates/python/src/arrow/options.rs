//! The options of `ferry.arrow.to`.

use crate::errors::{Result, describe_argument, fail};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_core::{DType, ErrorKind};

/// What happens to nulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Nulls {
    /// They are an error.
    Error,
    /// A mask is returned beside the values.
    Mask,
    /// They become NaN.
    Nan,
    /// They become this integer.
    Integer(i128),
    /// They become this number.
    Float(f64),
}

/// What happens to lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ragged {
    /// They are an error.
    Error,
    /// Lists of one length are an axis.
    Dense,
}

/// The options of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrowOptions {
    pub(super) nulls: Nulls,
    pub(super) ragged: Ragged,
    /// Whether dictionaries are decoded. Otherwise their codes are returned.
    pub(super) is_decoded: bool,
    /// Whether times are returned as integers. Otherwise they are an error.
    pub(super) has_times: bool,
    /// The element type of the results, if the caller named one.
    pub(super) dtype: Option<DType>,
}

impl ArrowOptions {
    /// What `ferry.to` does.
    pub(super) const DEFAULT: Self =
        Self { nulls: Nulls::Error, ragged: Ragged::Error, is_decoded: true, has_times: false, dtype: None };

    /// Parses the arguments of `ferry.arrow.to`.
    pub(super) fn parse(
        nulls: &Bound<'_, PyAny>,
        ragged: &str,
        dictionary: &str,
        temporal: &str,
    ) -> Result<Self> {
        let invalid = |name: &str, given: &str, known: &str| {
            fail(ErrorKind::InvalidArgument, format!("{name} is \"{given}\""), format!("pass {known}"))
        };
        Ok(Self {
            nulls: parse_nulls(nulls)?,
            ragged: match ragged {
                "error" => Ragged::Error,
                "dense" => Ragged::Dense,
                other => return Err(invalid("ragged", other, "\"error\" or \"dense\"")),
            },
            is_decoded: match dictionary {
                "decode" => true,
                "codes" => false,
                other => return Err(invalid("dictionary", other, "\"decode\" or \"codes\"")),
            },
            has_times: match temporal {
                "error" => false,
                "integer" => true,
                other => return Err(invalid("temporal", other, "\"error\" or \"integer\"")),
            },
            dtype: None,
        })
    }
}

fn parse_nulls(given: &Bound<'_, PyAny>) -> Result<Nulls> {
    let invalid = || {
        fail(
            ErrorKind::InvalidArgument,
            format!("nulls is {}", describe_argument(given)),
            "pass \"error\", \"mask\", \"nan\" or a number",
        )
    };
    if let Ok(text) = given.cast::<PyString>() {
        return match text.to_string().as_str() {
            "error" => Ok(Nulls::Error),
            "mask" => Ok(Nulls::Mask),
            "nan" => Ok(Nulls::Nan),
            _ => Err(invalid()),
        };
    }
    // Numbers of NumPy too.
    let integer = given.extract().map(Nulls::Integer);
    integer.or_else(|_| given.extract().map(Nulls::Float)).map_err(|_: PyErr| invalid())
}

//! The options of `ferry.arrow.to`.

use super::column::Fill;
use crate::api::options;
use crate::errors::{Result, describe_argument, fail};
use pyo3::prelude::*;
use pyo3::types::PyString;
use tensorferry_core::plan::TimeUnit;
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
    /// They become this number.
    Number(Fill),
}

/// What happens to lists.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ragged {
    /// They are an error.
    Error,
    /// They are an axis: lists of one length, or lists that this number pads to one length.
    Dense(Option<Fill>),
    /// Their elements and the offsets of the lists are returned.
    Offsets,
}

/// The options of one call.
#[pyclass(frozen, module = "tensorferry._native", name = "_ArrowOptions")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrowOptions {
    pub(super) nulls: Nulls,
    pub(super) ragged: Ragged,
    /// Whether dictionaries are decoded. Otherwise their codes are returned.
    #[pyo3(get)]
    pub(super) is_decoded: bool,
    /// Whether times are returned as integers. Otherwise they are an error.
    #[pyo3(get)]
    pub(super) has_times: bool,
    /// The element type of the results, if the caller named one.
    pub(super) dtype: Option<DType>,
    /// The unit of time that integers count, if the column was one of dates or times before.
    pub(super) counts: Option<TimeUnit>,
    /// Whether the columns are those of a stream that is planned and not read. They have no rows.
    pub(super) is_unread: bool,
}

impl ArrowOptions {
    /// What `ferry.to` does.
    pub(super) const DEFAULT: Self = Self {
        nulls: Nulls::Error,
        ragged: Ragged::Error,
        is_decoded: true,
        has_times: false,
        dtype: None,
        counts: None,
        is_unread: false,
    };
}

#[pymethods]
impl ArrowOptions {
    /// Parses the arguments of `ferry.arrow.to`.
    #[new]
    #[pyo3(signature = (*, nulls, ragged, pad, dictionary, temporal, dtype))]
    fn new(
        nulls: &Bound<'_, PyAny>,
        ragged: &Bound<'_, PyAny>,
        pad: Option<&Bound<'_, PyAny>>,
        dictionary: &Bound<'_, PyAny>,
        temporal: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        let pad = pad.map(parse_pad).transpose()?;
        let ragged = choose(
            "ragged",
            ragged,
            &[
                ("error", Ragged::Error),
                ("dense", Ragged::Dense(pad)),
                ("offsets", Ragged::Offsets),
                // The caller makes the framework's own ragged tensors of the offsets.
                ("native", Ragged::Offsets),
            ],
        )?;
        if pad.is_some() && !matches!(ragged, Ragged::Dense(_)) {
            return Err(fail(
                ErrorKind::InvalidArgument,
                "pad is given, and ragged is not \"dense\"",
                "pass ragged=\"dense\" with pad, or leave out pad",
            ));
        }
        Ok(Self {
            nulls: parse_nulls(nulls)?,
            ragged,
            is_decoded: choose("dictionary", dictionary, &[("decode", true), ("codes", false)])?,
            has_times: choose("temporal", temporal, &[("error", false), ("integer", true)])?,
            dtype: options::requested_dtype(dtype)?,
            counts: None,
            is_unread: false,
        })
    }

    /// Whether a mask is returned beside the values.
    #[getter]
    fn has_mask(&self) -> bool {
        self.nulls == Nulls::Mask
    }
}

/// The choice that an argument names.
fn choose<T: Copy>(option: &str, given: &Bound<'_, PyAny>, known: &[(&str, T)]) -> Result<T> {
    let text = given.extract::<String>().ok();
    let found = known.iter().find(|(name, _)| text.as_deref() == Some(name));
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<String> = known.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let (last, others) =
            names.split_last().map_or(("", &[][..]), |(last, others)| (last.as_str(), others));
        fail(
            ErrorKind::InvalidArgument,
            format!("{option} is {}", describe_argument(given)),
            format!("pass {} or {last}", others.join(", ")),
        )
    })
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
    parse_number(given).map(Nulls::Number).ok_or_else(invalid)
}

fn parse_pad(given: &Bound<'_, PyAny>) -> Result<Fill> {
    parse_number(given).ok_or_else(|| {
        let fact = format!("pad is {}", describe_argument(given));
        fail(ErrorKind::InvalidArgument, fact, "pass a number")
    })
}

/// A number of Python or of NumPy.
fn parse_number(given: &Bound<'_, PyAny>) -> Option<Fill> {
    given.extract().map(Fill::Integer).or_else(|_| given.extract().map(Fill::Float)).ok()
}

//! The lengths of axes, as callers write them.

use crate::errors::fail;
use pyo3::prelude::*;
use tensorferry_core::ErrorKind;

/// No more are read than an array can have, whatever a sequence says of its own length: memory for that may not be there.
pub(crate) struct Lengths(Vec<i64>);

impl Lengths {
    const MOST: usize = 64;

    pub(crate) fn into_vec(self) -> Vec<i64> {
        self.0
    }
}

impl std::ops::Deref for Lengths {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.0
    }
}

impl FromPyObject<'_, '_> for Lengths {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut found = Vec::with_capacity(2);
        for length in object.try_iter()? {
            if found.len() == Self::MOST {
                let fact = format!("an array has at most {} axes", Self::MOST);
                return Err(fail(ErrorKind::InvalidArgument, fact, "write a length for each axis").into());
            }
            found.push(length?.extract()?);
        }
        Ok(Self(found))
    }
}

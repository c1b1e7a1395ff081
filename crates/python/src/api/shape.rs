//! [`Lengths`]: a shape or strides as a Python argument.

use crate::errors::fail;
use pyo3::prelude::*;
use tensorferry_core::ErrorKind;

/// The lengths of axes. At most [`Lengths::MAX_AXES`] are read, because the iterable may be endless or claim any length.
pub(crate) struct Lengths(Vec<i64>);

impl Lengths {
    const MAX_AXES: usize = 64;

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
            if found.len() == Self::MAX_AXES {
                let fact = format!("the shape has more than {} axes", Self::MAX_AXES);
                return Err(fail(ErrorKind::InvalidArgument, fact, "pass one length for each axis").into());
            }
            found.push(length?.extract()?);
        }
        Ok(Self(found))
    }
}

//! Sample tensors for probes, and checks of the tensors that a framework reads or creates.

use super::register::{Probed, check};
use crate::conversion::host_copy;
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::{DType, Tensor};

/// The shape of the sample.
pub(crate) const SHAPE: [i64; 2] = [2, 3];

/// A float32 sample that every framework can share: aligned, dense and writable.
pub(crate) fn float32() -> Result<Tensor<Owner>> {
    of(DType::Float32, &SHAPE)
}

/// A sample of zeros.
pub(crate) fn of(dtype: DType, shape: &[i64]) -> Result<Tensor<Owner>> {
    host_copy::zeros(dtype, shape)
}

/// A tensor's memory as the public API of a framework describes it.
pub(crate) struct ExpectedTensor {
    pub(crate) address: usize,
    pub(crate) shape: Vec<i64>,
    /// Strides in bytes.
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: DType,
}

impl ExpectedTensor {
    /// The expectation that a tensor over this memory meets.
    pub(crate) fn of<O>(tensor: &Tensor<O>) -> Self {
        let layout = tensor.layout();
        Self {
            address: tensor.data() as usize,
            shape: layout.shape().to_vec(),
            strides: layout.strides().to_vec(),
            dtype: tensor.dtype(),
        }
    }

    /// Fails the probe if the fast path read another address, type, shape or strides.
    pub(crate) fn check<O>(&self, read: &Tensor<O>) -> Probed<()> {
        let layout = read.layout();
        check(read.data() as usize == self.address, || {
            format!("the address is {:#x}, expected {:#x}", read.data() as usize, self.address)
        })?;
        check(read.dtype() == self.dtype, || {
            format!("the dtype is {}, expected {}", read.dtype(), self.dtype)
        })?;
        check(layout.shape() == self.shape && layout.strides() == self.strides, || {
            format!(
                "the shape is {:?} with strides {:?}, expected {:?} with {:?}",
                layout.shape(),
                layout.strides(),
                self.shape,
                self.strides
            )
        })
    }

    /// Fails the probe if a tensor that the framework created over this memory has another address or shape.
    pub(crate) fn check_created(&self, created: &Bound<'_, PyAny>, address: usize) -> Probed<()> {
        check(address == self.address, || {
            format!("the created tensor is at {address:#x}, expected {:#x}", self.address)
        })?;
        let shape: Vec<i64> =
            created.getattr("shape")?.try_iter()?.map(|n| n?.extract()).collect::<PyResult<_>>()?;
        check(shape == self.shape, || {
            format!("the created tensor has the shape {shape:?}, expected {:?}", self.shape)
        })
    }
}

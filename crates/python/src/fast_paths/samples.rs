//! Memory of our own for probes, and comparisons with it.

use super::register::{Probed, check};
use crate::errors::Result;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, Layout, Tensor};

/// The shape of the sample.
pub(crate) const SHAPE: [i64; 2] = [2, 3];

/// A small tensor of float32 in a block that every framework can share: aligned, dense and writable.
pub(crate) fn float32() -> Result<Tensor<Owner>> {
    of(DType::Float32, &SHAPE)
}

/// A tensor of zeros of a type of at most four bytes and of at most six elements.
pub(crate) fn of(dtype: DType, shape: &[i64]) -> Result<Tensor<Owner>> {
    let layout = Layout::dense(dtype.size(), shape)?;
    let block = HostBlock::new(layout.bytes())?;
    let data = block.data();
    // SAFETY: the block has the bytes of the layout, which are set here, and is the owner of the tensor.
    Ok(unsafe {
        data.write_bytes(0, layout.bytes());
        let owner = Owner::Block(block);
        Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner)?
    })
}

/// What the public functions of a framework say about a tensor.
pub(crate) struct Described {
    pub(crate) address: usize,
    pub(crate) shape: Vec<i64>,
    /// In bytes.
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: DType,
}

impl Described {
    /// The memory of a dense tensor of ours that a framework was given.
    pub(crate) fn of<O>(tensor: &Tensor<O>) -> Self {
        let layout = tensor.layout();
        Self {
            address: tensor.data() as usize,
            shape: layout.shape().to_vec(),
            strides: layout.strides().to_vec(),
            dtype: tensor.dtype(),
        }
    }

    /// Fails the probe where a fast path has read something else.
    pub(crate) fn check<O>(&self, read: &Tensor<O>) -> Probed<()> {
        let layout = read.layout();
        check(read.data() as usize == self.address, || {
            format!("it gives the address {:#x} instead of {:#x}", read.data() as usize, self.address)
        })?;
        check(read.dtype() == self.dtype, || {
            format!("it gives the type {} instead of {}", read.dtype(), self.dtype)
        })?;
        check(layout.shape() == self.shape && layout.strides() == self.strides, || {
            format!(
                "it gives the shape {:?} with strides {:?} instead of {:?} with {:?}",
                layout.shape(),
                layout.strides(),
                self.shape,
                self.strides
            )
        })
    }

    /// Fails the probe where a framework's tensor over our memory is at another address or has another shape.
    pub(crate) fn check_made(&self, made: &Bound<'_, PyAny>, address: usize) -> Probed<()> {
        check(address == self.address, || {
            format!("the tensor that it makes is at {address:#x} instead of {:#x}", self.address)
        })?;
        let shape: Vec<i64> =
            made.getattr("shape")?.try_iter()?.map(|n| n?.extract()).collect::<PyResult<_>>()?;
        check(shape == self.shape, || {
            format!("the tensor that it makes has the shape {shape:?} instead of {:?}", self.shape)
        })
    }
}

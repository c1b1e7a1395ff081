//! The arrays of sparse tensors, as the core takes them: on the host, read in place.

use crate::carry;
use crate::errors::{Result, fail};
use crate::frameworks::numpy;
use crate::host_copy;
use crate::owner::Owner;
use crate::recognise::recognise;
use crate::source::Memory;
use pyo3::prelude::*;
use tensorferry_core::dtype::Kind;
use tensorferry_core::host::HostBlock;
use tensorferry_core::sparse::{Axis, Index};
use tensorferry_core::{ByteOrder, DType, ErrorKind, Layout, Tensor};

/// Work on fewer elements keeps other Python threads waiting; for that, letting go costs more.
const DETACH_FROM: usize = 16 << 10;

/// An array of any framework, read in place; `None` where it is not on the host, or its framework must do something first.
pub(super) fn here(object: &Bound<'_, PyAny>) -> Result<Option<Tensor<Owner>>> {
    match carry::read(object, recognise(object)?)?.memory {
        Memory::Here(tensor) if tensor.device().is_host() => Ok(Some(tensor)),
        _ => Ok(None),
    }
}

/// A dense array with its bytes in order, which is the given one if it is that already.
pub(super) fn dense(py: Python<'_>, tensor: Tensor<Owner>) -> Result<Tensor<Owner>> {
    let aligned = (tensor.data() as usize).is_multiple_of(tensor.dtype().align());
    if tensor.layout().is_dense() && tensor.order() == ByteOrder::Native && aligned {
        return Ok(tensor);
    }
    host_copy::packed(py, &tensor, tensor.dtype())
}

/// Whole numbers as the core takes them: int32 or int64, or the one that is asked for. `None` for other arrays.
pub(super) fn numbers(
    py: Python<'_>,
    object: &Bound<'_, PyAny>,
    wanted: Option<DType>,
) -> Result<Option<Tensor<Owner>>> {
    let Some(tensor) = here(object)? else { return Ok(None) };
    if !matches!(tensor.dtype().kind(), Kind::Signed | Kind::Unsigned) {
        return Ok(None);
    }
    as_index(py, tensor, wanted).map(Some)
}

/// The same of a tensor that was found to have whole numbers.
pub(super) fn as_index(
    py: Python<'_>,
    tensor: Tensor<Owner>,
    wanted: Option<DType>,
) -> Result<Tensor<Owner>> {
    let own = if tensor.dtype() == DType::Int32 { DType::Int32 } else { DType::Int64 };
    let dtype = wanted.unwrap_or(own);
    let size = dtype.size() as i64;
    let in_place = tensor.dtype() == dtype
        && tensor.order() == ByteOrder::Native
        && (tensor.data() as usize).is_multiple_of(dtype.align())
        && tensor.layout().strides().iter().all(|stride| stride % size == 0);
    if in_place { Ok(tensor) } else { host_copy::packed(py, &tensor, dtype) }
}

/// Index arrays of one type, the widest that they have; `None` where one of them is none, or is elsewhere.
pub(super) fn alike<const N: usize>(
    py: Python<'_>,
    objects: [&Bound<'_, PyAny>; N],
    wanted: Option<DType>,
) -> Result<Option<[Tensor<Owner>; N]>> {
    let mut found = Vec::with_capacity(N);
    for object in objects {
        let Some(tensor) = numbers(py, object, wanted)? else { return Ok(None) };
        found.push(tensor);
    }
    same_type(py, found).map(|found| found.try_into().ok())
}

/// Makes them all int64 if they are not all int32.
pub(super) fn same_type(py: Python<'_>, arrays: Vec<Tensor<Owner>>) -> Result<Vec<Tensor<Owner>>> {
    if arrays.windows(2).all(|pair| pair[0].dtype() == pair[1].dtype()) {
        return Ok(arrays);
    }
    arrays.into_iter().map(|array| as_index(py, array, Some(DType::Int64))).collect()
}

/// How many pointers so many rows have.
pub(super) fn pointers_of(rows: usize) -> Result<i64> {
    let rows = i64::try_from(rows).ok();
    rows.and_then(|rows| rows.checked_add(1)).ok_or_else(|| wrong("there are no shapes of so many rows"))
}

/// The name of a type of indices.
pub(super) fn index_type(name: &str) -> Result<DType> {
    match name {
        "int32" => Ok(DType::Int32),
        "int64" => Ok(DType::Int64),
        _ => Err(wrong(&format!("indices are int32 or int64, and not {name}"))),
    }
}

/// Numbers that lie side by side.
pub(super) fn slice<I: Index>(tensor: &Tensor<Owner>) -> &[I] {
    debug_assert!(tensor.layout().is_dense() && tensor.dtype().size() == size_of::<I>());
    if tensor.layout().is_empty() {
        return &[];
    }
    // SAFETY: a checked tensor of this type, dense and aligned, which its owner keeps.
    unsafe { std::slice::from_raw_parts(tensor.data().cast(), tensor.layout().count()) }
}

/// An array of one axis.
pub(super) fn axis<I: Index>(tensor: &Tensor<Owner>) -> Axis<'_, I> {
    debug_assert!(tensor.layout().rank() == 1);
    line(tensor, 0, 0, 0)
}

/// The `number`th line of a matrix, along one of its two axes.
pub(super) fn line_of<I: Index>(tensor: &Tensor<Owner>, number: usize, along: usize) -> Axis<'_, I> {
    debug_assert!(tensor.layout().rank() == 2);
    line(tensor, number, along, tensor.layout().strides()[1 - along])
}

fn line<I: Index>(tensor: &Tensor<Owner>, number: usize, along: usize, across: i64) -> Axis<'_, I> {
    let (layout, item) = (tensor.layout(), size_of::<I>() as i64);
    // SAFETY: elements of a checked tensor of this type, aligned, with strides of whole elements; its owner keeps them.
    unsafe {
        // Of a tensor without elements it may lead anywhere: nothing is read there.
        let start = tensor.data().cast::<I>().wrapping_offset((number as i64 * across / item) as isize);
        Axis::new(start, (layout.strides()[along] / item) as isize, layout.shape()[along] as usize)
    }
}

/// Does work on so many elements, and lets other Python threads run meanwhile if they are many. `Send` keeps Python objects out of
/// the work.
pub(super) fn away<T: Send>(py: Python<'_>, count: usize, work: impl FnOnce() -> T + Send) -> T {
    if count < DETACH_FROM { work() } else { py.detach(work) }
}

/// An address that work may take along when the interpreter is released.
pub(super) struct Address<T>(*mut T);

impl<T> Clone for Address<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Address<T> {}

// SAFETY: a pointer alone. Reading and writing through it is unsafe, and whoever does it vouches for the memory.
unsafe impl<T> Send for Address<T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for Address<T> {}

impl<T> Address<T> {
    /// Where the elements of a tensor begin.
    pub(super) fn of(tensor: &Tensor<Owner>) -> Self {
        Self(tensor.data().cast())
    }

    /// The pointer; asked for by a method, so that closures capture the address and not its field.
    pub(super) fn get(self) -> *mut T {
        self.0
    }
}

/// Memory for a result.
pub(super) struct Made {
    block: HostBlock,
    dtype: DType,
    layout: Layout,
}

impl Made {
    pub(super) fn new(dtype: DType, shape: &[i64]) -> Result<Self> {
        let layout = Layout::dense(dtype.size(), shape)?;
        Ok(Self { block: HostBlock::new(layout.bytes())?, dtype, layout })
    }

    pub(super) fn data<T>(&self) -> Address<T> {
        Address(self.block.data().cast())
    }

    /// As NumPy's array, when everything is written.
    pub(super) fn array<'py>(self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        numpy::write_array(py, host_copy::of_block(self.block, self.dtype, self.layout)?)
    }
}

/// A caller within the package has made a mistake.
pub(super) fn wrong(fact: &str) -> crate::errors::Failure {
    fail(ErrorKind::InvalidArgument, fact.to_owned(), "call tensorferry.to, which knows what fits")
}

/// Runs a body with `$I` as the type of an index array.
macro_rules! typed {
    ($dtype:expr, $I:ident => $body:expr) => {
        if $dtype == tensorferry_core::DType::Int32 {
            type $I = i32;
            $body
        } else {
            type $I = i64;
            $body
        }
    };
}
pub(super) use typed;

//! Arrays of sparse tensors in host memory, in the form that the kernels of the core read and write.

use crate::conversion::convert;
use crate::conversion::host_copy;
use crate::conversion::object_kinds::{Builtin, Recognised};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{OWN_FRAMEWORK, Source, SourceMemory};
use crate::errors::{Result, fail};
use crate::frameworks::Target;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::plan::{ConvertOptions, DeviceRequest, SourceMutability};
use tensorferry_core::sparse::{Axis, Index};
use tensorferry_core::{ByteOrder, DType, Device, ErrorKind, Tensor};

/// Work on fewer elements keeps the GIL: releasing it would cost more than the work.
const DETACH_THRESHOLD_ELEMENTS: usize = 16 << 10;

/// An array of the source tensor.
pub(super) struct SourceArray<'py> {
    pub(super) object: Bound<'py, PyAny>,
    /// The memory as the source framework stores it.
    source: Source<'py>,
    /// Whether the memory must not be written, although its framework allows it.
    is_read_only: bool,
    /// The host memory that kernels read, where it is a copy.
    prepared: Option<Tensor<Owner>>,
}

impl<'py> SourceArray<'py> {
    /// Reads an array. `is_read_only` marks memory that must not be written, although its framework allows it.
    pub(super) fn read(object: &Bound<'py, PyAny>, is_read_only: bool) -> Result<Self> {
        let source = read(object, is_read_only)?;
        Ok(Self { object: object.clone(), source, is_read_only, prepared: None })
    }

    pub(super) fn source(&self) -> &Source<'py> {
        &self.source
    }

    /// The source that is converted for the target.
    pub(super) fn into_source(self) -> Source<'py> {
        hide_object_if_read_only(self.source, self.is_read_only)
    }

    pub(super) fn dtype(&self) -> DType {
        self.source.describe().dtype
    }

    pub(super) fn shape(&self) -> &[i64] {
        match &self.source.memory {
            SourceMemory::InPlace(tensor) => tensor.layout().shape(),
            SourceMemory::Pending { layout, .. } => layout.shape(),
        }
    }

    /// Whether it is dense and row-major.
    pub(super) fn is_dense(&self) -> bool {
        match &self.source.memory {
            SourceMemory::InPlace(tensor) => tensor.layout().is_dense(),
            SourceMemory::Pending { .. } => true,
        }
    }

    /// Whether the elements of a matrix along one axis are contiguous.
    pub(super) fn is_line_dense(&self, along: usize) -> bool {
        let description = self.source.describe();
        let (shape, strides) = (description.layout.shape(), description.layout.strides());
        shape[along] < 2 || strides[along] == description.dtype.size() as i64
    }

    /// The host memory that kernels read.
    pub(super) fn tensor(&self) -> Result<&Tensor<Owner>> {
        match (&self.prepared, &self.source.memory) {
            (Some(prepared), _) => Ok(prepared),
            (None, SourceMemory::InPlace(tensor)) => Ok(tensor),
            _ => Err(fail(ErrorKind::InvalidTensor, "the array is not on the host", "report this")),
        }
    }

    /// Copies the array to the host, unless it is there.
    pub(super) fn download_to_host(&mut self) -> Result<()> {
        if self.prepared.is_none()
            && !matches!(&self.source.memory, SourceMemory::InPlace(tensor) if tensor.device().is_host())
        {
            self.prepared = Some(host_tensor(self.host_view()?)?);
        }
        Ok(())
    }

    /// Makes the memory that kernels read int32 or int64, in native byte order, and contiguous if `is_dense`.
    pub(super) fn prepare_index(&mut self, wanted: Option<DType>, is_dense: bool) -> Result<()> {
        self.download_to_host()?;
        let tensor = self.tensor()?;
        let own = if tensor.dtype() == DType::Int32 { DType::Int32 } else { DType::Int64 };
        let dtype = wanted.unwrap_or(own);
        let size = dtype.size() as i64;
        let fits = tensor.dtype() == dtype
            && is_native(tensor)
            && (tensor.layout().is_dense()
                || (!is_dense && tensor.layout().strides().iter().all(|stride| stride % size == 0)));
        if !fits {
            self.prepared = Some(host_copy::copy_packed(self.object.py(), tensor, dtype)?);
        }
        Ok(())
    }

    /// Makes the memory that kernels read contiguous, in native byte order. Kernels move the bytes of bools, which are 0 and 1 in a
    /// copy.
    pub(super) fn prepare_values(&mut self) -> Result<()> {
        self.download_to_host()?;
        let tensor = self.tensor()?;
        let is_original_bool = tensor.dtype() == DType::Bool && self.prepared.is_none();
        if !is_native(tensor) || !tensor.layout().is_dense() || is_original_bool {
            self.prepared = Some(host_copy::copy_packed(self.object.py(), tensor, tensor.dtype())?);
        }
        Ok(())
    }

    /// Reads the array again, as its framework stores it.
    pub(super) fn reread(&self) -> Result<Source<'py>> {
        Ok(hide_object_if_read_only(read(&self.object, self.is_read_only)?, self.is_read_only))
    }

    /// Reads the array again, on the host, as the base of a view.
    pub(super) fn host_view(&self) -> Result<Source<'py>> {
        let source = self.reread()?;
        if matches!(&source.memory, SourceMemory::InPlace(tensor) if tensor.device().is_host()) {
            return Ok(source);
        }
        let numpy = Target::Builtin(Builtin::Numpy.framework());
        let options = ConvertOptions { device: DeviceRequest::At(Device::CPU), ..ConvertOptions::NONE };
        let request = ConversionRequest { options, ..ConversionRequest::new(numpy) };
        let object = convert::convert_object(recognise(&self.object)?, &request)?;
        read(&object, self.is_read_only)
    }
}

fn read<'py>(object: &Bound<'py, PyAny>, is_read_only: bool) -> Result<Source<'py>> {
    let recognised = recognise(object)?;
    if matches!(recognised.kind(), Recognised::Container(_)) {
        let fact = format!("{} is not an array", object.repr()?);
        return Err(fail(ErrorKind::InvalidTensor, fact, "check how the tensor was constructed"));
    }
    let mut source = crate::conversion::reading::read(recognised)?;
    if let (true, SourceMemory::InPlace(tensor)) = (is_read_only, &mut source.memory) {
        tensor.set_read_only();
    }
    Ok(source)
}

/// Keeps the target from returning the source object itself where the memory is read-only, which the object does not express.
fn hide_object_if_read_only(source: Source<'_>, is_read_only: bool) -> Source<'_> {
    Source { framework: if is_read_only { OWN_FRAMEWORK } else { source.framework }, ..source }
}

/// The memory of a source on the host.
fn host_tensor(source: Source<'_>) -> Result<Tensor<Owner>> {
    match source.memory {
        SourceMemory::InPlace(tensor) if tensor.device().is_host() => Ok(tensor),
        _ => Err(fail(ErrorKind::InvalidTensor, "the array is not on the host", "report this")),
    }
}

/// A source over a view of the memory. Its object is not a valid result any more.
pub(super) fn map_tensor<'py>(
    source: Source<'py>,
    change: impl FnOnce(Tensor<Owner>) -> tensorferry_core::Result<Tensor<Owner>>,
) -> Result<Source<'py>> {
    let Source { object, memory, mutability, through_array, streams, .. } = source;
    let memory = match memory {
        SourceMemory::InPlace(tensor) => SourceMemory::InPlace(change(tensor)?),
        later => later,
    };
    Ok(Source { object, framework: OWN_FRAMEWORK, memory, mutability, through_array, counts: None, streams })
}

/// A source over new memory that only the result uses.
pub(super) fn new_array_source(py: Python<'_>, tensor: Tensor<Owner>) -> Source<'_> {
    Source::in_place(py.None().into_bound(py), OWN_FRAMEWORK, tensor)
        .with_mutability(SourceMutability::Temporary)
}

fn is_native(tensor: &Tensor<Owner>) -> bool {
    let is_aligned = (tensor.data() as usize).is_multiple_of(tensor.dtype().align());
    tensor.order() == ByteOrder::Native && (is_aligned || tensor.layout().is_empty())
}

/// Fails unless kernels can read the array as numbers of type `I`, as `prepare_index` leaves it.
fn check_prepared<I: Index>(tensor: &Tensor<Owner>, has_shape: bool) -> Result<()> {
    let (layout, item) = (tensor.layout(), size_of::<I>() as i64);
    // The stride of an axis with one element is irrelevant.
    let mut axes = layout.shape().iter().zip(layout.strides());
    let is_prepared = has_shape
        && tensor.dtype() == index_dtype::<I>()
        && tensor.device().is_host()
        && is_native(tensor)
        && (layout.is_empty() || axes.all(|(&length, stride)| length < 2 || stride % item == 0));
    let unprepared = || fail(ErrorKind::InvalidTensor, "an index array was not prepared", "report this");
    if is_prepared { Ok(()) } else { Err(unprepared()) }
}

/// The dtype of an index type.
pub(super) fn index_dtype<I: Index>() -> DType {
    if size_of::<I>() == size_of::<i32>() { DType::Int32 } else { DType::Int64 }
}

/// The elements of a prepared, contiguous index array.
pub(super) fn index_slice<I: Index>(tensor: &Tensor<Owner>) -> Result<&[I]> {
    if tensor.layout().is_empty() {
        return Ok(&[]);
    }
    check_prepared::<I>(tensor, tensor.layout().is_dense())?;
    // SAFETY: `from_raw_parts` requires as many aligned numbers of this type as the layout has, for as long as the tensor is
    // borrowed. `check_prepared` has compared type, alignment and byte order, the layout is dense, and the owner keeps the memory.
    // No safe code of this crate writes it. A Python thread that does during the call races; kernels do not trust values to stay.
    Ok(unsafe { std::slice::from_raw_parts(tensor.data().cast(), tensor.layout().count()) })
}

/// The elements of a prepared index array with one axis.
pub(super) fn axis<I: Index>(tensor: &Tensor<Owner>) -> Result<Axis<'_, I>> {
    check_prepared::<I>(tensor, tensor.layout().rank() == 1)?;
    Ok(line(tensor, 0, 0, 0))
}

/// The row or column `number` of a prepared index matrix; `along` is the axis that it follows.
pub(super) fn matrix_line<I: Index>(
    tensor: &Tensor<Owner>,
    number: usize,
    along: usize,
) -> Result<Axis<'_, I>> {
    let layout = tensor.layout();
    let is_inside = layout.rank() == 2 && along < 2 && (number as i64) < layout.shape()[1 - along];
    check_prepared::<I>(tensor, is_inside)?;
    Ok(line(tensor, number, along, layout.strides()[1 - along]))
}

fn line<I: Index>(tensor: &Tensor<Owner>, number: usize, along: usize, across: i64) -> Axis<'_, I> {
    let (layout, item) = (tensor.layout(), size_of::<I>() as i64);
    // SAFETY: `Axis::new` requires numbers that are readable and aligned while the tensor is borrowed. Both callers have compared
    // type, alignment, strides and the number of the line with the layout, and the owner keeps the memory. No safe code of this
    // crate writes it. A Python thread that does during the call races; kernels do not trust values to stay.
    unsafe {
        // The address of a line without elements may be invalid: nothing is read from it.
        let start = tensor.data().cast::<I>().wrapping_offset((number as i64 * across / item) as isize);
        Axis::new(start, (layout.strides()[along] / item) as isize, layout.shape()[along] as usize)
    }
}

/// Runs work on `count` elements, and releases the GIL meanwhile if there are many. The bound `Send` keeps Python objects out of the
/// closure.
pub(super) fn detach_if_large<T: Send>(py: Python<'_>, count: usize, work: impl FnOnce() -> T + Send) -> T {
    if count < DETACH_THRESHOLD_ELEMENTS { work() } else { py.detach(work) }
}

/// Runs a body with `$I` as the Rust type of an index dtype: `i32` or `i64`.
macro_rules! with_index_type {
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
pub(super) use with_index_type;

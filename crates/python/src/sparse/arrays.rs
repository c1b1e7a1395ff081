//! The arrays of sparse tensors, as the core takes them: on the host, read in place.

use crate::conversion::convert;
use crate::conversion::host_copy;
use crate::conversion::kinds::{Builtin, Recognised};
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::source::{Memory, OURS, Source};
use crate::errors::{Result, fail};
use crate::frameworks::Target;
use crate::interpreter::owner::Owner;
use pyo3::prelude::*;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{ConvertOptions, DeviceRequest, SourceMutability};
use tensorferry_core::sparse::{Axis, Index};
use tensorferry_core::{ByteOrder, DType, Device, ErrorKind, Layout, Tensor};

/// Work on fewer elements keeps other Python threads waiting: releasing the interpreter would cost more.
const DETACH_FROM: usize = 16 << 10;

/// An array of the source.
pub(super) struct Array<'py> {
    pub(super) object: Bound<'py, PyAny>,
    /// As its framework holds it.
    source: Source<'py>,
    /// Whether nobody may write it.
    is_read_only: bool,
    /// The memory on the host that kernels read, where it is not that of the source.
    ready: Option<Tensor<Owner>>,
}

impl<'py> Array<'py> {
    /// Reads an array; `is_read_only` if nobody may write it, although its framework would let them.
    pub(super) fn read(object: &Bound<'py, PyAny>, is_read_only: bool) -> Result<Self> {
        let source = read(object, is_read_only)?;
        Ok(Self { object: object.clone(), source, is_read_only, ready: None })
    }

    pub(super) fn source(&self) -> &Source<'py> {
        &self.source
    }

    /// As it goes to the target.
    pub(super) fn into_source(self) -> Source<'py> {
        unless_read_only(self.source, self.is_read_only)
    }

    pub(super) fn dtype(&self) -> DType {
        self.source.facts().dtype
    }

    pub(super) fn shape(&self) -> &[i64] {
        match &self.source.memory {
            Memory::Here(tensor) => tensor.layout().shape(),
            Memory::Later { layout, .. } => layout.shape(),
        }
    }

    /// Whether it is dense and row-major.
    pub(super) fn is_dense(&self) -> bool {
        match &self.source.memory {
            Memory::Here(tensor) => tensor.layout().is_dense(),
            Memory::Later { .. } => true,
        }
    }

    /// Whether the elements of a matrix along one axis lie side by side.
    pub(super) fn is_line_dense(&self, along: usize) -> bool {
        let facts = self.source.facts();
        let (shape, strides) = (facts.layout.shape(), facts.layout.strides());
        shape[along] < 2 || strides[along] == facts.dtype.size() as i64
    }

    /// The memory on the host that kernels read.
    pub(super) fn tensor(&self) -> Result<&Tensor<Owner>> {
        match (&self.ready, &self.source.memory) {
            (Some(ready), _) => Ok(ready),
            (None, Memory::Here(tensor)) => Ok(tensor),
            _ => Err(fail(ErrorKind::InvalidTensor, "the array is not on the host", "report this")),
        }
    }

    /// Brings it to the host, if it is not there.
    pub(super) fn fetch(&mut self) -> Result<()> {
        if self.ready.is_none()
            && !matches!(&self.source.memory, Memory::Here(tensor) if tensor.device().is_host())
        {
            self.ready = Some(here(self.view()?)?);
        }
        Ok(())
    }

    /// Makes the memory that kernels read int32 or int64, in this machine's byte order, and dense if they ask for it.
    pub(super) fn prepare_index(&mut self, wanted: Option<DType>, is_dense: bool) -> Result<()> {
        self.fetch()?;
        let tensor = self.tensor()?;
        let own = if tensor.dtype() == DType::Int32 { DType::Int32 } else { DType::Int64 };
        let dtype = wanted.unwrap_or(own);
        let size = dtype.size() as i64;
        let fits = tensor.dtype() == dtype
            && is_native(tensor)
            && (tensor.layout().is_dense()
                || (!is_dense && tensor.layout().strides().iter().all(|stride| stride % size == 0)));
        if !fits {
            self.ready = Some(host_copy::packed(self.object.py(), tensor, dtype)?);
        }
        Ok(())
    }

    /// Makes the memory that kernels read dense, in this machine's byte order.
    pub(super) fn prepare_values(&mut self) -> Result<()> {
        self.fetch()?;
        let tensor = self.tensor()?;
        if !is_native(tensor) || !tensor.layout().is_dense() {
            self.ready = Some(host_copy::packed(self.object.py(), tensor, tensor.dtype())?);
        }
        Ok(())
    }

    /// The array once more, as its framework holds it.
    pub(super) fn again(&self) -> Result<Source<'py>> {
        Ok(unless_read_only(read(&self.object, self.is_read_only)?, self.is_read_only))
    }

    /// The array once more, on the host, for a view of a part of it.
    pub(super) fn view(&self) -> Result<Source<'py>> {
        let source = self.again()?;
        if matches!(&source.memory, Memory::Here(tensor) if tensor.device().is_host()) {
            return Ok(source);
        }
        let numpy = Target::Builtin(Builtin::Numpy.framework());
        let options = ConvertOptions { device: DeviceRequest::At(Device::CPU), ..ConvertOptions::NONE };
        let request = ConversionRequest { options, ..ConversionRequest::new(numpy) };
        let object = convert::convert_object(&self.object, recognise(&self.object)?, &request)?;
        read(&object, self.is_read_only)
    }
}

fn read<'py>(object: &Bound<'py, PyAny>, is_read_only: bool) -> Result<Source<'py>> {
    let recognised = recognise(object)?;
    if matches!(recognised, Recognised::Container(_)) {
        let fact = format!("{} is not an array", object.repr()?);
        return Err(fail(ErrorKind::InvalidTensor, fact, "look at how the tensor was made"));
    }
    let mut source = crate::conversion::reading::read(object, recognised)?;
    if let (true, Memory::Here(tensor)) = (is_read_only, &mut source.memory) {
        tensor.set_read_only();
    }
    Ok(source)
}

/// A source whose object may stand for it, unless nobody may write the memory, which the object does not say.
fn unless_read_only(source: Source<'_>, is_read_only: bool) -> Source<'_> {
    Source { framework: if is_read_only { OURS } else { source.framework }, ..source }
}

/// The memory of a source that is on the host.
fn here(source: Source<'_>) -> Result<Tensor<Owner>> {
    match source.memory {
        Memory::Here(tensor) if tensor.device().is_host() => Ok(tensor),
        _ => Err(fail(ErrorKind::InvalidTensor, "the array is not on the host", "report this")),
    }
}

/// A view of a source, for which its object does not stand.
pub(super) fn changed<'py>(
    source: Source<'py>,
    change: impl FnOnce(Tensor<Owner>) -> tensorferry_core::Result<Tensor<Owner>>,
) -> Result<Source<'py>> {
    let Source { object, memory, mutability, requires_grad, through_array, streams, .. } = source;
    let memory = match memory {
        Memory::Here(tensor) => Memory::Here(change(tensor)?),
        later => later,
    };
    Ok(Source { object, framework: OURS, memory, mutability, requires_grad, through_array, streams })
}

/// Memory that was made for the result.
pub(super) fn made(py: Python<'_>, tensor: Tensor<Owner>) -> Source<'_> {
    Source::here(py.None().into_bound(py), OURS, tensor).with_mutability(SourceMutability::Temporary)
}

fn is_native(tensor: &Tensor<Owner>) -> bool {
    let is_aligned = (tensor.data() as usize).is_multiple_of(tensor.dtype().align());
    tensor.order() == ByteOrder::Native && (is_aligned || tensor.layout().is_empty())
}

/// The numbers of an index array that is prepared and dense.
pub(super) fn slice<I: Index>(tensor: &Tensor<Owner>) -> &[I] {
    debug_assert!(tensor.layout().is_dense() && tensor.dtype().size() == size_of::<I>());
    if tensor.layout().is_empty() {
        return &[];
    }
    // SAFETY: `prepare_index` made the tensor dense and aligned, with elements of this type, and its owner keeps them.
    unsafe { std::slice::from_raw_parts(tensor.data().cast(), tensor.layout().count()) }
}

/// The numbers of an index array of one axis that is prepared.
pub(super) fn axis<I: Index>(tensor: &Tensor<Owner>) -> Axis<'_, I> {
    debug_assert!(tensor.layout().rank() == 1);
    line(tensor, 0, 0, 0)
}

/// The `number`th line of a matrix that is prepared, along one of its two axes.
pub(super) fn line_of<I: Index>(tensor: &Tensor<Owner>, number: usize, along: usize) -> Axis<'_, I> {
    debug_assert!(tensor.layout().rank() == 2);
    line(tensor, number, along, tensor.layout().strides()[1 - along])
}

fn line<I: Index>(tensor: &Tensor<Owner>, number: usize, along: usize, across: i64) -> Axis<'_, I> {
    let (layout, item) = (tensor.layout(), size_of::<I>() as i64);
    // SAFETY: `prepare_index` made the tensor aligned, with elements of this type and strides of whole elements; the line is
    // one of its own, and its owner keeps it.
    unsafe {
        // The address of a line without elements may be anything: nothing is read there.
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

// SAFETY: it is an address. Reading and writing through it is unsafe, and whoever does it vouches for the memory.
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

    /// As a tensor, when everything is written.
    pub(super) fn tensor(self) -> Result<Tensor<Owner>> {
        host_copy::of_block(self.block, self.dtype, self.layout)
    }
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

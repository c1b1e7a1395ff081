//! `AnyTensor`: a tensor of any type, rank and device.

use crate::acquire::{HOST, ManagedStruct, ViewMemory};
use crate::element::TensorElement;
use crate::ndarray_layout::{core_error, export, numbers};
use crate::table;
use crate::view::TensorView;
use crate::wrap::wrap_array;
use ndarray::{Array, Dimension, IxDyn};
use pyo3::exceptions::{PyMemoryError, PySystemError};
use pyo3::prelude::*;
use pyo3::{Borrowed, FromPyObject};
use std::ptr::NonNull;
use std::rc::Rc;
use tensorferry_core::c_api::{NO_STREAM, Request};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::dlpack::abi::{ManagedTensorVersioned, RawTensor};
use tensorferry_core::pack::{CopyDestination, CopySource, convert};
use tensorferry_core::{ByteOrder, DType, Device, Layout};

/// The bytes from which on a cast releases the GIL.
const DETACH_THRESHOLD_BYTES: usize = 64 << 10;

/// A tensor of any framework, dtype, rank and device, as a [`PyO3`](pyo3) argument.
///
/// A function that accepts several dtypes decides at run time:
///
/// ```no_run
/// use ndarray::{Axis, NdFloat};
/// use pyo3::exceptions::PyTypeError;
/// use pyo3::prelude::*;
/// use tensorferry_pyo3::{AnyTensor, DType, Ix2, TensorView};
///
/// #[pyfunction]
/// fn row_sums<'py>(x: AnyTensor<'py>) -> PyResult<Bound<'py, PyAny>> {
///     match x.dtype() {
///         DType::Float32 => x.wrap_like(x.view::<f32, Ix2>()?.as_ndarray().sum_axis(Axis(1))),
///         DType::Float64 => x.wrap_like(x.view::<f64, Ix2>()?.as_ndarray().sum_axis(Axis(1))),
///         _ => x.wrap_like(x.cast::<f64>()?.as_ndarray().sum_axis(Axis(1))),
///     }
/// }
/// ```
///
/// It borrows nothing: [`view`](Self::view) and [`cast`](Self::cast) do. They read the tensor again, so that they are right
/// after Python code has moved its memory.
#[derive(Debug)]
pub struct AnyTensor<'py> {
    managed: Rc<ManagedStruct>,
    object: Bound<'py, PyAny>,
    dtype: DType,
    device: Device,
    shape: IxDyn,
}

impl<'a, 'py> FromPyObject<'a, 'py> for AnyTensor<'py> {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Self::take(object, &Request::INIT)
    }
}

impl<'py> AnyTensor<'py> {
    /// Reads a tensor for use on a CUDA stream, which waits for the work that the tensor's framework has queued. An
    /// `AnyTensor` argument is for the legacy default stream.
    ///
    /// `stream` is the address of the stream; 0 and 1 are the legacy default stream, and 2 is the per-thread default stream. It
    /// has no effect on host memory.
    ///
    /// # Errors
    /// `TypeError` if the object is not a tensor, and others if it cannot be read.
    pub fn on_stream(object: &Bound<'py, PyAny>, stream: i64) -> PyResult<Self> {
        Self::take(object.as_borrowed(), &Request { stream, ..Request::INIT })
    }

    fn take(object: Borrowed<'_, 'py, PyAny>, request: &Request) -> PyResult<Self> {
        let managed = ManagedStruct::take(object, request)?;
        let tensor = managed.tensor();
        let dtype = dtype_of(tensor)?;
        let kind = DeviceKind::from_code(tensor.device.device_type).ok_or_else(unknown)?;
        let device = Device { kind, index: tensor.device.device_id };
        // SAFETY: a `ManagedStruct` has a valid tensor with `ndim` numbers in its arrays.
        let (lengths, _) = unsafe { numbers(tensor) }?;
        let mut shape = IxDyn::zeros(lengths.len());
        for (length, &found) in shape.slice_mut().iter_mut().zip(lengths) {
            *length = usize::try_from(found).map_err(|_| unknown())?;
        }
        Ok(Self { managed: Rc::new(managed), object: object.to_owned(), dtype, device, shape })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device of the memory.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The lengths of the dimensions.
    pub fn shape(&self) -> &[usize] {
        self.shape.slice()
    }

    /// The number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.ndim()
    }

    /// Whether the memory is a copy, and not the tensor's own.
    pub fn is_copied(&self) -> bool {
        self.managed.is_copied()
    }

    /// The object that was passed.
    pub fn object(&self) -> &Bound<'py, PyAny> {
        &self.object
    }

    /// The DLPack struct, for code that works with addresses, such as the launch of a CUDA kernel.
    ///
    /// It is valid as long as this value, which releases it. Code that dereferences `data` keeps the rules of
    /// the [crate documentation](crate#what-other-code-can-still-do) itself: nothing is borrowed, and the flag for read-only memory may
    /// be set.
    pub fn as_dlpack(&self) -> NonNull<ManagedTensorVersioned> {
        self.managed.pointer()
    }

    /// A view of the elements, which must have the type `T`, in host memory.
    ///
    /// # Errors
    /// As the extraction of a [`TensorView`]: `TypeError` for another dtype, `ValueError` for another rank or a GPU, `BorrowError`
    /// if a [`TensorViewMut`](crate::TensorViewMut) of the memory exists.
    pub fn view<T: TensorElement, D: Dimension>(&self) -> PyResult<TensorView<'py, T, D>> {
        let object = self.object.as_borrowed();
        let is_rank = D::NDIM.is_none_or(|rank| rank == self.rank());
        if self.is_copied() && self.device.is_host() && self.dtype == T::DTYPE && is_rank {
            return ViewMemory::of_copy(object, Rc::clone(&self.managed)).map(TensorView::new);
        }
        // Python code may have moved the memory since. The table refuses another type, rank or device, with a hint for this object.
        ViewMemory::take(object).map(TensorView::new)
    }

    /// The values in another type. A tensor of the type `T` is viewed, and others are converted to a new array.
    ///
    /// The results are those of `tensorferry.to(x, dtype=...)`:
    ///
    /// - to a float: the nearest value, ties to even; too large a value is an infinity;
    /// - float to integer: towards zero; values out of range become the nearest bound, and NaN becomes 0;
    /// - integer to integer: modulo 2 to the number of bits;
    /// - to `bool`: whether the value is not 0;
    /// - complex to real: the real component.
    ///
    /// The conversion uses one thread, and releases the GIL for large tensors.
    ///
    /// # Errors
    /// `ValueError` for a tensor on a GPU, which is never downloaded; `BorrowError` as [`view`](Self::view); `MemoryError`.
    pub fn cast<T: TensorElement>(&self) -> PyResult<TensorView<'py, T>> {
        let object = self.object.as_borrowed();
        if self.dtype == T::DTYPE {
            return self.view();
        }
        let managed = match self.is_copied() && self.device.is_host() {
            true => Rc::clone(&self.managed),
            // Python code may have moved the memory since. The table refuses a GPU, with a hint for this object.
            false => {
                let request = Request { device: HOST, stream: NO_STREAM, borrow: 1, ..Request::INIT };
                Rc::new(ManagedStruct::take(object, &request)?)
            }
        };
        // SAFETY: `export` made a valid struct, which belongs to this function.
        let converted = unsafe { ManagedStruct::new(export(convert_to::<T>(object.py(), &managed)?)?) };
        ViewMemory::of_copy(object, Rc::new(converted)).map(TensorView::new)
    }

    /// Returns an array as a tensor of the framework that the argument came from, as [`TensorView::wrap_like`].
    ///
    /// # Errors
    /// The framework's, for example if it does not have the dtype.
    pub fn wrap_like<T: TensorElement, D: Dimension>(
        &self,
        array: Array<T, D>,
    ) -> PyResult<Bound<'py, PyAny>> {
        wrap_array(array, self.object.as_borrowed())
    }

    /// Returns memory of any device as a tensor of the framework that the argument came from.
    ///
    /// ```compile_fail,E0133
    /// # use pyo3::prelude::*;
    /// # use tensorferry_pyo3::AnyTensor;
    /// fn alias<'py>(x: AnyTensor<'py>) -> PyResult<Bound<'py, PyAny>> {
    ///     x.wrap_dlpack_like(x.as_dlpack())
    /// }
    /// ```
    ///
    /// # Errors
    /// The framework's. The caller then still owns `tensor`.
    ///
    /// # Safety
    /// `tensor` is a valid struct whose deleter may run on any thread. On success nothing else releases it or uses its memory.
    pub unsafe fn wrap_dlpack_like(
        &self,
        tensor: NonNull<ManagedTensorVersioned>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the contract of this function has the clauses of `table::wrap`.
        unsafe { table::wrap(self.object.py(), tensor, self.object.as_borrowed()) }
    }
}

/// The dtype of a struct.
fn dtype_of(tensor: &RawTensor) -> PyResult<DType> {
    DType::from_dlpack_code(tensor.dtype.code, tensor.dtype.bits).ok_or_else(unknown)
}

fn unknown() -> PyErr {
    PySystemError::new_err("tensorferry's C table returned an unknown dtype or device")
}

/// The values of host memory as a new array. The struct borrows the memory, or is a copy.
fn convert_to<T: TensorElement>(py: Python<'_>, managed: &ManagedStruct) -> PyResult<Array<T, IxDyn>> {
    let tensor: &RawTensor = managed.tensor();
    let dtype = dtype_of(tensor)?;
    // SAFETY: a `ManagedStruct` has a valid tensor with `ndim` numbers in its arrays.
    let (shape, strides) = unsafe { numbers(tensor) }?;
    let source = Layout::strided_by_element(dtype.size(), shape, strides).map_err(core_error)?;
    let destination = Layout::dense(size_of::<T>(), shape).map_err(core_error)?;
    let count = destination.count();
    let mut values = Vec::<T>::new();
    values.try_reserve_exact(count).map_err(|error| PyMemoryError::new_err(error.to_string()))?;
    let addresses = Addresses {
        from: tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize),
        to: values.as_mut_ptr().cast(),
    };
    let bytes = source.bytes().max(destination.bytes());
    let (source, destination) = (&source, &destination);
    let run = move || {
        let Addresses { from, to } = addresses.get();
        let source = CopySource { data: from, dtype, layout: source, order: ByteOrder::Native };
        let destination = CopyDestination { data: to, dtype: T::DTYPE, layout: destination };
        // SAFETY: the table keeps the elements of the source readable until the struct is released, which `managed` holds, and
        // its borrow excludes writers of the borrow table. The vector has capacity for the dense destination, nothing else refers
        // to it, and its indices reach different bytes.
        unsafe { convert(&source, &destination, 1) }
    };
    let done = if bytes < DETACH_THRESHOLD_BYTES { run() } else { py.detach(run) };
    done.map_err(core_error)?;
    // SAFETY: the vector has this capacity, and `convert` has written all elements. A cast to `bool` writes the bytes 0 and 1.
    unsafe { values.set_len(count) };
    let shape: Vec<usize> = shape.iter().map(|&length| length as usize).collect();
    Array::from_shape_vec(shape, values).map_err(|error| PySystemError::new_err(error.to_string()))
}

/// The addresses of a conversion, for a closure that runs without the GIL.
#[derive(Clone, Copy)]
struct Addresses {
    from: *const u8,
    to: *mut u8,
}

impl Addresses {
    /// The value: a closure that reads it captures the whole struct, not the pointers in it.
    fn get(self) -> Self {
        self
    }
}

// SAFETY: `convert` uses the addresses on the same thread, while `convert_to` waits for it and keeps both memories alive.
unsafe impl Send for Addresses {}

//! NumPy: read from the array's C struct, written through its C API.
//!
//! Types that NumPy lacks (bfloat16, float8 and narrower) are those of `ml_dtypes`, imported when the
//! first of them is needed.

mod array_struct;

use self::array_struct::has_weak_references;
use super::{Framework, import};
use crate::conversion::kinds::{Builtin, Form};
use crate::conversion::source::Source;
use crate::errors::{Result, fail};
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::owner::Owner;
use numpy::PyArrayDescr;
use numpy::npyffi::{
    NPY_ARRAY_OWNDATA, NPY_ARRAY_WRITEABLE, NPY_TYPES, PY_ARRAY_API, PyArray_Descr, PyArrayObject,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::Mutex;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    Pending, SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor};

pub(crate) struct NumPy;

static FACTS: TargetCapabilities = TargetCapabilities {
    framework: "numpy",
    title: "NumPy",
    dtypes: DTypes::ALL,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: true,
    strides: Strides::Bytes,
    alignment: 1,
    max_rank: 64,
    mutability: TargetMutability::Flagged,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: false,
};

impl Framework for NumPy {
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        array_type(py)?;
        Ok(&FACTS)
    }

    fn read<'py>(&self, object: &Bound<'py, PyAny>, form: Form) -> Result<Source<'py>> {
        let tensor = read_array(object)?;
        Ok(match form {
            // The array of a scalar is made for us and seen by nobody else.
            Form::Scalar => Source::here(object.clone(), "numpy scalar", tensor)
                .with_mutability(SourceMutability::Temporary),
            _ => Source::here(object.clone(), "numpy", tensor),
        })
    }

    fn materialise(&self, object: &Bound<'_, PyAny>, _pending: Pending) -> Result<Tensor<Owner>> {
        read_array(object)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        write_array(py, tensor)
    }
}

/// Where empty arrays point; nothing is read or written there.
#[repr(align(64))]
struct Nothing([u8; 64]);

static NOTHING: Nothing = Nothing([0; 64]);

static ARRAY_TYPE: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();

/// The type `ndarray`. Imports NumPy before its C API is touched, so that its absence is an error and no panic.
fn array_type(py: Python<'_>) -> Result<&Bound<'_, PyType>> {
    if let Some(kind) = ARRAY_TYPE.get(py) {
        return Ok(kind.bind(py));
    }
    let kind = import(py, Builtin::Numpy)?.getattr("ndarray")?.cast_into::<PyType>().map_err(PyErr::from)?;
    Ok(ARRAY_TYPE.get_or_init(py, || kind.unbind()).bind(py))
}

/// `numpy.asarray(object)`.
pub(crate) fn as_array<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    static AS_ARRAY: ForkSafeOnce<Py<PyAny>> = ForkSafeOnce::new();
    let py = object.py();
    let function = AS_ARRAY.get_or_try_init(py, || -> Result<_> {
        Ok(import(py, Builtin::Numpy)?.getattr("asarray")?.unbind())
    })?;
    Ok(crate::interpreter::call::call1(function.bind(py), object)?)
}

/// Whether the object is an `ndarray` or of a subclass.
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> Result<bool> {
    let kind = array_type(object.py())?.as_type_ptr();
    let given = object.get_type_ptr();
    // SAFETY: both are live types.
    Ok(given == kind || unsafe { ffi::PyType_IsSubtype(given, kind) } != 0)
}

/// Whether the object is an `ndarray` and not of a subclass.
pub(crate) fn is_plain_array(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(object.get_type().is(array_type(object.py())?))
}

/// Whether the caller has the only reference to an array's memory: nothing else refers to the array, to the arrays that it is
/// a view of, and the last of these allocated the memory. An object that is not an array never qualifies.
pub(crate) fn is_unshared(array: &Bound<'_, PyAny>) -> Result<bool> {
    let py = array.py();
    let mut next = array.as_ptr();
    loop {
        // SAFETY: `next` is alive: the caller has the array, and an array keeps its base.
        if unsafe { ffi::Py_REFCNT(next) } != 1 || !is_array(unsafe { Bound::ref_from_ptr(py, &next) })? {
            return Ok(false);
        }
        // SAFETY: an ndarray, as was just checked, whose struct NumPy's ABI fixes.
        let fields = unsafe { &(*next.cast::<PyArrayObject>()).fields };
        // SAFETY: `next` is alive, as above.
        if has_weak_references(unsafe { Bound::ref_from_ptr(py, &next) })? {
            return Ok(false);
        }
        if fields.base.is_null() {
            return Ok(fields.flags & NPY_ARRAY_OWNDATA != 0);
        }
        next = fields.base;
    }
}

/// The element type that an object of `numpy.dtype` stands for; `None` for any other object.
pub(crate) fn dtype_of(object: &Bound<'_, PyAny>) -> Result<Option<DType>> {
    let py = object.py();
    array_type(py)?;
    let Ok(descr) = object.cast::<PyArrayDescr>() else { return Ok(None) };
    element_type(py, descr.as_ptr().cast()).map(|(dtype, _)| Some(dtype))
}

/// Reads an `ndarray` or a subclass; anything else is made one first.
#[inline(always)]
pub(crate) fn read_array(array: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    if is_array(array)? {
        // SAFETY: just checked.
        return unsafe { read_fields(array) };
    }
    let made = as_array(array)?;
    if is_array(&made)? {
        // SAFETY: just checked.
        unsafe { read_fields(&made) }
    } else {
        Err(crate::errors::not_a_tensor(array))
    }
}

/// What an array says about its memory.
pub(crate) struct View<'py> {
    /// Whether it may be written through this array.
    pub(crate) writable: bool,
    /// The object whose memory it is, where the array does not have memory of its own.
    pub(crate) base: Option<Bound<'py, PyAny>>,
}

/// The object as an array, if it is one.
#[inline]
pub(crate) fn view<'py>(object: &Bound<'py, PyAny>) -> Option<View<'py>> {
    if !is_array(object).is_ok_and(|is_array| is_array) {
        return None;
    }
    // SAFETY: an ndarray, as was just checked; a base that is not null is a live object.
    unsafe {
        let fields = &raw const (*object.as_ptr().cast::<PyArrayObject>()).fields;
        let writable = (*fields).flags & NPY_ARRAY_WRITEABLE != 0;
        Some(View { writable, base: Bound::from_borrowed_ptr_or_opt(object.py(), (*fields).base) })
    }
}

/// Reads the C struct of an array.
///
/// # Safety
/// The object is an `ndarray` or of a subclass.
#[inline(always)]
unsafe fn read_fields(array: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = array.py();
    // SAFETY: the caller vouches for an ndarray, whose struct NumPy's ABI fixes; it is alive. The
    // descriptor is looked at before the other fields, because naming a type of others may run Python code; nothing
    // after that does.
    let (data, access, dtype, order, layout) = unsafe {
        let fields = &raw const (*array.as_ptr().cast::<PyArrayObject>()).fields;
        let (dtype, order) = element_type(py, (*fields).descr)?;
        let rank = (*fields).nd as usize;
        let numbers = |start: *mut isize| match rank {
            0 => &[][..],
            _ => std::slice::from_raw_parts(start.cast::<i64>(), rank),
        };
        let layout =
            Layout::strided(dtype.size(), numbers((*fields).dimensions), numbers((*fields).strides))?;
        let writable = (*fields).flags & NPY_ARRAY_WRITEABLE != 0;
        let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
        ((*fields).data.cast::<u8>(), access, dtype, order, layout)
    };
    let owner = Owner::object(array.clone().unbind());
    // SAFETY: NumPy keeps the memory as long as the array lives, which the owner holds.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, owner) }?)
}

/// Reads an `ndarray` that is only a view, and keeps what it is a view of: a NumPy array made from it then has no
/// writable array below it that could be asked to lift the read-only flag.
#[inline(always)]
pub(crate) fn read_base(array: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let mut tensor = read_array(array)?;
    if !is_array(array)? {
        return Ok(tensor);
    }
    // SAFETY: an ndarray, as was just checked; a base that is not null is a live object that keeps the memory of its
    // views.
    unsafe {
        let base = (*array.as_ptr().cast::<PyArrayObject>()).fields.base;
        if !base.is_null() {
            let base = Bound::from_borrowed_ptr(array.py(), base);
            let view = tensor.replace_owner(Owner::object(base.unbind()));
            drop(view);
        }
    }
    Ok(tensor)
}

/// Makes an `ndarray` over the memory of a tensor.
#[inline(always)]
pub(crate) fn write_array<'py>(py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
    let kind = array_type(py)?.as_type_ptr();
    let descr = descriptor(py, tensor.dtype(), tensor.order())?;
    let layout = tensor.layout();
    let flags = if tensor.access() == Access::ReadWrite { NPY_ARRAY_WRITEABLE } else { 0 };
    // A null pointer would make NumPy allocate and forget the flags; an empty tensor may have one.
    let data = if tensor.data().is_null() { NOTHING.0.as_ptr().cast_mut() } else { tensor.data() };
    // SAFETY: the descriptor is a new reference that NumPy takes; shape and strides have `rank` numbers that NumPy
    // copies and does not write; the memory is kept alive by the base that is set below.
    let array = unsafe {
        let array = PY_ARRAY_API.PyArray_NewFromDescr(
            py,
            kind,
            descr,
            layout.rank() as i32,
            layout.shape().as_ptr().cast_mut().cast(),
            layout.strides().as_ptr().cast_mut().cast(),
            data.cast(),
            flags,
            std::ptr::null_mut(),
        );
        Bound::from_owned_ptr_or_err(py, array)?
    };
    let base = tensor.into_owner().into_object(py)?;
    // SAFETY: the array is new, seen by nobody and without a base.
    unsafe { array_struct::set_base(&array, base) }?;
    Ok(array)
}

fn element_type(py: Python<'_>, descr: *mut PyArray_Descr) -> Result<(DType, ByteOrder)> {
    // SAFETY: an array always has a descriptor, and its leading fields are the same in every NumPy we support.
    let fields = unsafe { &(*descr).fields };
    let order = match fields.byteorder as u8 {
        b'>' if cfg!(target_endian = "little") => ByteOrder::Swapped,
        b'<' if cfg!(target_endian = "big") => ByteOrder::Swapped,
        _ => ByteOrder::Native,
    };
    if let Some(dtype) = usize::try_from(fields.type_num).ok().and_then(|number| *BY_NUMBER.get(number)?) {
        return Ok((dtype, order));
    }
    // SAFETY: the descriptor is a live Python object.
    let descr = unsafe { Bound::from_borrowed_ptr(py, descr.cast()) };
    extension_type(fields.type_num, &descr).map(|dtype| (dtype, order))
}

/// NumPy's type numbers up to float16. `long` and `long long` have the same size on the systems we build for.
static BY_NUMBER: [Option<DType>; 24] = [
    Some(DType::Bool),
    Some(DType::Int8),
    Some(DType::UInt8),
    Some(DType::Int16),
    Some(DType::UInt16),
    Some(DType::Int32),
    Some(DType::UInt32),
    Some(DType::Int64),
    Some(DType::UInt64),
    Some(DType::Int64),
    Some(DType::UInt64),
    Some(DType::Float32),
    Some(DType::Float64),
    None,
    Some(DType::Complex64),
    Some(DType::Complex128),
    None,
    None,
    None,
    None,
    None,
    None,
    None,
    Some(DType::Float16),
];

/// NumPy's number of each of our types, or -1.
static NUMBERS: [i32; DType::COUNT] = {
    let mut numbers = [-1; DType::COUNT];
    let mut number = BY_NUMBER.len();
    // From the top, so that `long` wins over `long long`.
    while number > 0 {
        number -= 1;
        if let Some(dtype) = BY_NUMBER[number] {
            numbers[dtype as usize] = number as i32;
        }
    }
    numbers
};

const _: () = assert!(size_of::<std::ffi::c_long>() == 8 && size_of::<isize>() == 8);

/// Type numbers of `ml_dtypes`, which are given out as they register; a type number is never reused.
static EXTENSIONS: Mutex<Vec<(i32, DType)>> = Mutex::new(Vec::new());

fn extension_type(number: i32, descr: &Bound<'_, PyAny>) -> Result<DType> {
    if let Ok(known) = EXTENSIONS.try_lock()
        && let Some(&(_, dtype)) = known.iter().find(|(known, _)| *known == number)
    {
        return Ok(dtype);
    }
    let class = descr.getattr("type")?;
    let (module, name) = (class.getattr("__module__")?.to_string(), class.getattr("__name__")?.to_string());
    if module == "ml_dtypes"
        && let Some(dtype) = DType::from_name(&name)
    {
        if let Ok(mut known) = EXTENSIONS.try_lock() {
            known.push((number, dtype));
        }
        return Ok(dtype);
    }
    Err(unsupported(number, descr))
}

fn unsupported(number: i32, descr: &Bound<'_, PyAny>) -> crate::errors::Failure {
    let hint = match number {
        n if n == NPY_TYPES::NPY_VOID as i32 => {
            "pass one field at a time, x[\"name\"]; a field of numbers is shared"
        }
        n if n == NPY_TYPES::NPY_OBJECT as i32 => "make it an array of numbers first: x.astype(\"float64\")",
        n if n == NPY_TYPES::NPY_DATETIME as i32 || n == NPY_TYPES::NPY_TIMEDELTA as i32 => {
            "pass x.view(\"int64\"), which shares the ticks"
        }
        n if n == NPY_TYPES::NPY_LONGDOUBLE as i32 => "pass x.astype(\"float64\"), which loses precision",
        n if n == NPY_TYPES::NPY_CLONGDOUBLE as i32 => "pass x.astype(\"complex128\"), which loses precision",
        n if n == NPY_TYPES::NPY_STRING as i32 || n == NPY_TYPES::NPY_UNICODE as i32 => {
            "encode the strings as numbers first"
        }
        _ => "convert it to a type of numbers first",
    };
    fail(
        ErrorKind::UnsupportedDType,
        format!("NumPy's dtype {descr} is no type of numbers that can be carried"),
        hint,
    )
}

/// A new reference to the descriptor of a type.
fn descriptor(py: Python<'_>, dtype: DType, order: ByteOrder) -> Result<*mut PyArray_Descr> {
    let native = match NUMBERS[dtype as usize] {
        -1 => extension_descriptor(py, dtype)?,
        // SAFETY: the number is one of NumPy's own.
        number => unsafe { PY_ARRAY_API.PyArray_DescrFromType(py, number) },
    };
    if native.is_null() {
        return Err(PyErr::fetch(py).into());
    }
    if order == ByteOrder::Native {
        return Ok(native);
    }
    // SAFETY: the descriptor is live; the call returns a new one, and ours is given back.
    unsafe {
        let swapped = PY_ARRAY_API.PyArray_DescrNewByteorder(py, native, b's' as _);
        ffi::Py_DECREF(native.cast());
        if swapped.is_null() { Err(PyErr::fetch(py).into()) } else { Ok(swapped) }
    }
}

/// NumPy's object for a type.
pub(crate) fn dtype_object(py: Python<'_>, dtype: DType) -> Result<Bound<'_, PyAny>> {
    let descr = descriptor(py, dtype, ByteOrder::Native)?;
    // SAFETY: a new reference to a live object.
    Ok(unsafe { Bound::from_owned_ptr(py, descr.cast()) })
}

fn extension_descriptor(py: Python<'_>, dtype: DType) -> Result<*mut PyArray_Descr> {
    static DESCRIPTORS: [ForkSafeOnce<Py<PyAny>>; DType::COUNT] =
        [const { ForkSafeOnce::new() }; DType::COUNT];
    let descr = DESCRIPTORS[dtype as usize].get_or_try_init(py, || -> Result<_> {
        let class = py.import("ml_dtypes").and_then(|module| module.getattr(dtype.name())).map_err(|_| {
            fail(
                ErrorKind::UnsupportedDType,
                format!("NumPy has no type {dtype} without a current ml_dtypes"),
                "pip install -U ml_dtypes",
            )
        })?;
        Ok(py.import("numpy")?.getattr("dtype")?.call1((class,))?.unbind())
    })?;
    Ok(descr.clone_ref(py).into_ptr().cast())
}

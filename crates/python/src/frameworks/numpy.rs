//! NumPy: reads the C struct of an array and creates arrays through the C API.
//!
//! Dtypes that NumPy lacks (bfloat16, float8 and narrower) come from `ml_dtypes`, which is imported on first use.

mod array_struct;

use self::array_struct::has_weak_references;
use super::{Framework, import};
use crate::conversion::object_kinds::{Builtin, Form, RecognisedTensor};
use crate::conversion::source::Source;
use crate::errors::{Failure, Result, fail, type_name};
use crate::interpreter::fork_lock;
use crate::interpreter::objects;
use crate::interpreter::once::{ForkSafeOnce, interned};
use crate::interpreter::owner::Owner;
use numpy::npyffi::{
    NPY_ARRAY_OWNDATA, NPY_ARRAY_WRITEABLE, NPY_TYPES, PY_ARRAY_API, PyArrayObject, is_numpy_2,
};
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::Mutex;
use tensorferry_core::borrow_table::ElementRange;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    Pending, SourceMutability, Strides, SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor};

pub(crate) struct NumPy;

static CAPABILITIES: TargetCapabilities = TargetCapabilities {
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
    fn capabilities(&self, py: Python<'_>) -> Result<&'static TargetCapabilities> {
        array_type(py)?;
        Ok(&CAPABILITIES)
    }

    fn read<'py>(&self, tensor: RecognisedTensor<'_, 'py>) -> Result<Source<'py>> {
        let (object, form) = (tensor.object(), tensor.form());
        let tensor = read_array(object)?;
        Ok(match form {
            // `asarray` creates a new array for a scalar; nothing else refers to it.
            Form::Scalar => Source::in_place(object.clone(), "numpy scalar", tensor)
                .with_mutability(SourceMutability::Temporary),
            _ => Source::in_place(object.clone(), "numpy", tensor),
        })
    }

    fn materialise(&self, tensor: RecognisedTensor<'_, '_>, _pending: Pending) -> Result<Tensor<Owner>> {
        let object = tensor.object();
        read_array(object)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        write_array(py, tensor)
    }
}

/// The data pointer of empty arrays; never read or written.
#[repr(align(64))]
struct EmptyData([u8; 64]);

static EMPTY_DATA: EmptyData = EmptyData([0; 64]);

static ARRAY_TYPE: ForkSafeOnce<Py<PyType>> = ForkSafeOnce::new();

/// The type `ndarray`. The first call imports NumPy and prepares its C API, which would panic if NumPy is missing.
#[inline]
fn array_type(py: Python<'_>) -> Result<&Bound<'_, PyType>> {
    match ARRAY_TYPE.get(py) {
        Some(kind) => Ok(kind.bind(py)),
        None => import_array_type(py),
    }
}

#[cold]
fn import_array_type(py: Python<'_>) -> Result<&Bound<'_, PyType>> {
    let kind = import(py, Builtin::Numpy)?.getattr("ndarray")?.cast_into::<PyType>().map_err(PyErr::from)?;
    // Sets the cells of the C API.
    fork_lock::without_fork(py, || is_numpy_2(py))?;
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

/// Whether the object is an instance of `ndarray` or of a subclass.
#[inline]
pub(crate) fn is_array(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(objects::has_type(object, array_type(object.py())?))
}

/// Whether the type of the object is `ndarray` itself, not a subclass.
pub(crate) fn is_exact_array(object: &Bound<'_, PyAny>) -> Result<bool> {
    Ok(object.get_type().is(array_type(object.py())?))
}

/// Whether the caller has the only reference to an array's memory. Nothing else may refer to the array or to the arrays that
/// it is a view of, and the last of these must own its data. False for other objects.
pub(crate) fn is_unshared(array: &Bound<'_, PyAny>) -> Result<bool> {
    let py = array.py();
    let mut next = array.as_ptr();
    loop {
        // SAFETY: `Py_REFCNT` and `ref_from_ptr` require a live object: the caller holds the array, and each array holds its base.
        // `has_weak_references` and the fields require an ndarray, as `is_array` has checked; NumPy's ABI fixes its struct.
        let (base, flags) = unsafe {
            let object = Bound::ref_from_ptr(py, &next);
            if ffi::Py_REFCNT(next) != 1 || !is_array(object)? || has_weak_references(object)? {
                return Ok(false);
            }
            let fields = &raw const (*next.cast::<PyArrayObject>()).fields;
            ((*fields).base, (*fields).flags)
        };
        if base.is_null() {
            return Ok(flags & NPY_ARRAY_OWNDATA != 0);
        }
        next = base;
    }
}

/// The element type of a `numpy.dtype`; `None` for any other object.
pub(crate) fn dtype_of(object: &Bound<'_, PyAny>) -> Result<Option<DType>> {
    let py = object.py();
    array_type(py)?;
    let Ok(descr) = object.cast::<PyArrayDescr>() else { return Ok(None) };
    element_type(descr).map(|(dtype, _)| Some(dtype))
}

/// Reads an `ndarray` or a subclass; other objects are converted with `numpy.asarray` first.
#[inline(always)]
pub(crate) fn read_array(array: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    if is_array(array)? {
        // SAFETY: `read_fields` requires an ndarray: the line above has compared the type.
        return unsafe { read_fields(array) };
    }
    let converted = as_array(array)?;
    if is_array(&converted)? {
        // SAFETY: `read_fields` requires an ndarray: the line above has compared the type.
        unsafe { read_fields(&converted) }
    } else {
        Err(crate::errors::not_a_tensor(array))
    }
}

/// The values of a masked array that masks none; `None` if it masks some or has fields, which are masked one by one, and for arrays of
/// other types.
pub(crate) fn unmasked<'py>(array: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyAny>>> {
    let masked = array.py().import("numpy.ma")?;
    if !array.is_instance(&masked.getattr("MaskedArray")?)? {
        return Ok(None);
    }
    let values = array.getattr("data")?;
    let has_fields = !values.getattr("dtype")?.getattr("names")?.is_none();
    let has_masked = has_fields || masked.call_method1("is_masked", (array,))?.is_truthy()?;
    Ok((!has_masked).then_some(values))
}

/// The owner and the writability of an array's memory.
pub(crate) struct ArrayMemory<'py> {
    /// Whether the array's flag `WRITEABLE` is set.
    pub(crate) writable: bool,
    /// The object that owns the memory, if the array does not.
    pub(crate) base: Option<Bound<'py, PyAny>>,
}

/// The owner and the writability of the object's memory, if it is an array.
#[inline]
pub(crate) fn memory_of<'py>(object: &Bound<'py, PyAny>) -> Option<ArrayMemory<'py>> {
    if !is_array(object).is_ok_and(|is_array| is_array) {
        return None;
    }
    // SAFETY: the fields are those of an ndarray, as `is_array` has checked; NumPy's ABI fixes its struct. A base is null, or an
    // object that the array holds, as `from_borrowed_ptr_or_opt` requires.
    unsafe {
        let fields = &raw const (*object.as_ptr().cast::<PyArrayObject>()).fields;
        let writable = (*fields).flags & NPY_ARRAY_WRITEABLE != 0;
        Some(ArrayMemory { writable, base: Bound::from_borrowed_ptr_or_opt(object.py(), (*fields).base) })
    }
}

/// The elements of an array, and the object at the end of the chain of its bases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayRange {
    /// `None` if the array has no elements, rank 0, or an axis with one element or with a stride of 0.
    pub(crate) elements: Option<ElementRange>,
    /// The array itself, if it has no base. The array holds the object as long as its base stays the same.
    pub(crate) root: *mut ffi::PyObject,
    /// Whether the rank is 0.
    pub(crate) is_scalar: bool,
}

/// The range of the object's memory, if it is an array.
#[inline]
pub(crate) fn range_of(object: &Bound<'_, PyAny>) -> Result<Option<ArrayRange>> {
    if !is_array(object)? {
        return Ok(None);
    }
    // SAFETY: the fields are those of an ndarray, as `is_array` has checked; NumPy's ABI fixes its struct, with `nd` numbers at
    // `dimensions` and `strides`. The descriptor is a dtype object that the array holds.
    let (elements, is_scalar) = unsafe {
        let fields = &raw const (*object.as_ptr().cast::<PyArrayObject>()).fields;
        let descr = (*fields).descr.cast::<ffi::PyObject>();
        let item = Bound::ref_from_ptr(object.py(), &descr).cast_unchecked::<PyArrayDescr>().itemsize();
        let axes = (0..(*fields).nd as usize)
            .map(|axis| (*(*fields).dimensions.add(axis) as i64, *(*fields).strides.add(axis) as i64));
        let has_simple_axes =
            (*fields).nd > 0 && axes.clone().all(|(length, stride)| length > 1 && stride != 0);
        let elements = || ElementRange::of_axes((*fields).data as usize, item, axes);
        (has_simple_axes.then(elements).flatten(), (*fields).nd == 0)
    };
    Ok(Some(ArrayRange { elements, root: root(object)?, is_scalar }))
}

/// The object at the end of a chain of bases, which is the array itself if it has no base. The result is borrowed.
#[inline]
fn root(array: &Bound<'_, PyAny>) -> Result<*mut ffi::PyObject> {
    let mut next = array.as_ptr();
    loop {
        // SAFETY: the field is that of an ndarray, as the callers have checked; NumPy's ABI fixes its struct. A base that is not
        // null is an object that the array holds, as `ref_from_ptr` requires.
        let base = unsafe { (*next.cast::<PyArrayObject>()).fields.base };
        if base.is_null() {
            return Ok(next);
        }
        // SAFETY: as above.
        if !is_array(unsafe { Bound::ref_from_ptr(array.py(), &base) })? {
            return Ok(base);
        }
        next = base;
    }
}

/// Reads the C struct of an array.
///
/// # Safety
/// The object is an instance of `ndarray` or of a subclass.
#[inline(always)]
unsafe fn read_fields(array: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = array.py();
    // SAFETY: the fields are those of an ndarray, as the contract of `read_fields` says; NumPy's ABI fixes its struct, with `nd`
    // numbers at `dimensions` and `strides`. The descriptor is a dtype object that the array holds. It is read before the other
    // fields, because resolving an extension dtype may run Python code that changes them; nothing after that does.
    let (data, access, dtype, order, layout) = unsafe {
        let fields = &raw const (*array.as_ptr().cast::<PyArrayObject>()).fields;
        let descr = (*fields).descr.cast::<ffi::PyObject>();
        let (dtype, order) = element_type(Bound::ref_from_ptr(py, &descr).cast_unchecked())
            .map_err(|failure| describe_objects(array, failure))?;
        let rank = (*fields).nd as usize;
        let lengths = |start: *mut isize| match rank {
            0 => &[][..],
            _ => std::slice::from_raw_parts(start.cast::<i64>(), rank),
        };
        let layout =
            Layout::strided(dtype.size(), lengths((*fields).dimensions), lengths((*fields).strides))?;
        let writable = (*fields).flags & NPY_ARRAY_WRITEABLE != 0;
        let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
        ((*fields).data.cast::<u8>(), access, dtype, order, layout)
    };
    let owner = Owner::object(array.clone().unbind());
    // SAFETY: `Tensor::new` requires memory of this layout while the owner lives: NumPy keeps it as long as the array, which the
    // owner holds, and resizes an array with references only on demand (`refcheck=False`). `WRITEABLE` says whether it may be
    // written.
    Ok(unsafe { Tensor::new(data, dtype, layout, Device::CPU, order, access, owner) }?)
}

/// Reads an `ndarray` and keeps its base alive instead of the array itself. A NumPy array created from the result then has no
/// writable base array, through which a user could lift the read-only flag.
#[inline(always)]
pub(crate) fn read_base(array: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let mut tensor = read_array(array)?;
    if !is_array(array)? {
        return Ok(tensor);
    }
    // SAFETY: the field is that of an ndarray, as `is_array` has checked; NumPy's ABI fixes its struct. A base that is not null is an
    // object that the array holds, as `from_borrowed_ptr` requires. NumPy requires of a base that it keeps the memory of its views,
    // as `replace_owner` requires of an owner.
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

/// Creates an `ndarray` over the memory of a tensor.
#[inline(always)]
pub(crate) fn write_array<'py>(py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
    let kind = array_type(py)?.as_type_ptr();
    let descr = descriptor(py, tensor.dtype(), tensor.order())?.into_ptr().cast();
    let layout = tensor.layout();
    let flags = if tensor.access() == Access::ReadWrite { NPY_ARRAY_WRITEABLE } else { 0 };
    // NumPy allocates memory and ignores the flags for a null pointer, which an empty tensor may have.
    let data = if tensor.data().is_null() { EMPTY_DATA.0.as_ptr().cast_mut() } else { tensor.data() };
    // SAFETY: `PyArray_NewFromDescr` requires a descriptor to take, which `into_ptr` gives, and `rank` numbers at shape and
    // strides, which a `Layout` has and which NumPy only reads. It requires memory of that layout, which the base set below keeps
    // alive. It returns a new reference, or null with an exception set.
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
    // SAFETY: `set_base` requires a new ndarray without a base: `PyArray_NewFromDescr` has just created it.
    unsafe { array_struct::set_base(&array, base) }?;
    Ok(array)
}

#[inline(always)]
fn element_type(descr: &Bound<'_, PyArrayDescr>) -> Result<(DType, ByteOrder)> {
    let number = descr.num();
    let order = match descr.byteorder() {
        b'>' if cfg!(target_endian = "little") => ByteOrder::Swapped,
        b'<' if cfg!(target_endian = "big") => ByteOrder::Swapped,
        _ => ByteOrder::Native,
    };
    if let Some(dtype) = usize::try_from(number).ok().and_then(|number| *BY_NUMBER.get(number)?) {
        return Ok((dtype, order));
    }
    // A reference of its own: Python code that runs here may give the array another descriptor.
    extension_type(number, descr.clone().as_any()).map(|dtype| (dtype, order))
}

/// Element types by NumPy's type number, up to float16. `long` and `long long` have the same size on supported systems.
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

/// NumPy's type number of each element type, or -1.
static NUMBERS: [i32; DType::COUNT] = {
    let mut numbers = [-1; DType::COUNT];
    let mut number = BY_NUMBER.len();
    // Downwards, so that `long` takes precedence over `long long`.
    while number > 0 {
        number -= 1;
        if let Some(dtype) = BY_NUMBER[number] {
            numbers[dtype as usize] = number as i32;
        }
    }
    numbers
};

const _: () = assert!(size_of::<std::ffi::c_long>() == 8 && size_of::<isize>() == 8);

/// Type numbers of `ml_dtypes`. NumPy assigns them at registration and never reuses one.
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

/// A hint for arrays of text.
pub(crate) const NUMBER_THE_STRINGS: &str =
    "pass numpy.unique(x, return_inverse=True)[1], which numbers the strings";

/// The hint for an array of objects like this one.
fn hint_for_objects(example: &Bound<'_, PyAny>) -> &'static str {
    let has = |name: &str| example.hasattr(name).unwrap_or(false);
    let name = type_name(example);
    if name.starts_with("uncertainties.") {
        "pass uncertainties.unumpy.nominal_values(x), and uncertainties.unumpy.std_devs(x) separately"
    } else if name == "h5py.h5r.RegionReference" {
        "pass [file[y][y] for y in numpy.ravel(x)], the regions to which they refer"
    } else if name.starts_with("h5py.h5r.") {
        "pass [file[y] for y in numpy.ravel(x)], the datasets to which they refer"
    } else if has("__len__") && has("__getitem__") && !has("keys") && !has("lower") {
        "pass numpy.concatenate(numpy.ravel(x)), or one row at a time"
    } else {
        "pass numpy.asarray(x).astype(\"float64\") for numbers, or \
         numpy.unique(list(map(repr, numpy.ravel(x))), return_inverse=True)[1], which numbers the objects by their repr"
    }
}

/// The error for an array of objects in memory of NumPy, by its first element; `failure` for other arrays, whose memory may hold
/// something else.
#[cold]
fn describe_objects(array: &Bound<'_, PyAny>, failure: Failure) -> Failure {
    let mut root = array.clone();
    while let Some(ArrayMemory { base: Some(base), .. }) = memory_of(&root) {
        root = base;
    }
    let is_of_objects = array.getattr("dtype").and_then(|dtype| dtype.getattr("kind")?.eq("O"));
    if is_of_objects.unwrap_or(false)
        && is_array(&root).unwrap_or(false)
        && let Ok(first) = array.getattr("flat").and_then(|elements| elements.get_item(0))
    {
        let fact = format!("the NumPy array holds objects of type {}", type_name(&first));
        return fail(ErrorKind::UnsupportedDType, fact, hint_for_objects(&first));
    }
    failure
}

/// The hint for a type of bytes or fields.
fn hint_for_void(descr: &Bound<'_, PyAny>) -> &'static str {
    if descr.getattr("itemsize").is_ok_and(|size| size.eq(0).unwrap_or(false)) {
        "pass numpy.zeros(x.shape), because its elements have no bytes"
    } else if descr.getattr("names").is_ok_and(|names| names.is_none()) {
        "pass numpy.ascontiguousarray(x).view(\"uint8\"), which are the bytes"
    } else {
        "pass numpy.asarray(x)[\"name\"], one field at a time; numeric fields are shared"
    }
}

fn unsupported(number: i32, descr: &Bound<'_, PyAny>) -> Failure {
    let hint = match number {
        n if n == NPY_TYPES::NPY_VOID as i32 => hint_for_void(descr),
        n if n == NPY_TYPES::NPY_OBJECT as i32 => {
            // h5py states the type of text, of references, or of the elements of rows.
            let stated = descr
                .getattr("metadata")
                .and_then(|metadata| metadata.get_item("vlen").or_else(|_| metadata.get_item("ref")));
            let example = stated.map(|stated| stated.call0().unwrap_or(stated));
            hint_for_objects(example.as_ref().unwrap_or(descr.py().None().bind(descr.py())))
        }
        n if n == NPY_TYPES::NPY_DATETIME as i32 || n == NPY_TYPES::NPY_TIMEDELTA as i32 => {
            "pass numpy.asarray(x).view(\"int64\"), which shares the ticks"
        }
        n if n == NPY_TYPES::NPY_LONGDOUBLE as i32 => "pass x.astype(\"float64\"), which loses precision",
        n if n == NPY_TYPES::NPY_CLONGDOUBLE as i32 => "pass x.astype(\"complex128\"), which loses precision",
        n if n == NPY_TYPES::NPY_STRING as i32
            || n == NPY_TYPES::NPY_UNICODE as i32
            || n == NPY_TYPES::NPY_VSTRING as i32 =>
        {
            NUMBER_THE_STRINGS
        }
        _ => "convert it to a numeric dtype first",
    };
    fail(
        ErrorKind::UnsupportedDType,
        format!("the NumPy dtype {descr} is not a supported numeric type"),
        hint,
    )
}

/// The descriptor of a type. The C API of NumPy is prepared ([`array_type`]).
#[inline(always)]
fn descriptor(py: Python<'_>, dtype: DType, order: ByteOrder) -> Result<Bound<'_, PyAny>> {
    let native = match NUMBERS[dtype as usize] {
        -1 => extension_descriptor(py, dtype)?,
        // SAFETY: `PyArray_DescrFromType` accepts any number: it returns a new reference, or null with an exception set, as
        // `from_owned_ptr_or_err` requires.
        number => unsafe {
            Bound::from_owned_ptr_or_err(py, PY_ARRAY_API.PyArray_DescrFromType(py, number).cast())
        }?,
    };
    match order {
        ByteOrder::Native => Ok(native),
        ByteOrder::Swapped => Ok(native.call_method1(interned!(py, "newbyteorder"), (interned!(py, "S"),))?),
    }
}

/// The `numpy.dtype` of an element type.
pub(crate) fn dtype_object(py: Python<'_>, dtype: DType) -> Result<Bound<'_, PyAny>> {
    array_type(py)?;
    descriptor(py, dtype, ByteOrder::Native)
}

fn extension_descriptor(py: Python<'_>, dtype: DType) -> Result<Bound<'_, PyAny>> {
    static DESCRIPTORS: [ForkSafeOnce<Py<PyAny>>; DType::COUNT] =
        [const { ForkSafeOnce::new() }; DType::COUNT];
    let descr = DESCRIPTORS[dtype as usize].get_or_try_init(py, || -> Result<_> {
        let class = py.import("ml_dtypes").and_then(|module| module.getattr(dtype.name())).map_err(|_| {
            fail(
                ErrorKind::UnsupportedDType,
                format!("NumPy needs a current ml_dtypes for the dtype {dtype}"),
                "pip install -U ml_dtypes",
            )
        })?;
        Ok(py.import("numpy")?.getattr("dtype")?.call1((class,))?.unbind())
    })?;
    Ok(descr.bind(py).clone())
}

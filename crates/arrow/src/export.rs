//! Exports tensors as columns, and several of them as a table.
//!
//! A struct that is exported owns its strings, its pointers and a reference to the owner of the memory. Consumers may move
//! children out of their parent and release them on any thread, in any order: the owner lives as long as one of them.

use crate::abi::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowSchema, FLAG_NULLABLE};
use crate::hints;
use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use tensorferry_core::device::{Device, DeviceKind};
use tensorferry_core::{ByteOrder, DType, Error, ErrorKind, Layout, Result, Tensor};

/// The error number of a stream that cannot be read.
const INVALID: c_int = 22;

/// A tensor that can be exported as a column: one row for each index of its first axis.
#[derive(Debug)]
pub struct ColumnExport<O> {
    name: CString,
    /// The shape of the elements: the rows first.
    shape: Vec<i64>,
    /// The number of elements of a row.
    row_elements: i32,
    /// The memory of the elements, or of their bits.
    tensor: Tensor<Arc<O>>,
    storage: Storage,
    /// A bit for each row, which is zero for a null.
    validity: Option<Tensor<Arc<O>>>,
}

/// How the elements of a type are stored.
#[derive(Clone, Copy, Debug)]
struct Storage {
    format: &'static str,
    /// Whether the type is an extension type; booleans of a byte each have that of Arrow, other types one of ours.
    is_extension: bool,
}

/// The storage of an element type; `None` if Arrow has none.
fn storage_of(dtype: DType) -> Option<Storage> {
    let format = match dtype {
        DType::Bool | DType::Int8 => "c",
        DType::UInt8 => "C",
        DType::Int16 => "s",
        DType::UInt16 | DType::BFloat16 => "S",
        DType::Int32 => "i",
        DType::UInt32 => "I",
        DType::Int64 => "l",
        DType::UInt64 => "L",
        DType::Float16 => "e",
        DType::Float32 => "f",
        DType::Float64 => "g",
        _ if dtype.is_float8() => "C",
        _ => return None,
    };
    let is_extension = matches!(dtype, DType::Bool | DType::BFloat16) || dtype.is_float8();
    Some(Storage { format, is_extension })
}

/// Whether a tensor has as many bits: dense bytes in host memory.
fn has_bits<O>(bits: &Tensor<O>, count: usize) -> bool {
    let is_readable = bits.device().is_host() && bits.layout().is_dense();
    bits.dtype() == DType::UInt8 && is_readable && count.div_ceil(8) <= bits.layout().count()
}

impl<O: Send + Sync + 'static> ColumnExport<O> {
    /// A column over a dense tensor in host memory or on a CUDA GPU. All work on its values is complete.
    ///
    /// # Errors
    /// When the tensor is not dense, on another device, not in native byte order, has no axis, or has a type or a name that Arrow lacks.
    pub fn new(name: &str, tensor: Tensor<Arc<O>>) -> Result<Self> {
        let is_supported = tensor.device().is_host() || tensor.device().is_cuda();
        if tensor.order() != ByteOrder::Native {
            let fact = "Arrow has native byte order, and the tensor has the opposite one".to_owned();
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_DENSE_COPY));
        }
        if !tensor.layout().is_dense() || !is_supported {
            let fact = "only dense tensors in host memory or on a CUDA GPU can be exported".to_owned();
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_DENSE_COPY));
        }
        let Some(storage) = storage_of(tensor.dtype()) else {
            let fact = format!("Arrow has no type {}", tensor.dtype());
            return Err(Error::new(ErrorKind::UnsupportedDType, fact).with_hint(hints::EXPORT_TYPE));
        };
        let shape = tensor.layout().shape().to_vec();
        Self::with_storage(name, shape, tensor, storage)
    }

    /// A column of Arrow's own booleans. The bits are dense bytes in host memory, of which the lowest bit is the first.
    ///
    /// # Errors
    /// When there are fewer bits than booleans, or the shape or the name cannot be exported.
    pub fn of_bits(name: &str, shape: &[i64], bits: Tensor<Arc<O>>) -> Result<Self> {
        let layout = Layout::dense(DType::Bool.size(), shape)?;
        if !has_bits(&bits, layout.count()) {
            let fact = format!("{} booleans have fewer bits", layout.count());
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_DENSE_COPY));
        }
        Self::with_storage(name, shape.to_vec(), bits, Storage { format: "b", is_extension: false })
    }

    /// A column over memory that was checked.
    fn with_storage(name: &str, shape: Vec<i64>, tensor: Tensor<Arc<O>>, storage: Storage) -> Result<Self> {
        let invalid = |fact: String, hint| Error::new(ErrorKind::InvalidArgument, fact).with_hint(hint);
        let [_, row_shape @ ..] = &shape[..] else {
            return Err(invalid("a tensor without an axis has no rows".to_owned(), hints::EXPORT_ROWS));
        };
        let elements = row_shape.iter().fold(1i64, |product, &length| product.saturating_mul(length));
        let row_elements =
            i32::try_from(if row_shape.contains(&0) { 0 } else { elements }).map_err(|_| {
                let fact =
                    format!("a row has {elements} elements, and a list of Arrow has at most {}", i32::MAX);
                invalid(fact, hints::EXPORT_ROW_SIZE)
            })?;
        let name = CString::new(name).map_err(|_| {
            invalid("the name of a column has a zero byte".to_owned(), hints::EXPORT_NAME_BYTES)
        })?;
        Ok(Self { name, shape, row_elements, tensor, storage, validity: None })
    }

    /// The same column with nulls, where a bit of `bits` is zero. The first row has the lowest bit of the first byte.
    ///
    /// # Errors
    /// When the bits are not dense bytes in host memory, or fewer than the rows.
    pub fn with_validity(self, bits: Tensor<Arc<O>>) -> Result<Self> {
        if !self.device().is_host() || !has_bits(&bits, self.rows() as usize) {
            let fact = "the validity of a column has a bit for each row".to_owned();
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_ROWS));
        }
        Ok(Self { validity: Some(bits), ..self })
    }

    /// The name, for messages.
    fn label(&self) -> Cow<'_, str> {
        self.name.to_string_lossy()
    }

    /// The number of rows.
    pub fn rows(&self) -> i64 {
        self.shape[0]
    }

    /// Where the memory is: on the CPU, or on a GPU.
    pub fn device(&self) -> Device {
        let device = self.tensor.device();
        if device.is_host() { Device::CPU } else { device }
    }

    /// The schema of the column. The caller releases it.
    pub fn schema(&self) -> ArrowSchema {
        let dtype = self.tensor.dtype();
        let extension = match dtype {
            DType::Bool => "arrow.bool8".to_owned(),
            _ => format!("tensorferry.{dtype}"),
        };
        let values = |name: CString| {
            let metadata =
                if self.storage.is_extension { extension_metadata(&extension, "") } else { Vec::new() };
            make_schema(self.storage.format, name, FLAG_NULLABLE, metadata, Vec::new())
        };
        let row_shape = &self.shape[1..];
        if row_shape.is_empty() {
            return values(self.name.clone());
        }
        // The name and the flags are those of pyarrow's own lists, so that their types are equal.
        let item = CString::from(c"item");
        let metadata = match row_shape {
            [_] => Vec::new(),
            _ => extension_metadata("arrow.fixed_shape_tensor", &format!("{{\"shape\":{row_shape:?}}}")),
        };
        let format = format!("+w:{}", self.row_elements);
        make_schema(&format, self.name.clone(), FLAG_NULLABLE, metadata, vec![values(item)])
    }

    /// The array of the column, with its device. The caller releases it.
    pub fn device_array(&self) -> ArrowDeviceArray {
        make_device_array(self.array(), self.device())
    }

    /// The array of the column. The caller releases it.
    pub fn array(&self) -> ArrowArray {
        let data = self.tensor.data().cast_const().cast::<c_void>();
        let bits = self.validity.as_ref().map_or(ptr::null(), |bits| bits.data().cast_const().cast());
        let owner = self.tensor.owner().clone();
        // Consumers may release a child before its parent, so that each struct owns the memory of its own buffers.
        let mut owners: Vec<Arc<O>> = self.validity.iter().map(|bits| bits.owner().clone()).collect();
        // Not counted.
        let null_count = if self.validity.is_some() { -1 } else { 0 };
        // A layout has as many elements, so that the product does not overflow.
        let count = self.rows() * i64::from(self.row_elements);
        match self.shape[..] {
            [_] => {
                owners.push(owner);
                ArrowArray { null_count, ..make_array(count, vec![bits, data], Vec::new(), owners) }
            }
            _ => {
                let values = make_array(count, vec![ptr::null(), data], Vec::new(), vec![owner]);
                ArrowArray { null_count, ..make_array(self.rows(), vec![bits], vec![values], owners) }
            }
        }
    }
}

/// Columns of as many rows each.
#[derive(Debug)]
pub struct TableExport<O> {
    columns: Vec<ColumnExport<O>>,
    device: Device,
}

impl<O: Send + Sync + 'static> TableExport<O> {
    /// A table of these columns.
    ///
    /// # Errors
    /// When two columns have the same name, different numbers of rows, or different devices.
    pub fn new(columns: Vec<ColumnExport<O>>) -> Result<Self> {
        if let Some((first, other)) = columns
            .first()
            .and_then(|first| Some((first, columns.iter().find(|column| column.rows() != first.rows())?)))
        {
            let fact = format!(
                "column '{}' has {} rows and column '{}' has {}",
                first.label(),
                first.rows(),
                other.label(),
                other.rows()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_EQUAL_ROWS));
        }
        let device = columns.first().map_or(Device::CPU, ColumnExport::device);
        if let Some(other) = columns.iter().find(|column| column.device() != device) {
            let fact = format!(
                "column '{}' is on {device} and column '{}' on {}",
                columns[0].label(),
                other.label(),
                other.device()
            );
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_ONE_DEVICE));
        }
        let mut names = HashSet::new();
        if let Some(column) = columns.iter().find(|column| !names.insert(&column.name)) {
            let fact = format!("two columns are named '{}'", column.label());
            return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::EXPORT_UNIQUE_NAMES));
        }
        Ok(Self { columns, device })
    }

    /// Where the memory of all columns is.
    pub fn device(&self) -> Device {
        self.device
    }

    /// The schema of the table: a struct. The caller releases it.
    pub fn schema(&self) -> ArrowSchema {
        let children = self.columns.iter().map(ColumnExport::schema).collect();
        // The rows of a table are not null.
        make_schema("+s", CString::default(), 0, Vec::new(), children)
    }

    /// The array of the table: structs. The caller releases it.
    pub fn array(&self) -> ArrowArray {
        let rows = self.columns.first().map_or(0, ColumnExport::rows);
        let children = self.columns.iter().map(ColumnExport::array).collect();
        make_array::<O>(rows, vec![ptr::null()], children, Vec::new())
    }

    /// The array of the table, with its device. The caller releases it.
    pub fn device_array(&self) -> ArrowDeviceArray {
        make_device_array(self.array(), self.device)
    }

    /// A stream of one array. The caller releases it.
    pub fn stream(self: &Arc<Self>) -> ArrowArrayStream {
        let state = Box::new(StreamState { table: self.clone(), is_over: false });
        ArrowArrayStream {
            get_schema: Some(get_schema::<O>),
            get_next: Some(get_next::<O>),
            get_last_error: Some(get_last_error),
            release: Some(release_stream::<O>),
            private_data: Box::into_raw(state).cast(),
        }
    }
}

struct StreamState<O> {
    table: Arc<TableExport<O>>,
    is_over: bool,
}

/// Metadata with the name of an extension type, and its own metadata.
fn extension_metadata(name: &str, metadata: &str) -> Vec<u8> {
    let mut bytes = 2i32.to_ne_bytes().to_vec();
    for text in ["ARROW:extension:name", name, "ARROW:extension:metadata", metadata] {
        bytes.extend((text.len() as i32).to_ne_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// What an exported schema points to.
struct SchemaMemory {
    format: CString,
    name: CString,
    metadata: Vec<u8>,
    children: Vec<*mut ArrowSchema>,
}

fn make_schema(
    format: &str,
    name: CString,
    flags: i64,
    metadata: Vec<u8>,
    children: Vec<ArrowSchema>,
) -> ArrowSchema {
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let format = CString::new(format).unwrap_or_default();
    let mut memory = Box::new(SchemaMemory { format, name, metadata, children });
    ArrowSchema {
        format: memory.format.as_ptr(),
        name: memory.name.as_ptr(),
        metadata: if memory.metadata.is_empty() { ptr::null() } else { memory.metadata.as_ptr().cast() },
        flags,
        n_children: memory.children.len() as i64,
        children: memory.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(memory).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: consumers release a struct once, and `make_schema` made its private data and its children of boxes. A child whose
    // `release` is null was moved away, and only its box is freed.
    unsafe {
        let memory = Box::from_raw((*schema).private_data.cast::<SchemaMemory>());
        for &child in &memory.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*schema).release = None;
    }
}

/// What an exported array points to.
struct ArrayMemory<O> {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    /// Keep the memory of the buffers alive.
    _owners: Vec<Arc<O>>,
}

fn make_array<O: Send + Sync + 'static>(
    length: i64,
    buffers: Vec<*const c_void>,
    children: Vec<ArrowArray>,
    owners: Vec<Arc<O>>,
) -> ArrowArray {
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut memory = Box::new(ArrayMemory { buffers, children, _owners: owners });
    ArrowArray {
        length,
        null_count: 0,
        offset: 0,
        n_buffers: memory.buffers.len() as i64,
        n_children: memory.children.len() as i64,
        buffers: memory.buffers.as_mut_ptr(),
        children: memory.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array::<O>),
        private_data: Box::into_raw(memory).cast(),
    }
}

/// The array with its device. It needs no event, because the values of a column are complete.
fn make_device_array(array: ArrowArray, device: Device) -> ArrowDeviceArray {
    let device_id = if device.kind == DeviceKind::Cpu { -1 } else { i64::from(device.index) };
    ArrowDeviceArray {
        array,
        device_id,
        device_type: device.kind as i32,
        sync_event: ptr::null_mut(),
        reserved: [0; 3],
    }
}

unsafe extern "C" fn release_array<O>(array: *mut ArrowArray) {
    // SAFETY: as in `release_schema`, for `make_array`.
    unsafe {
        let memory = Box::from_raw((*array).private_data.cast::<ArrayMemory<O>>());
        for &child in &memory.children {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*array).release = None;
    }
}

unsafe extern "C" fn get_schema<O: Send + Sync + 'static>(
    stream: *mut ArrowArrayStream,
    out: *mut ArrowSchema,
) -> c_int {
    if stream.is_null() || out.is_null() {
        return INVALID;
    }
    // SAFETY: consumers pass a stream that is not released, whose private data `TableExport::stream` made, and a struct to write.
    unsafe {
        let state = &*(*stream).private_data.cast::<StreamState<O>>();
        out.write(state.table.schema());
    }
    0
}

unsafe extern "C" fn get_next<O: Send + Sync + 'static>(
    stream: *mut ArrowArrayStream,
    out: *mut ArrowArray,
) -> c_int {
    if stream.is_null() || out.is_null() {
        return INVALID;
    }
    // SAFETY: as in `get_schema`. The callbacks of a stream are not called concurrently.
    unsafe {
        let state = &mut *(*stream).private_data.cast::<StreamState<O>>();
        let array = if state.is_over { ArrowArray::released() } else { state.table.array() };
        state.is_over = true;
        out.write(array);
    }
    0
}

unsafe extern "C" fn get_last_error(_stream: *mut ArrowArrayStream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream<O>(stream: *mut ArrowArrayStream) {
    // SAFETY: consumers release a stream once, and `TableExport::stream` made its private data of a box.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<StreamState<O>>()));
        (*stream).release = None;
    }
}

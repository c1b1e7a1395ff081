//! The CUDA driver: its functions, loaded at run time, each returning a `Result`.
//!
//! - A machine without CUDA is an ordinary machine: [`Driver::get`] returns an error with a hint, and nothing panics.
//! - A function that only newer drivers have is optional. Its method returns `None` where the driver lacks it.
//! - Every status other than success becomes an [`Error`] that quotes the driver's own description.
//! - A function is safe to call if the driver checks its numbers and the types of its other arguments uphold the rest:
//!   `handles` has the types of driver objects, `arguments` says which C argument each type becomes. Calls without a current
//!   context, or with a stream of another GPU, are errors. The functions that access or unmap memory are unsafe.
//!
//! # Rejected
//!
//! - cudarc, the usual crate for this. It panics where a library or a symbol is missing. Its statuses are a Rust enum, so
//!   reading an unknown status of a newer driver is undefined behaviour. Its library is a process-wide global, so a test
//!   cannot replace it. Of its six hundred functions this crate needs sixty.
//! - Linking to the driver: the wheel must import on machines that have none.

use crate::abi::{AccessDescription, AllocationProperties, IpcHandle, PointerAttribute};
use crate::hints;
use crate::status::{self, Status};
use crate::stream::Stream;
use arguments::{Argument, LookupAddress, One};
use handles::{
    Address, ContextHandle, DeviceMemory, EventHandle, FunctionHandle, ModuleHandle, PhysicalHandle,
};
use libloading::Library;
use once_cell::race::OnceBox;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::{Error, ErrorKind, Result};

pub(crate) mod arguments;
pub(crate) mod handles;

/// Declares the function table: for each symbol its C signature, and the method that calls it.
///
/// - `statuses`: safe methods that return the status, because one other than success may be their result.
/// - `required` and `optional`: safe methods that turn the status into a result. Their arguments are types of `arguments`,
///   which meet the function's contract.
/// - `memory` and `optional_memory`: unsafe methods, of functions that access, pin or unmap memory that the caller describes.
macro_rules! functions {
    (
        statuses { $($query:ident = $query_symbol:literal ($($query_argument:ident: $query_kind:ty),*);)* }
        required { $($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*);)* }
        optional { $($optional:ident = $optional_symbol:literal ($($optional_argument:ident: $optional_kind:ty),*);)* }
        memory { $($raw:ident = $raw_symbol:literal ($($raw_argument:ident: $raw_kind:ty),*);)* }
        optional_memory {
            $($unmap:ident = $unmap_symbol:literal ($($unmap_argument:ident: $unmap_kind:ty),*);)*
        }
    ) => {
        struct Table {
            $($query: unsafe extern "C" fn($(<$query_kind as Argument>::Raw),*) -> c_int,)*
            $($name: unsafe extern "C" fn($(<$kind as Argument>::Raw),*) -> c_int,)*
            $($optional: Option<unsafe extern "C" fn($(<$optional_kind as Argument>::Raw),*) -> c_int>,)*
            $($raw: unsafe extern "C" fn($($raw_kind),*) -> c_int,)*
            $($unmap: Option<unsafe extern "C" fn($($unmap_kind),*) -> c_int>,)*
        }

        impl Table {
            /// # Safety
            /// The library is the CUDA driver, or one that keeps its contract.
            unsafe fn find(library: &Library) -> Result<Self, &'static CStr> {
                // SAFETY: `Library::get` needs the type of each symbol. The lists below repeat the signatures of `cuda.h`,
                // and this function's contract says that the library has them. `Driver` owns the library beside the
                // table, so the functions stay loaded while the table is used.
                unsafe {
                    Ok(Self {
                        $($query: *library.get($query_symbol.to_bytes()).map_err(|_| $query_symbol)?,)*
                        $($name: *library.get($symbol.to_bytes()).map_err(|_| $symbol)?,)*
                        $($optional: library.get($optional_symbol.to_bytes()).ok().map(|symbol| *symbol),)*
                        $($raw: *library.get($raw_symbol.to_bytes()).map_err(|_| $raw_symbol)?,)*
                        $($unmap: library.get($unmap_symbol.to_bytes()).ok().map(|symbol| *symbol),)*
                    })
                }
            }
        }

        impl Driver {
            $(
                #[doc = concat!("Calls `", stringify!($query_symbol), "`.")]
                fn $query(&self, $($query_argument: $query_kind),*) -> Status {
                    // SAFETY: the driver trusts pointers and handles: each is an `Argument`, which is valid for the call.
                    Status(unsafe { (self.table.$query)($($query_argument.raw()),*) })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                pub(crate) fn $name(&self, $($argument: $kind),*) -> Result<()> {
                    // SAFETY: the driver trusts pointers and handles: each is an `Argument`, which is valid for the call.
                    self.check($symbol, unsafe { (self.table.$name)($($argument.raw()),*) })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($optional_symbol), "`; `None` where the driver lacks the function.")]
                pub(crate) fn $optional(&self, $($optional_argument: $optional_kind),*) -> Option<Result<()>> {
                    let function = self.table.$optional?;
                    // SAFETY: the driver trusts pointers and handles: each is an `Argument`, which is valid for the call.
                    Some(self.check($optional_symbol, unsafe { function($($optional_argument.raw()),*) }))
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($raw_symbol), "`.")]
                ///
                /// # Safety
                /// The arguments meet the contract in the driver's documentation. Memory that they describe stays valid until
                /// the call returns or, if it takes a stream, until the stream has passed the work.
                #[allow(clippy::too_many_arguments, clippy::allow_attributes, reason = "the signature is the driver's")]
                pub(crate) unsafe fn $raw(&self, $($raw_argument: $raw_kind),*) -> Result<()> {
                    // SAFETY: this method's contract is that of the driver's function.
                    self.check($raw_symbol, unsafe { (self.table.$raw)($($raw_argument),*) })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($unmap_symbol), "`; `None` where the driver lacks the function.")]
                ///
                /// # Safety
                /// The caller mapped or reserved exactly this range, and nothing uses it any more.
                pub(crate) unsafe fn $unmap(&self, $($unmap_argument: $unmap_kind),*) -> Option<Result<()>> {
                    let function = self.table.$unmap?;
                    // SAFETY: the range and its end of use are this method's contract.
                    Some(self.check($unmap_symbol, unsafe { function($($unmap_argument),*) }))
                }
            )*
        }
    };
}

functions! {
    statuses {
        error_name = c"cuGetErrorName"(status: c_int, text: &mut *const c_char);
        error_text = c"cuGetErrorString"(status: c_int, text: &mut *const c_char);
        stream_query = c"cuStreamQuery"(stream: Stream);
        event_query = c"cuEventQuery"(event: &EventHandle);
        stream_capture = c"cuStreamIsCapturing"(stream: Stream, state: &mut c_int);
        context_synchronise = c"cuCtxSynchronize"();
    }
    required {
        init = c"cuInit"(flags: c_uint);
        device_count = c"cuDeviceGetCount"(count: &mut c_int);
        device = c"cuDeviceGet"(ordinal: &mut c_int, index: c_int);
        retain_context = c"cuDevicePrimaryCtxRetain"(context: &mut ContextHandle, ordinal: c_int);
        push_context = c"cuCtxPushCurrent_v2"(context: ContextHandle);
        pop_context = c"cuCtxPopCurrent_v2"(context: &mut usize);
        current_context = c"cuCtxGetCurrent"(context: &mut usize);
        synchronise_context = c"cuCtxSynchronize"();
        stream_create = c"cuStreamCreate"(stream: &mut usize, flags: c_uint);
        stream_synchronise = c"cuStreamSynchronize"(stream: Stream);
        stream_wait = c"cuStreamWaitEvent"(stream: Stream, event: &EventHandle, flags: c_uint);
        capture_mode = c"cuThreadExchangeStreamCaptureMode"(mode: &mut c_int);
        event_create = c"cuEventCreate"(event: &mut EventHandle, flags: c_uint);
        event_record = c"cuEventRecord"(event: &EventHandle, stream: Stream);
        event_synchronise = c"cuEventSynchronize"(event: &EventHandle);
        event_destroy = c"cuEventDestroy_v2"(event: EventHandle);
        memory_info = c"cuMemGetInfo_v2"(free: &mut usize, total: &mut usize);
        allocate = c"cuMemAlloc_v2"(memory: &mut DeviceMemory, bytes: usize);
        free = c"cuMemFree_v2"(memory: DeviceMemory);
        function = c"cuModuleGetFunction"(function: &mut FunctionHandle, module: ModuleHandle, name: &CStr);
    }
    optional {
        // Stream-ordered allocation, for devices with memory pools.
        allocate_ordered = c"cuMemAllocAsync"(memory: &mut DeviceMemory, bytes: usize, stream: Stream);
        free_ordered = c"cuMemFreeAsync"(memory: DeviceMemory, stream: Stream);
        // CUDA 12.5 and later.
        record_context = c"cuCtxRecordEvent"(context: ContextHandle, event: &EventHandle);
        wait_context = c"cuCtxWaitEvent"(context: ContextHandle, event: &EventHandle);
        // Memory and events that several processes use.
        uuid = c"cuDeviceGetUuid_v2"(uuid: &mut [u8; 16], ordinal: c_int);
        legacy_uuid = c"cuDeviceGetUuid"(uuid: &mut [u8; 16], ordinal: c_int);
        device_attribute = c"cuDeviceGetAttribute"(value: &mut c_int, which: c_int, ordinal: c_int);
        address_range = c"cuMemGetAddressRange_v2"(base: &mut Address, bytes: &mut usize, address: Address);
        legacy_export = c"cuIpcGetMemHandle"(handle: &mut IpcHandle, address: Address);
        legacy_open = c"cuIpcOpenMemHandle_v2"(memory: &mut DeviceMemory, handle: IpcHandle, flags: c_uint);
        legacy_close = c"cuIpcCloseMemHandle"(memory: DeviceMemory);
        event_export = c"cuIpcGetEventHandle"(handle: &mut IpcHandle, event: &EventHandle);
        event_open = c"cuIpcOpenEventHandle"(event: &mut EventHandle, handle: IpcHandle);
        allocation_granularity = c"cuMemGetAllocationGranularity"(
            bytes: &mut usize, properties: &AllocationProperties, which: c_int
        );
        create_memory = c"cuMemCreate"(
            handle: &mut PhysicalHandle, bytes: usize, properties: &AllocationProperties, flags: u64
        );
        release_memory = c"cuMemRelease"(handle: PhysicalHandle);
        reserve_address = c"cuMemAddressReserve"(
            addresses: &mut Address, bytes: usize, alignment: usize, hint: Address, flags: u64
        );
        // The driver rejects a range that is not reserved, or where something is mapped.
        map_memory = c"cuMemMap"(address: Address, bytes: usize, offset: usize, handle: &PhysicalHandle, flags: u64);
        set_access = c"cuMemSetAccess"(address: Address, bytes: usize, access: &AccessDescription, count: One);
        retain_memory = c"cuMemRetainAllocationHandle"(handle: &mut PhysicalHandle, address: LookupAddress);
        memory_properties = c"cuMemGetAllocationPropertiesFromHandle"(
            properties: &mut AllocationProperties, handle: &PhysicalHandle
        );
        export_memory = c"cuMemExportToShareableHandle"(
            descriptor: &mut Option<OwnedFd>, handle: &PhysicalHandle, kind: c_int, flags: u64
        );
        import_memory = c"cuMemImportFromShareableHandle"(
            handle: &mut PhysicalHandle, descriptor: BorrowedFd<'_>, kind: c_int
        );
    }
    memory {
        register = c"cuMemHostRegister_v2"(data: *mut c_void, bytes: usize, flags: c_uint);
        unregister = c"cuMemHostUnregister"(data: *mut c_void);
        download = c"cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: Address, bytes: usize, stream: *mut c_void);
        upload = c"cuMemcpyHtoDAsync_v2"(to: Address, from: *const c_void, bytes: usize, stream: *mut c_void);
        copy = c"cuMemcpyDtoDAsync_v2"(to: Address, from: Address, bytes: usize, stream: *mut c_void);
        copy_to_peer = c"cuMemcpyPeerAsync"(
            to: Address, to_context: *mut c_void, from: Address, from_context: *mut c_void, bytes: usize,
            stream: *mut c_void
        );
        pointer_attributes = c"cuPointerGetAttributes"(
            count: c_uint, which: *const PointerAttribute, into: *mut *mut c_void, address: Address
        );
        load_module = c"cuModuleLoadData"(module: *mut ModuleHandle, image: *const c_void);
        launch = c"cuLaunchKernel"(
            function: *mut c_void, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
            block_y: c_uint, block_z: c_uint, shared: c_uint, stream: *mut c_void, arguments: *mut *mut c_void,
            extra: *mut *mut c_void
        );
    }
    optional_memory {
        unmap_memory = c"cuMemUnmap"(address: Address, bytes: usize);
        free_address = c"cuMemAddressFree"(address: Address, bytes: usize);
    }
}

/// Whether this process is a forked child of one that loaded the driver: CUDA does not survive a fork. An `atfork` handler
/// sets the flag, because comparing process ids would cost a system call for every share.
static FORKED: AtomicBool = AtomicBool::new(false);
static LOADED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Stops all use of the driver in a forked child, if the driver was used before the fork. For `atfork` handlers of other
/// crates that release GPU memory: they may run before the handler of this crate.
pub fn after_fork() {
    if LOADED.load(Ordering::Relaxed) {
        note_fork();
    }
}

/// The result of a call of an optional function, or an error where the driver lacks it.
pub(crate) fn require(name: &str, called: Option<Result<()>>) -> Result<()> {
    called.unwrap_or_else(|| {
        Err(Error::new(
            ErrorKind::UnsupportedDevice,
            format!("the CUDA driver is too old: {name} is missing"),
        )
        .with_hint(hints::UPDATE_DRIVER))
    })
}

/// The driver, loaded and initialised.
pub struct Driver {
    table: Table,
    /// Keeps the functions of the table loaded.
    _library: Library,
}

impl Driver {
    /// The driver of this machine, loaded by the first call.
    ///
    /// # Errors
    /// Where the driver is missing or cannot be initialised, and in a forked child of a process that used it.
    pub fn get() -> Result<&'static Self> {
        // `OnceBox` never blocks. A blocking cell would hang a child that is forked while another thread loads.
        static DRIVER: OnceBox<Result<Driver>> = OnceBox::new();
        let driver = DRIVER.get_or_init(|| Box::new(Self::load(&["libcuda.so.1", "libcuda.so"])));
        let driver = driver.as_ref().map_err(Error::clone)?;
        if FORKED.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::UnsupportedDevice,
                "CUDA cannot be used in a forked child of a process that has used it",
            )
            .with_hint(hints::SPAWN_CHILD));
        }
        Ok(driver)
    }

    /// The driver in the first of these libraries that can be loaded.
    fn load(names: &[&str]) -> Result<Self> {
        let missing =
            |fact: String| Error::new(ErrorKind::UnsupportedDevice, fact).with_hint(hints::INSTALL_DRIVER);
        // SAFETY: `Library::new` runs the initialisers of the library. Those of `libcuda` may run on any thread at any time.
        let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let library = library.ok_or_else(|| missing("this machine has no CUDA driver".into()))?;
        // SAFETY: `Table::find` needs the CUDA driver. The names are those of the driver, which the machine's owner installs.
        let table = unsafe { Table::find(&library) }.map_err(|symbol| {
            missing(format!("the CUDA driver is too old: {} is missing", symbol.to_string_lossy()))
        })?;
        let driver = Self { table, _library: library };
        LOADED.store(true, Ordering::Relaxed);
        // SAFETY: a child of a process with threads may call only async-signal-safe functions. `note_fork` calls none: it
        // stores to an atomic. This library is never unloaded, so the handler stays valid.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        driver.init(0).map_err(|error| {
            missing(format!("CUDA cannot be initialised on this machine: {}", error.fact()))
        })?;
        Ok(driver)
    }

    /// Creates a stream that is never destroyed.
    pub(crate) fn create_stream(&self, flags: c_uint) -> Result<Stream> {
        let mut handle = 0;
        self.stream_create(&mut handle, flags)?;
        // SAFETY: `cuStreamCreate` returned the handle, and this crate never calls `cuStreamDestroy`, so the stream is alive
        // for as long as any copy of the result.
        Ok(unsafe { Stream::from_handle(handle) })
    }

    /// Whether all work queued on a stream is complete.
    pub(crate) fn is_stream_idle(&self, stream: Stream) -> Result<bool> {
        match self.stream_query(stream) {
            Status::NOT_READY => Ok(false),
            Status(status) => self.check(c"cuStreamQuery", status).map(|()| true),
        }
    }

    /// Whether the work that an event recorded is complete. An event that was never recorded is complete.
    pub(crate) fn is_event_complete(&self, event: &EventHandle) -> Result<bool> {
        match self.event_query(event) {
            Status::NOT_READY => Ok(false),
            Status(status) => self.check(c"cuEventQuery", status).map(|()| true),
        }
    }

    /// Whether a stream is being captured into a graph. The default stream never is, even while a capture on another
    /// stream forbids the query.
    pub(crate) fn is_stream_captured(&self, stream: Stream) -> Result<bool> {
        let mut state = 0;
        match self.stream_capture(stream, &mut state) {
            Status::CAPTURE_IMPLICIT => Ok(false),
            Status(status) => self.check(c"cuStreamIsCapturing", status).map(|()| state != 0),
        }
    }

    /// Waits until all work that this process has queued in the current context is complete or has failed. Returns false if
    /// a captured stream forbids the wait.
    pub(crate) fn settle_context(&self) -> bool {
        !self.context_synchronise().is_capture_error()
    }

    /// The values of some attributes of an address, which may be any number. The driver knows no device memory at an address
    /// of the host.
    pub(crate) fn query_address<const COUNT: usize>(
        &self,
        attributes: [PointerAttribute; COUNT],
        address: Address,
    ) -> Result<[u64; COUNT]> {
        // Some attributes are shorter than eight bytes; the other bytes stay zero.
        let mut values = [0u64; COUNT];
        let mut into = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        // SAFETY: `cuPointerGetAttributes` reads `COUNT` attributes and `COUNT` pointers, the lengths of both arrays. It
        // writes at most eight bytes through each, which is the size of a value and the limit of `PointerAttribute`. It
        // looks the address up and does not dereference it.
        unsafe {
            self.pointer_attributes(COUNT as c_uint, attributes.as_ptr(), into.as_mut_ptr(), address)?;
        }
        Ok(values)
    }

    fn check(&self, symbol: &'static CStr, status: c_int) -> Result<()> {
        match Status(status) {
            Status::SUCCESS => Ok(()),
            status => Err(status::error(symbol, status, &self.describe(status))),
        }
    }

    /// The driver's name and description of a status.
    fn describe(&self, Status(status): Status) -> String {
        let text_of = |query: fn(&Self, c_int, &mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            let is_known = query(self, status, &mut text) == Status::SUCCESS && !text.is_null();
            // SAFETY: `CStr::from_ptr` needs a string that ends with NUL and is not freed. On success `cuGetErrorName` and
            // `cuGetErrorString` return the address of a constant string of the driver, which `self` keeps loaded.
            is_known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        match (text_of(Self::error_name), text_of(Self::error_text)) {
            (Some(name), Some(text)) => format!("{name}: {text}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => format!("error {status}"),
        }
    }
}

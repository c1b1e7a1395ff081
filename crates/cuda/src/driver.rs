//! The CUDA driver: its functions, loaded at run time, each returning a `Result`.
//!
//! - A machine without CUDA is an ordinary machine: [`Driver::get`] returns an error with a hint, and nothing panics.
//! - A function that only newer drivers have is optional. Its method returns `None` where the driver lacks it.
//! - Every status other than success becomes an [`Error`] that quotes the driver's own description.
//!
//! # Rejected
//!
//! - cudarc, the usual crate for this. It panics where a library or a symbol is missing. Its statuses are a Rust enum, so
//!   reading an unknown status of a newer driver is undefined behaviour. Its library is a process-wide global, so a test
//!   cannot replace it. Of its six hundred functions this crate needs sixty.
//! - Linking to the driver: the wheel must import on machines that have none.

use crate::abi::{AccessDescription, AllocationProperties, IpcHandle};
use crate::hints;
use crate::status::{self, Status};
use libloading::Library;
use once_cell::race::OnceBox;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::{Error, ErrorKind, Result};

/// `CUdevice`: the ordinal of a device.
pub(crate) type DeviceOrdinal = c_int;
/// `CUcontext`.
pub(crate) type ContextHandle = *mut c_void;
/// `CUstream`; null is the default stream.
pub(crate) type StreamHandle = *mut c_void;
/// `CUevent`.
pub(crate) type EventHandle = *mut c_void;
/// `CUmodule`.
pub(crate) type ModuleHandle = *mut c_void;
/// `CUfunction`: a kernel.
pub(crate) type FunctionHandle = *mut c_void;
/// `CUdeviceptr`.
pub(crate) type Address = u64;

/// Declares the function table: for each symbol its signature, and the method that calls it and turns its status into a
/// result. The functions under `queries` have no such method, because a status other than success may be their result.
macro_rules! functions {
    (
        queries { $($raw:ident = $raw_symbol:literal ($($raw_kind:ty),*);)* }
        required { $($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*);)* }
        optional { $($optional:ident = $optional_symbol:literal ($($optional_argument:ident: $optional_kind:ty),*);)* }
    ) => {
        struct Table {
            $($raw: unsafe extern "C" fn($($raw_kind),*) -> c_int,)*
            $($name: unsafe extern "C" fn($($kind),*) -> c_int,)*
            $($optional: Option<unsafe extern "C" fn($($optional_kind),*) -> c_int>,)*
        }

        impl Table {
            /// # Safety
            /// The library is the CUDA driver, or one that keeps its contract.
            unsafe fn find(library: &Library) -> Result<Self, &'static CStr> {
                // SAFETY: the caller vouches that the symbols are functions of these types. `Driver` owns the
                // library beside the table, so the library stays loaded while the table is used.
                unsafe {
                    Ok(Self {
                        $($raw: *library.get($raw_symbol.to_bytes()).map_err(|_| $raw_symbol)?,)*
                        $($name: *library.get($symbol.to_bytes()).map_err(|_| $symbol)?,)*
                        $($optional: library.get($optional_symbol.to_bytes()).ok().map(|symbol| *symbol),)*
                    })
                }
            }
        }

        impl Driver {
            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                ///
                /// # Safety
                /// The arguments meet the contract in the driver's documentation.
                #[allow(clippy::too_many_arguments, clippy::allow_attributes, reason = "the signature is the driver's")]
                pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> Result<()> {
                    // SAFETY: the caller's contract.
                    self.check($symbol, unsafe { (self.table.$name)($($argument),*) })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($optional_symbol), "`; `None` where the driver lacks the function.")]
                ///
                /// # Safety
                /// The arguments meet the contract in the driver's documentation.
                pub(crate) unsafe fn $optional(&self, $($optional_argument: $optional_kind),*) -> Option<Result<()>> {
                    let function = self.table.$optional?;
                    // SAFETY: the caller's contract.
                    Some(self.check($optional_symbol, unsafe { function($($optional_argument),*) }))
                }
            )*
        }
    };
}

functions! {
    queries {
        error_name = c"cuGetErrorName"(c_int, *mut *const c_char);
        error_text = c"cuGetErrorString"(c_int, *mut *const c_char);
        stream_query = c"cuStreamQuery"(StreamHandle);
        event_query = c"cuEventQuery"(EventHandle);
        stream_capture = c"cuStreamIsCapturing"(StreamHandle, *mut c_int);
        context_synchronise = c"cuCtxSynchronize"();
    }
    required {
        init = c"cuInit"(flags: c_uint);
        device_count = c"cuDeviceGetCount"(count: *mut c_int);
        device = c"cuDeviceGet"(device: *mut DeviceOrdinal, index: c_int);
        retain_context = c"cuDevicePrimaryCtxRetain"(context: *mut ContextHandle, device: DeviceOrdinal);
        push_context = c"cuCtxPushCurrent_v2"(context: ContextHandle);
        pop_context = c"cuCtxPopCurrent_v2"(context: *mut ContextHandle);
        current_context = c"cuCtxGetCurrent"(context: *mut ContextHandle);
        synchronise_context = c"cuCtxSynchronize"();
        stream_create = c"cuStreamCreate"(stream: *mut StreamHandle, flags: c_uint);
        stream_synchronise = c"cuStreamSynchronize"(stream: StreamHandle);
        stream_wait = c"cuStreamWaitEvent"(stream: StreamHandle, event: EventHandle, flags: c_uint);
        capture_mode = c"cuThreadExchangeStreamCaptureMode"(mode: *mut c_int);
        event_create = c"cuEventCreate"(event: *mut EventHandle, flags: c_uint);
        event_record = c"cuEventRecord"(event: EventHandle, stream: StreamHandle);
        event_synchronise = c"cuEventSynchronize"(event: EventHandle);
        event_destroy = c"cuEventDestroy_v2"(event: EventHandle);
        memory_info = c"cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
        allocate = c"cuMemAlloc_v2"(address: *mut Address, bytes: usize);
        free = c"cuMemFree_v2"(address: Address);
        register = c"cuMemHostRegister_v2"(data: *mut c_void, bytes: usize, flags: c_uint);
        unregister = c"cuMemHostUnregister"(data: *mut c_void);
        download = c"cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: Address, bytes: usize, stream: StreamHandle);
        upload = c"cuMemcpyHtoDAsync_v2"(to: Address, from: *const c_void, bytes: usize, stream: StreamHandle);
        copy = c"cuMemcpyDtoDAsync_v2"(to: Address, from: Address, bytes: usize, stream: StreamHandle);
        copy_to_peer = c"cuMemcpyPeerAsync"(
            to: Address, to_context: ContextHandle, from: Address, from_context: ContextHandle, bytes: usize,
            stream: StreamHandle
        );
        pointer_attributes = c"cuPointerGetAttributes"(
            count: c_uint, which: *const c_int, into: *const *mut c_void, address: Address
        );
        load_module = c"cuModuleLoadData"(module: *mut ModuleHandle, image: *const c_void);
        function = c"cuModuleGetFunction"(function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char);
        launch = c"cuLaunchKernel"(
            function: FunctionHandle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint,
            block_y: c_uint, block_z: c_uint, shared: c_uint, stream: StreamHandle, arguments: *mut *mut c_void,
            extra: *mut *mut c_void
        );
    }
    optional {
        // Stream-ordered allocation, for devices with memory pools.
        allocate_ordered = c"cuMemAllocAsync"(address: *mut Address, bytes: usize, stream: StreamHandle);
        free_ordered = c"cuMemFreeAsync"(address: Address, stream: StreamHandle);
        // CUDA 12.5 and later.
        record_context = c"cuCtxRecordEvent"(context: ContextHandle, event: EventHandle);
        wait_context = c"cuCtxWaitEvent"(context: ContextHandle, event: EventHandle);
        // Memory and events that several processes use.
        uuid = c"cuDeviceGetUuid_v2"(uuid: *mut [u8; 16], device: DeviceOrdinal);
        legacy_uuid = c"cuDeviceGetUuid"(uuid: *mut [u8; 16], device: DeviceOrdinal);
        device_attribute = c"cuDeviceGetAttribute"(value: *mut c_int, which: c_int, device: DeviceOrdinal);
        address_range = c"cuMemGetAddressRange_v2"(base: *mut Address, bytes: *mut usize, address: Address);
        legacy_export = c"cuIpcGetMemHandle"(handle: *mut IpcHandle, address: Address);
        legacy_open = c"cuIpcOpenMemHandle_v2"(address: *mut Address, handle: IpcHandle, flags: c_uint);
        legacy_close = c"cuIpcCloseMemHandle"(address: Address);
        event_export = c"cuIpcGetEventHandle"(handle: *mut IpcHandle, event: EventHandle);
        event_open = c"cuIpcOpenEventHandle"(event: *mut EventHandle, handle: IpcHandle);
        allocation_granularity = c"cuMemGetAllocationGranularity"(bytes: *mut usize, properties: *const AllocationProperties, which: c_int);
        create_memory = c"cuMemCreate"(handle: *mut u64, bytes: usize, properties: *const AllocationProperties, flags: u64);
        release_memory = c"cuMemRelease"(handle: u64);
        reserve_address = c"cuMemAddressReserve"(
            address: *mut Address, bytes: usize, alignment: usize, hint: Address, flags: u64
        );
        free_address = c"cuMemAddressFree"(address: Address, bytes: usize);
        map_memory = c"cuMemMap"(address: Address, bytes: usize, offset: usize, handle: u64, flags: u64);
        unmap_memory = c"cuMemUnmap"(address: Address, bytes: usize);
        set_access = c"cuMemSetAccess"(address: Address, bytes: usize, access: *const AccessDescription, count: usize);
        retain_memory = c"cuMemRetainAllocationHandle"(handle: *mut u64, address: *mut c_void);
        memory_properties = c"cuMemGetAllocationPropertiesFromHandle"(into: *mut AllocationProperties, handle: u64);
        export_memory = c"cuMemExportToShareableHandle"(into: *mut c_int, handle: u64, kind: c_int, flags: u64);
        import_memory = c"cuMemImportFromShareableHandle"(handle: *mut u64, descriptor: *mut c_void, kind: c_int);
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
        // SAFETY: loading the driver runs its initialisers, which is what every CUDA program does.
        let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let library = library.ok_or_else(|| missing("this machine has no CUDA driver".into()))?;
        // SAFETY: a library with this name is the driver.
        let table = unsafe { Table::find(&library) }.map_err(|symbol| {
            missing(format!("the CUDA driver is too old: {} is missing", symbol.to_string_lossy()))
        })?;
        let driver = Self { table, _library: library };
        LOADED.store(true, Ordering::Relaxed);
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        // SAFETY: `cuInit` may be called at any time; its flags must be 0.
        unsafe { driver.init(0) }.map_err(|error| {
            missing(format!("CUDA cannot be initialised on this machine: {}", error.fact()))
        })?;
        Ok(driver)
    }

    /// Whether all work queued on a stream is complete.
    ///
    /// # Safety
    /// The stream is alive, and of the current context or a default one.
    pub(crate) unsafe fn is_stream_idle(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the caller's contract.
        match Status(unsafe { (self.table.stream_query)(stream) }) {
            Status::NOT_READY => Ok(false),
            Status(status) => self.check(c"cuStreamQuery", status).map(|()| true),
        }
    }

    /// Whether the work that an event recorded is complete.
    ///
    /// # Safety
    /// The event is alive, and of the current context.
    pub(crate) unsafe fn is_event_complete(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: the caller's contract.
        match Status(unsafe { (self.table.event_query)(event) }) {
            Status::NOT_READY => Ok(false),
            Status(status) => self.check(c"cuEventQuery", status).map(|()| true),
        }
    }

    /// Whether a stream is being captured into a graph. The default stream never is, even while a capture on another
    /// stream forbids the query.
    ///
    /// # Safety
    /// As [`Driver::is_stream_idle`].
    pub(crate) unsafe fn is_stream_captured(&self, stream: StreamHandle) -> Result<bool> {
        let mut state = 0;
        // SAFETY: the caller's contract, and a place for the answer.
        match Status(unsafe { (self.table.stream_capture)(stream, &raw mut state) }) {
            Status::CAPTURE_IMPLICIT => Ok(false),
            Status(status) => self.check(c"cuStreamIsCapturing", status).map(|()| state != 0),
        }
    }

    /// Waits until all work that this process has queued in the current context is complete or has failed. Returns false if
    /// a captured stream forbids the wait.
    pub(crate) fn settle_context(&self) -> bool {
        // SAFETY: the function has no arguments; the caller has entered a context.
        !Status(unsafe { (self.table.context_synchronise)() }).is_capture_error()
    }

    fn check(&self, symbol: &'static CStr, status: c_int) -> Result<()> {
        match Status(status) {
            Status::SUCCESS => Ok(()),
            status => Err(status::error(symbol, status, &self.describe(status))),
        }
    }

    /// The driver's name and description of a status.
    fn describe(&self, Status(status): Status) -> String {
        let text_of = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: the driver writes the address of a constant string, or nothing.
            unsafe {
                let known = function(status, &raw mut text) == Status::SUCCESS.0 && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        match (text_of(self.table.error_name), text_of(self.table.error_text)) {
            (Some(name), Some(text)) => format!("{name}: {text}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => format!("error {status}"),
        }
    }
}

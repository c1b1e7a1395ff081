//! The ground floor: the driver's functions, found at run time, each returning a `Result`.
//!
//! # What it promises
//!
//! A machine without CUDA is an ordinary machine: [`Driver::get`] returns an error with a hint, and nothing panics. A
//! function that only newer drivers have is optional, and its absence is seen by who wants to call it. Every status
//! that is not success becomes an [`Error`] in the driver's own words.
//!
//! # What it knowingly rejects
//!
//! - cudarc, the field's crate: it panics where a library or a symbol is missing; its statuses are a Rust enum, which
//!   a newer driver's status is no member of, and reading that is undefined; and its library is one for the process,
//!   so that no test can put another in its place. Of its six hundred functions we call sixty.
//! - Linking to the driver: the wheel must import where there is none.

use crate::abi::{Opaque, Properties, Rights};
use crate::status::{self, Status};
use libloading::Library;
use once_cell::race::OnceBox;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use tensorferry_core::{Error, ErrorKind, Result};

/// A device, by the driver's number.
pub(crate) type DeviceNumber = c_int;
/// A context.
pub(crate) type ContextHandle = *mut c_void;
/// A stream; null is the default one.
pub(crate) type StreamHandle = *mut c_void;
/// An event.
pub(crate) type EventHandle = *mut c_void;
/// A loaded module.
pub(crate) type ModuleHandle = *mut c_void;
/// A kernel.
pub(crate) type FunctionHandle = *mut c_void;
/// An address on a device.
pub(crate) type Address = u64;

/// Declares the table: the symbol, and the method that calls it and turns its status into a result.
macro_rules! functions {
    (
        answers { $($raw:ident = $raw_symbol:literal ($($raw_kind:ty),*);)* }
        required { $($name:ident = $symbol:literal ($($argument:ident: $kind:ty),*);)* }
        optional { $($late:ident = $late_symbol:literal ($($late_argument:ident: $late_kind:ty),*);)* }
    ) => {
        struct Table {
            $($raw: unsafe extern "C" fn($($raw_kind),*) -> c_int,)*
            $($name: unsafe extern "C" fn($($kind),*) -> c_int,)*
            $($late: Option<unsafe extern "C" fn($($late_kind),*) -> c_int>,)*
        }

        impl Table {
            /// # Safety
            /// The library is the CUDA driver, or one that keeps its contract.
            unsafe fn find(library: &Library) -> Result<Self, &'static CStr> {
                // SAFETY: the caller vouches that the symbols are functions of these types. The table is used only
                // while the library is loaded: they stand in one struct.
                unsafe {
                    Ok(Self {
                        $($raw: *library.get($raw_symbol.to_bytes()).map_err(|_| $raw_symbol)?,)*
                        $($name: *library.get($symbol.to_bytes()).map_err(|_| $symbol)?,)*
                        $($late: library.get($late_symbol.to_bytes()).ok().map(|symbol| *symbol),)*
                    })
                }
            }
        }

        impl Driver {
            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                ///
                /// # Safety
                /// What the driver's documentation asks of the arguments.
                #[allow(clippy::too_many_arguments, clippy::allow_attributes, reason = "the driver's own")]
                pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> Result<()> {
                    // SAFETY: the caller's contract.
                    self.check($symbol, unsafe { (self.table.$name)($($argument),*) })
                }
            )*
            $(
                #[doc = concat!("Calls `", stringify!($late_symbol), "`; `None` where the driver has no such function.")]
                ///
                /// # Safety
                /// What the driver's documentation asks of the arguments.
                pub(crate) unsafe fn $late(&self, $($late_argument: $late_kind),*) -> Option<Result<()>> {
                    let function = self.table.$late?;
                    // SAFETY: the caller's contract.
                    Some(self.check($late_symbol, unsafe { function($($late_argument),*) }))
                }
            )*
        }
    };
}

functions! {
    // Whose status is an answer.
    answers {
        error_name = c"cuGetErrorName"(c_int, *mut *const c_char);
        error_text = c"cuGetErrorString"(c_int, *mut *const c_char);
        stream_query = c"cuStreamQuery"(StreamHandle);
        event_query = c"cuEventQuery"(EventHandle);
        stream_capture = c"cuStreamIsCapturing"(StreamHandle, *mut c_int);
        settle_context = c"cuCtxSynchronize"();
    }
    required {
        init = c"cuInit"(flags: c_uint);
        device_count = c"cuDeviceGetCount"(count: *mut c_int);
        device = c"cuDeviceGet"(device: *mut DeviceNumber, index: c_int);
        retain_context = c"cuDevicePrimaryCtxRetain"(context: *mut ContextHandle, device: DeviceNumber);
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
        // Where the device has pools of memory.
        allocate_ordered = c"cuMemAllocAsync"(address: *mut Address, bytes: usize, stream: StreamHandle);
        free_ordered = c"cuMemFreeAsync"(address: Address, stream: StreamHandle);
        // From CUDA 12.5 on.
        record_context = c"cuCtxRecordEvent"(context: ContextHandle, event: EventHandle);
        wait_context = c"cuCtxWaitEvent"(context: ContextHandle, event: EventHandle);
        // For memory that goes to other processes.
        uuid = c"cuDeviceGetUuid_v2"(uuid: *mut [u8; 16], device: DeviceNumber);
        uuid_of_old = c"cuDeviceGetUuid"(uuid: *mut [u8; 16], device: DeviceNumber);
        device_attribute = c"cuDeviceGetAttribute"(answer: *mut c_int, which: c_int, device: DeviceNumber);
        address_range = c"cuMemGetAddressRange_v2"(base: *mut Address, bytes: *mut usize, address: Address);
        legacy_export = c"cuIpcGetMemHandle"(handle: *mut Opaque, address: Address);
        legacy_open = c"cuIpcOpenMemHandle_v2"(address: *mut Address, handle: Opaque, flags: c_uint);
        legacy_close = c"cuIpcCloseMemHandle"(address: Address);
        event_export = c"cuIpcGetEventHandle"(handle: *mut Opaque, event: EventHandle);
        event_open = c"cuIpcOpenEventHandle"(event: *mut EventHandle, handle: Opaque);
        granularity = c"cuMemGetAllocationGranularity"(bytes: *mut usize, wanted: *const Properties, which: c_int);
        create = c"cuMemCreate"(handle: *mut u64, bytes: usize, wanted: *const Properties, flags: u64);
        release = c"cuMemRelease"(handle: u64);
        reserve = c"cuMemAddressReserve"(
            address: *mut Address, bytes: usize, alignment: usize, wanted: Address, flags: u64
        );
        unreserve = c"cuMemAddressFree"(address: Address, bytes: usize);
        map = c"cuMemMap"(address: Address, bytes: usize, offset: usize, handle: u64, flags: u64);
        unmap = c"cuMemUnmap"(address: Address, bytes: usize);
        set_access = c"cuMemSetAccess"(address: Address, bytes: usize, rights: *const Rights, count: usize);
        retain = c"cuMemRetainAllocationHandle"(handle: *mut u64, address: *mut c_void);
        properties = c"cuMemGetAllocationPropertiesFromHandle"(into: *mut Properties, handle: u64);
        export = c"cuMemExportToShareableHandle"(into: *mut c_int, handle: u64, kind: c_int, flags: u64);
        import = c"cuMemImportFromShareableHandle"(handle: *mut u64, descriptor: *mut c_void, kind: c_int);
    }
}

/// Whether this process is a child of one that loaded the driver: CUDA does not live through a fork. Noted when it
/// happens, because asking for the process's number is a system call, for every share.
static FORKED: AtomicBool = AtomicBool::new(false);
static LOADED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// For who is called in the child of a fork, perhaps before this crate is, and lets go of what holds memory of a GPU: from
/// here on the driver is left alone, if it was used before the fork.
pub fn after_fork() {
    if LOADED.load(Ordering::Relaxed) {
        note_fork();
    }
}

/// What comes of a call of a function that this driver may not have.
pub(crate) fn needed(name: &str, called: Option<Result<()>>) -> Result<()> {
    called.unwrap_or_else(|| {
        Err(Error::new(ErrorKind::UnsupportedDevice, format!("the CUDA driver is too old: it has no {name}"))
            .with_advice("update the NVIDIA driver"))
    })
}

/// The driver, loaded and initialised.
pub struct Driver {
    table: Table,
    /// What the functions of the table belong to.
    _library: Library,
}

impl Driver {
    /// The machine's driver.
    ///
    /// # Errors
    /// Where there is none, where it cannot be initialised, and in the child of a process that used it.
    pub fn get() -> Result<&'static Self> {
        // No thread waits for another that loads the driver, which the child of a fork would do for ever.
        static DRIVER: OnceBox<Result<Driver>> = OnceBox::new();
        let driver = DRIVER.get_or_init(|| Box::new(Self::load(&["libcuda.so.1", "libcuda.so"])));
        let driver = driver.as_ref().map_err(Error::clone)?;
        if FORKED.load(Ordering::Relaxed) {
            return Err(Error::new(
                ErrorKind::UnsupportedDevice,
                "CUDA cannot be used in a forked child of a process that has used it",
            )
            .with_advice("start the child with multiprocessing's \"spawn\" method"));
        }
        Ok(driver)
    }

    /// The driver in the first of these libraries that can be loaded.
    fn load(names: &[&str]) -> Result<Self> {
        let missing = |fact: String| {
            Error::new(ErrorKind::UnsupportedDevice, fact)
                .with_advice("install the NVIDIA driver, or keep the tensor on the CPU")
        };
        // SAFETY: loading the driver runs its initialisers, which is what every CUDA program does.
        let library = names.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let library = library.ok_or_else(|| missing("there is no CUDA driver on this machine".into()))?;
        // SAFETY: a library of that name is the driver.
        let table = unsafe { Table::find(&library) }.map_err(|symbol| {
            missing(format!("the CUDA driver is too old: it has no {}", symbol.to_string_lossy()))
        })?;
        let driver = Self { table, _library: library };
        LOADED.store(true, Ordering::Relaxed);
        // SAFETY: a function that only sets a flag, which a child may do.
        unsafe { libc::pthread_atfork(None, None, Some(note_fork)) };
        // SAFETY: the first call of any program.
        unsafe { driver.init(0) }
            .map_err(|error| missing(format!("CUDA cannot be used on this machine: {}", error.fact())))?;
        Ok(driver)
    }

    /// Whether everything queued on a stream is done.
    ///
    /// # Safety
    /// The stream is alive, and of the current context or a default one.
    pub(crate) unsafe fn is_idle(&self, stream: StreamHandle) -> Result<bool> {
        // SAFETY: the caller's contract.
        match Status(unsafe { (self.table.stream_query)(stream) }) {
            Status::NOT_READY => Ok(false),
            Status(status) => self.check(c"cuStreamQuery", status).map(|()| true),
        }
    }

    /// Whether what an event was recorded after is done.
    ///
    /// # Safety
    /// The event is alive, and of the current context.
    pub(crate) unsafe fn is_over(&self, event: EventHandle) -> Result<bool> {
        // SAFETY: the caller's contract.
        match Status(unsafe { (self.table.event_query)(event) }) {
            Status::NOT_READY => Ok(false),
            Status(status) => self.check(c"cuEventQuery", status).map(|()| true),
        }
    }

    /// Whether a stream is being captured into a graph. The default stream is not, also while a capture on another keeps it
    /// from being asked.
    ///
    /// # Safety
    /// As [`Driver::is_idle`].
    pub(crate) unsafe fn is_captured(&self, stream: StreamHandle) -> Result<bool> {
        let mut state = 0;
        // SAFETY: the caller's contract, and a place for the answer.
        match Status(unsafe { (self.table.stream_capture)(stream, &raw mut state) }) {
            Status::CAPTURE_IMPLICIT => Ok(false),
            Status(status) => self.check(c"cuStreamIsCapturing", status).map(|()| state != 0),
        }
    }

    /// Waits until all that this process has queued in the current context is done, or will never be. Not while a stream
    /// is captured, where that cannot be known.
    pub(crate) fn is_settled(&self) -> bool {
        // SAFETY: takes nothing.
        !Status(unsafe { (self.table.settle_context)() }).is_of_a_capture()
    }

    fn check(&self, symbol: &'static CStr, status: c_int) -> Result<()> {
        match Status(status) {
            Status::SUCCESS => Ok(()),
            status => Err(status::error(symbol, status, &self.words(status))),
        }
    }

    /// What the driver says about a status.
    fn words(&self, Status(status): Status) -> String {
        let ask = |function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
            let mut text = std::ptr::null();
            // SAFETY: the driver writes the address of a constant string, or nothing.
            unsafe {
                let known = function(status, &raw mut text) == Status::SUCCESS.0 && !text.is_null();
                known.then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        match (ask(self.table.error_name), ask(self.table.error_text)) {
            (Some(name), Some(text)) => format!("{name}: {text}"),
            (Some(text), None) | (None, Some(text)) => text,
            (None, None) => format!("error {status}"),
        }
    }
}

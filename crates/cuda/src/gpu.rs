//! A GPU, through its primary context: the one that every framework uses.

use crate::driver::{ContextHandle, Driver};
use crate::kernels::Kernels;
use crate::stream::{Events, Stream};
use crate::stream_pool::Kept;
use std::ptr;
use std::sync::OnceLock;
use tensorferry_core::{Error, ErrorKind, Result};

/// The most GPUs that a process sees.
const MOST: usize = 64;

static GPUS: [OnceLock<Gpu>; MOST] = [const { OnceLock::new() }; MOST];

/// One GPU. Its primary context is kept for as long as the process lives, as the frameworks keep it.
pub struct Gpu {
    pub(crate) driver: &'static Driver,
    pub(crate) context: ContextHandle,
    pub(crate) events: Events,
    pub(crate) kernels: Kernels,
    pub(crate) kept: Kept,
    meeting: OnceLock<Stream>,
    index: i32,
}

// SAFETY: the driver's functions may be called from any thread; a context is made current by the thread that needs it.
unsafe impl Send for Gpu {}
// SAFETY: as above; what changes lies behind locks of its own.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// How many GPUs this process sees.
    ///
    /// # Errors
    /// Where there is no driver.
    pub fn count() -> Result<usize> {
        let mut count = 0;
        // SAFETY: a place for the number.
        unsafe { Driver::get()?.device_count(&raw mut count)? };
        Ok(count.max(0) as usize)
    }

    /// The GPU of this number, as CUDA counts them in this process.
    ///
    /// # Errors
    /// Where there is no such GPU, or no driver.
    pub fn get(index: i32) -> Result<&'static Self> {
        let driver = Driver::get()?;
        let slot =
            usize::try_from(index).ok().and_then(|index| GPUS.get(index)).ok_or_else(|| absent(index))?;
        if let Some(gpu) = slot.get() {
            return Ok(gpu);
        }
        let gpu = Self::open(driver, index)?;
        // Another thread may have come first; retaining a primary context twice is no harm.
        Ok(slot.get_or_init(|| gpu))
    }

    /// The GPUs that were got so far.
    pub(crate) fn opened() -> impl Iterator<Item = &'static Self> {
        GPUS.iter().filter_map(OnceLock::get)
    }

    fn open(driver: &'static Driver, index: i32) -> Result<Self> {
        let (mut number, mut context) = (0, ptr::null_mut());
        // SAFETY: places for the answers, and a device that the driver has just named.
        unsafe {
            driver.device(&raw mut number, index).map_err(|_| absent(index))?;
            driver.retain_context(&raw mut context, number)?;
        }
        Ok(Self {
            driver,
            context,
            events: Events::new(),
            kernels: Kernels::default(),
            kept: Kept::default(),
            meeting: OnceLock::new(),
            index,
        })
    }

    /// Its number.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Makes its context the calling thread's, until the guard goes.
    pub(crate) fn enter(&self) -> Result<Entered> {
        // Not in the child of a fork.
        Driver::get()?;
        let mut current = ptr::null_mut();
        // SAFETY: a place for the answer, and a context that is never released.
        unsafe {
            self.driver.current_context(&raw mut current)?;
            if current == self.context {
                return Ok(Entered(None));
            }
            self.driver.push_context(self.context)?;
        }
        Ok(Entered(Some(self.driver)))
    }

    /// A stream of ours: it waits for a framework that can name no stream of its own, so that others can wait for it.
    /// Copies from such a framework run on it.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync_stream(&self) -> Result<Stream> {
        /// Does not wait for the default stream, nor that for it.
        const NON_BLOCKING: u32 = 1;
        if let Some(stream) = self.meeting.get() {
            return Ok(*stream);
        }
        let _entered = self.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: a place for the handle; the context is entered.
        unsafe { self.driver.stream_create(&raw mut handle, NON_BLOCKING)? };
        // SAFETY: the driver has just made it, and nobody destroys it.
        let stream = unsafe { Stream::from_handle(handle.expose_provenance()) };
        Ok(*self.meeting.get_or_init(|| stream))
    }

    /// Free and total bytes, as the driver sees them: memory that a framework keeps for later counts as used.
    ///
    /// # Errors
    /// When the device fails.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: places for the answers.
        unsafe { self.driver.memory_info(&raw mut free, &raw mut total)? };
        Ok((free, total))
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{}", self.index)
    }
}

fn absent(index: i32) -> Error {
    let seen = match Gpu::count() {
        Ok(0) => "this process sees none".to_owned(),
        Ok(1) => "this process sees one, cuda:0".to_owned(),
        Ok(count) => format!("this process sees {count}, cuda:0 to cuda:{}", count - 1),
        Err(error) => return error,
    };
    Error::new(ErrorKind::UnsupportedDevice, format!("there is no GPU cuda:{index}: {seen}"))
        .with_advice("name one of those, and check CUDA_VISIBLE_DEVICES")
}

/// A context that was made current; its predecessor comes back with the drop.
pub(crate) struct Entered(Option<&'static Driver>);

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(driver) = self.0 {
            let mut context = ptr::null_mut();
            // SAFETY: pushed by this thread; whoever pushed more in between has popped it. A failure leaves a context
            // current that works.
            let _ = unsafe { driver.pop_context(&raw mut context) };
        }
    }
}

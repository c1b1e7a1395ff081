//! One GPU: its primary context, which the frameworks use too, and the pools that belong to it.

use crate::driver::Driver;
use crate::driver::handles::ContextHandle;
use crate::event_pool::EventPool;
use crate::hints;
use crate::kernels::KernelCache;
use crate::stream::Stream;
use crate::stream_pool::{LeasedStream, PooledStream, StreamPool, create_stream};
use std::marker::PhantomData;
use std::sync::OnceLock;
use tensorferry_core::{Error, ErrorKind, Result};

/// GPUs with higher ordinals are not supported.
const MAX_GPUS: usize = 64;

static GPUS: [OnceLock<Gpu>; MAX_GPUS] = [const { OnceLock::new() }; MAX_GPUS];

/// One GPU. Its primary context is retained until the process ends, as the frameworks retain it.
pub struct Gpu {
    pub(crate) driver: &'static Driver,
    pub(crate) context: ContextHandle,
    pub(crate) events: EventPool,
    pub(crate) kernels: KernelCache,
    streams: StreamPool,
    sync_stream: OnceLock<Stream>,
    index: i32,
}

impl Gpu {
    /// The number of GPUs that this process sees.
    ///
    /// # Errors
    /// If the driver is missing.
    pub fn count() -> Result<usize> {
        let mut count = 0;
        Driver::get()?.device_count(&mut count)?;
        Ok(count.max(0) as usize)
    }

    /// The GPU with this ordinal in this process.
    ///
    /// # Errors
    /// If the GPU does not exist, or the driver is missing.
    pub fn get(index: i32) -> Result<&'static Self> {
        let driver = Driver::get()?;
        let slot =
            usize::try_from(index).ok().and_then(|index| GPUS.get(index)).ok_or_else(|| absent(index))?;
        if let Some(gpu) = slot.get() {
            return Ok(gpu);
        }
        let gpu = Self::open(driver, index)?;
        // Another thread may have been first; retaining a primary context twice is harmless.
        Ok(slot.get_or_init(|| gpu))
    }

    /// The GPUs that this process has used so far.
    pub(crate) fn opened() -> impl Iterator<Item = &'static Self> {
        GPUS.iter().filter_map(OnceLock::get)
    }

    fn open(driver: &'static Driver, index: i32) -> Result<Self> {
        let (mut ordinal, mut context) = (0, ContextHandle::default());
        driver.device(&mut ordinal, index).map_err(|_| absent(index))?;
        driver.retain_context(&mut context, ordinal)?;
        Ok(Self {
            driver,
            context,
            events: EventPool::default(),
            kernels: KernelCache::default(),
            streams: StreamPool::default(),
            sync_stream: OnceLock::new(),
            index,
        })
    }

    /// Its ordinal in this process.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Makes its context current on the calling thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<ContextGuard> {
        // Fails in a forked child.
        Driver::get()?;
        let mut current = 0;
        self.driver.current_context(&mut current)?;
        if self.context.is(current) {
            return Ok(ContextGuard { pushed_by: None, thread: PhantomData });
        }
        self.driver.push_context(self.context)?;
        Ok(ContextGuard { pushed_by: Some(self.driver), thread: PhantomData })
    }

    /// The stream of this crate that waits for frameworks that do not name a stream of their own, so that other streams
    /// can wait for it. Copies from such frameworks run on it.
    ///
    /// # Errors
    /// When the device fails.
    pub fn sync_stream(&self) -> Result<Stream> {
        if let Some(stream) = self.sync_stream.get() {
            return Ok(*stream);
        }
        let _entered = self.enter()?;
        let stream = create_stream(self.driver)?;
        Ok(*self.sync_stream.get_or_init(|| stream))
    }

    /// Free and total bytes according to the driver. Memory that a framework caches counts as used.
    ///
    /// # Errors
    /// When the device fails.
    pub fn memory(&self) -> Result<(usize, usize)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        self.driver.memory_info(&mut free, &mut total)?;
        Ok((free, total))
    }

    /// A stream for one user, which returns to the pool when the lease is dropped.
    pub(crate) fn lease_stream(&'static self) -> Result<LeasedStream> {
        let _entered = self.enter()?;
        self.streams.lease(self.driver)
    }

    /// A stream for one transfer. The caller has entered the context.
    pub(crate) fn take_stream(&'static self) -> Result<PooledStream> {
        self.streams.take(self.driver)
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda:{}", self.index)
    }
}

fn absent(index: i32) -> Error {
    let seen = match Gpu::count() {
        Ok(0) => "this process sees no GPU".to_owned(),
        Ok(1) => "this process sees one GPU, cuda:0".to_owned(),
        Ok(count) => format!("this process sees {count} GPUs, cuda:0 to cuda:{}", count - 1),
        Err(error) => return error,
    };
    Error::new(ErrorKind::UnsupportedDevice, format!("cuda:{index} does not exist: {seen}"))
        .with_hint(hints::CHOOSE_VISIBLE_DEVICE)
}

/// Restores the context that was current before [`Gpu::enter`] when it is dropped.
pub(crate) struct ContextGuard {
    /// The driver, if the guard has a context to pop.
    pushed_by: Option<&'static Driver>,
    /// Makes the type stay on its thread, whose context stack it changes.
    thread: PhantomData<*const ()>,
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        if let Some(driver) = self.pushed_by {
            // Contexts that other code pushed since have been popped. If the pop fails, our context stays current, which is harmless.
            let _ = driver.pop_context(&mut 0);
        }
    }
}

//! Our kernels on one GPU, compiled by its driver when they are first needed.

use crate::driver::{FunctionHandle, ModuleHandle};
use crate::gpu::Gpu;
use crate::stream::Stream;
use std::ffi::{CStr, CString, c_void};
use std::ptr;
use tensorferry_core::{Error, ErrorKind, Result};

/// The kernels as text, made from `kernels/` by `make kernels`.
const PTX: &str = include_str!("kernels.ptx");

/// Element sizes that have a kernel of their own: two to the power of their place.
const SIZES: usize = 5;

/// The kernels of one GPU.
pub(crate) struct Kernels {
    gather: [FunctionHandle; SIZES],
    transpose: [FunctionHandle; SIZES],
    cast: FunctionHandle,
}

// SAFETY: handles that the driver takes from any thread.
unsafe impl Send for Kernels {}
// SAFETY: as above; nothing changes.
unsafe impl Sync for Kernels {}

/// How many blocks of how many threads.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: (u32, u32, u32),
    pub(crate) threads: (u32, u32),
}

impl Kernels {
    fn load(gpu: &Gpu) -> Result<Self> {
        let text =
            CString::new(PTX).map_err(|_| Error::new(ErrorKind::DeviceFailed, "the kernels are no text"))?;
        let mut module: ModuleHandle = ptr::null_mut();
        let find = |module: ModuleHandle, name: &CStr| {
            let mut function = ptr::null_mut();
            // SAFETY: a module of the current context that is never unloaded, a name, and a place for the answer.
            unsafe { gpu.driver.function(&raw mut function, module, name.as_ptr()) }.map(|()| function)
        };
        // SAFETY: a place for the module, and a text that ends with a zero.
        unsafe { gpu.driver.load_module(&raw mut module, text.as_ptr().cast())? };
        let each = |names: [&CStr; SIZES]| -> Result<[FunctionHandle; SIZES]> {
            let mut found = [ptr::null_mut(); SIZES];
            for (place, name) in found.iter_mut().zip(names) {
                *place = find(module, name)?;
            }
            Ok(found)
        };
        Ok(Self {
            gather: each([c"gather_1", c"gather_2", c"gather_4", c"gather_8", c"gather_16"])?,
            transpose: each([
                c"transpose_1",
                c"transpose_2",
                c"transpose_4",
                c"transpose_8",
                c"transpose_16",
            ])?,
            cast: find(module, c"cast")?,
        })
    }

    /// The kernel that gathers elements of this size, if there is one.
    pub(crate) fn gather(&self, item: usize) -> Option<FunctionHandle> {
        of_size(&self.gather, item)
    }

    /// The kernel that transposes elements of this size, if there is one.
    pub(crate) fn transpose(&self, item: usize) -> Option<FunctionHandle> {
        of_size(&self.transpose, item)
    }

    /// The kernel that casts.
    pub(crate) fn cast(&self) -> FunctionHandle {
        self.cast
    }
}

fn of_size(functions: &[FunctionHandle; SIZES], item: usize) -> Option<FunctionHandle> {
    if item.is_power_of_two() { functions.get(item.trailing_zeros() as usize).copied() } else { None }
}

impl Gpu {
    /// This GPU's kernels. The caller has entered its context.
    pub(crate) fn kernels(&self) -> Result<&Kernels> {
        if let Some(kernels) = self.kernels.get() {
            return Ok(kernels);
        }
        let kernels = Kernels::load(self)?;
        Ok(self.kernels.get_or_init(|| kernels))
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// The arguments are what the kernel takes, and what they describe lives until the stream is past it.
    pub(crate) unsafe fn launch<const N: usize>(
        &self,
        function: FunctionHandle,
        grid: Grid,
        stream: Stream,
        mut arguments: [*mut c_void; N],
    ) -> Result<()> {
        let Grid { blocks: (x, y, z), threads: (wide, high) } = grid;
        // SAFETY: the caller's contract; the driver reads the arguments before it returns.
        unsafe {
            self.driver.launch(
                function,
                x,
                y,
                z,
                wide,
                high,
                1,
                0,
                stream.raw(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}

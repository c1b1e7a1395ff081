//! The conversion kernels of one GPU, each compiled by the driver on first use.
//!
//! The driver compiles a PTX module as a whole, which takes a second for all kernels, and caches the result on disk. So
//! each kernel is loaded as a module of its own.

use crate::driver::Driver;
use crate::driver::handles::{FunctionHandle, ModuleHandle};
use crate::stream::Stream;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::{DType, Error, ErrorKind, Result};

/// The PTX of all kernels, compiled from `kernels/` by `make kernels`.
const PTX: &str = include_str!("kernels.ptx");

/// Begins the definition of each kernel in [`PTX`].
const ENTRY: &str = ".visible .entry ";

/// A kernel, by its operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// Gathers units of this many bytes.
    Gather(usize),
    /// Transposes planes of elements of this many bytes.
    Transpose(usize),
    /// Gathers elements of any type and casts them to any other.
    Cast,
    /// Casts dense elements of the first type to the second.
    Dense(DType, DType),
}

impl Kernel {
    fn name(self) -> String {
        match self {
            Self::Gather(size) => format!("gather_{size}"),
            Self::Transpose(size) => format!("transpose_{size}"),
            Self::Cast => "cast".to_owned(),
            Self::Dense(from, to) => format!("{from}_to_{to}"),
        }
    }

    /// The PTX of this kernel alone; `None` if the kernel does not exist.
    fn ptx(self) -> Option<String> {
        let start = PTX.find(&format!("{ENTRY}{}(", self.name()))?;
        let end = PTX[start + 1..].find(ENTRY).map_or(PTX.len(), |length| start + 1 + length);
        let head = &PTX[..PTX.find(ENTRY)?];
        Some([head, &PTX[start..end]].concat())
    }
}

/// The kernels that one GPU has loaded so far; `None` for those that do not exist.
#[derive(Default)]
pub(crate) struct KernelCache(Mutex<Vec<(Kernel, Option<KernelFunction>)>>);

/// A loaded kernel. Its module is never unloaded.
#[derive(Clone, Copy)]
pub(crate) struct KernelFunction(FunctionHandle);

/// The dimensions of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: (u32, u32, u32),
    pub(crate) threads: (u32, u32),
}

impl KernelCache {
    /// A kernel, if it exists. The caller has entered the context.
    pub(crate) fn get(&self, driver: &Driver, kernel: Kernel) -> Result<Option<KernelFunction>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, function)) = known.iter().find(|(name, _)| *name == kernel) {
            return Ok(function);
        }
        let function = match kernel.ptx() {
            Some(ptx) => Some(compile(driver, &kernel.name(), ptx)?),
            None => None,
        };
        known.push((kernel, function));
        Ok(function)
    }
}

fn compile(driver: &Driver, name: &str, ptx: String) -> Result<KernelFunction> {
    let has_nul = |_| Error::new(ErrorKind::DeviceFailed, "the PTX of a kernel contains a NUL byte");
    let (ptx, name) = (CString::new(ptx).map_err(has_nul)?, CString::new(name).map_err(has_nul)?);
    let (mut module, mut function) = (ModuleHandle::default(), FunctionHandle::default());
    // SAFETY: `cuModuleLoadData` reads an image up to its end. This one is PTX, which ends with the NUL of the `CString`. The
    // driver writes one handle, and nothing unloads the module.
    unsafe { driver.load_module(&raw mut module, ptx.as_ptr().cast())? };
    driver.function(&mut function, module, &name)?;
    Ok(KernelFunction(function))
}

impl KernelFunction {
    /// Queues the kernel. The caller has entered the context.
    ///
    /// # Safety
    /// - The arguments are as many as the kernel has, and each points to a value of the parameter's type.
    /// - The GPU can access the memory that the values describe, for which nobody else races, until the stream has passed the
    ///   kernel.
    pub(crate) unsafe fn launch<const N: usize>(
        self,
        driver: &Driver,
        grid: Grid,
        stream: Stream,
        mut arguments: [*mut c_void; N],
    ) -> Result<()> {
        let Grid { blocks: (grid_x, grid_y, grid_z), threads: (block_x, block_y) } = grid;
        // SAFETY: `cuLaunchKernel` copies a value through each of the `arguments` before it returns; number and types are the
        // first clause of this function's contract. The memory that the kernel uses is the second. The handle is of a module
        // that is never unloaded (`compile`), and the stream is alive (`Stream::from_handle`).
        unsafe {
            driver.launch(
                self.0.pointer(),
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                1,
                0,
                stream.pointer(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_of_a_kernel_defines_only_that_kernel() {
        for kernel in
            [Kernel::Gather(4), Kernel::Transpose(16), Kernel::Dense(DType::Float32, DType::Float16)]
        {
            let ptx = kernel.ptx().unwrap();
            assert_eq!(ptx.matches(ENTRY).count(), 1, "{kernel:?}");
            assert!(ptx.contains(&format!("{ENTRY}{}(", kernel.name())));
            assert!(ptx.contains(".version") && ptx.contains(".target"));
            assert_eq!(ptx.matches('{').count(), ptx.matches('}').count());
        }
        assert!(Kernel::Gather(3).ptx().is_none());
        assert!(Kernel::Dense(DType::Int4, DType::Int8).ptx().is_none());
    }

    #[test]
    fn every_element_size_has_kernels() {
        for size in [1, 2, 4, 8, 16] {
            assert!(Kernel::Gather(size).ptx().is_some() && Kernel::Transpose(size).ptx().is_some());
        }
        assert!(Kernel::Cast.ptx().is_some());
    }
}

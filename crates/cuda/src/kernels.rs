//! Our kernels on one GPU, each compiled by its driver when it is first needed.
//!
//! The driver compiles a text as a whole, at a second for all of them, and keeps the result on disk; so it is given what
//! belongs to one kernel at a time.

use crate::driver::{FunctionHandle, ModuleHandle};
use crate::gpu::Gpu;
use crate::stream::Stream;
use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use tensorferry_core::{DType, Error, ErrorKind, Result};

/// The kernels as text, made from `kernels/` by `make kernels`.
const PTX: &str = include_str!("kernels.ptx");

/// Where a kernel begins in the text.
const ENTRY: &str = ".visible .entry ";

/// A kernel, by what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// Gathers units of so many bytes.
    Gather(usize),
    /// Transposes planes of elements of so many bytes.
    Transpose(usize),
    /// Gathers and casts elements of any type to any other.
    Cast,
    /// Casts dense elements of the one type to the other.
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

    /// The text of this kernel alone, if there is such a kernel.
    fn text(self) -> Option<String> {
        let start = PTX.find(&format!("{ENTRY}{}(", self.name()))?;
        let end = PTX[start + 1..].find(ENTRY).map_or(PTX.len(), |length| start + 1 + length);
        let head = &PTX[..PTX.find(ENTRY)?];
        Some([head, &PTX[start..end]].concat())
    }
}

/// The kernels that one GPU was given so far.
#[derive(Default)]
pub(crate) struct Kernels(Mutex<Vec<(Kernel, Option<Function>)>>);

/// A kernel as the driver knows it, for good.
#[derive(Clone, Copy)]
pub(crate) struct Function(FunctionHandle);

// SAFETY: a handle that the driver takes from any thread.
unsafe impl Send for Function {}

/// How many blocks of how many threads.
#[derive(Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: (u32, u32, u32),
    pub(crate) threads: (u32, u32),
}

impl Gpu {
    /// A kernel of this GPU, if there is one that does this. The caller has entered its context.
    pub(crate) fn kernel(&self, kernel: Kernel) -> Result<Option<Function>> {
        let mut known = self.kernels.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&(_, function)) = known.iter().find(|(name, _)| *name == kernel) {
            return Ok(function);
        }
        let function = match kernel.text() {
            Some(text) => Some(self.compile(&kernel.name(), text)?),
            None => None,
        };
        known.push((kernel, function));
        Ok(function)
    }

    fn compile(&self, name: &str, text: String) -> Result<Function> {
        let no_text = |_| Error::new(ErrorKind::DeviceFailed, "the kernels are no text");
        let (text, name) = (CString::new(text).map_err(no_text)?, CString::new(name).map_err(no_text)?);
        let (mut module, mut function): (ModuleHandle, FunctionHandle) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: places for the answers, texts that end with a zero, and a module that is never unloaded.
        unsafe {
            self.driver.load_module(&raw mut module, text.as_ptr().cast())?;
            self.driver.function(&raw mut function, module, name.as_ptr())?;
        }
        Ok(Function(function))
    }

    /// Queues a kernel.
    ///
    /// # Safety
    /// The arguments are what the kernel takes, and what they describe lives until the stream is past it.
    pub(crate) unsafe fn launch<const N: usize>(
        &self,
        Function(function): Function,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_kernel_holds_it_and_no_other() {
        for kernel in
            [Kernel::Gather(4), Kernel::Transpose(16), Kernel::Dense(DType::Float32, DType::Float16)]
        {
            let text = kernel.text().unwrap();
            assert_eq!(text.matches(ENTRY).count(), 1, "{kernel:?}");
            assert!(text.contains(&format!("{ENTRY}{}(", kernel.name())));
            assert!(text.contains(".version") && text.contains(".target"));
            assert_eq!(text.matches('{').count(), text.matches('}').count());
        }
        assert!(Kernel::Gather(3).text().is_none());
        assert!(Kernel::Dense(DType::Int4, DType::Int8).text().is_none());
    }

    #[test]
    fn every_size_has_its_kernels() {
        for size in [1, 2, 4, 8, 16] {
            assert!(Kernel::Gather(size).text().is_some() && Kernel::Transpose(size).text().is_some());
        }
        assert!(Kernel::Cast.text().is_some());
    }
}

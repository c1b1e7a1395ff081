//! The floating-point environment of casts: round to nearest even, subnormals enabled, exceptions masked.
//!
//! A thread may flush subnormals or round differently, and threads that it starts inherit that (TensorFlow's threads flush
//! subnormals). Casts must not depend on it, so each block of work runs in the default environment.

/// A guard that sets the default environment on this thread and restores the previous one when it is dropped.
pub(super) struct DefaultFpEnvironment {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    previous: ControlWord,
}

/// A value of MXCSR, the control word of a thread: the default, or one that was read from it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[derive(Clone, Copy)]
struct ControlWord(u32);

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl ControlWord {
    /// The value of the default environment.
    const DEFAULT: Self = Self(0x1f80);

    /// Sets the control word of this thread, and returns the previous one.
    fn set(self) -> Self {
        let (new, mut previous) = (self.0, 0u32);
        // SAFETY: `stmxcsr` writes four bytes to a local variable, `ldmxcsr` reads four of another, and neither uses the stack.
        // `ldmxcsr` faults if a reserved bit is set, which is not so in the default or in a value that was read. Rust code may
        // assume the default word: `enter` sets it, and `drop` restores the word that the thread came with, after our last
        // floating-point operation.
        unsafe {
            std::arch::asm!(
                "stmxcsr [{previous}]",
                "ldmxcsr [{new}]",
                previous = in(reg) &raw mut previous,
                new = in(reg) &raw const new,
                options(nostack)
            );
        }
        Self(previous)
    }
}

impl DefaultFpEnvironment {
    /// Sets the default environment.
    pub(super) fn enter() -> Self {
        Self {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            previous: ControlWord::DEFAULT.set(),
        }
    }
}

impl Drop for DefaultFpEnvironment {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        self.previous.set();
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::pack::{CopyDestination, CopySource, convert};
    use crate::{ByteOrder, DType, Layout};

    /// Flush to zero, and subnormals as zeros.
    const FLUSH: u32 = ControlWord::DEFAULT.0 | 0x8040;

    #[test]
    fn subnormals_are_kept_in_any_environment() {
        let source = [1e-40f64; 999];
        let mut target = [0f32; 999];
        let (from, to) = (Layout::dense(8, &[999]).unwrap(), Layout::dense(4, &[999]).unwrap());
        let environment = DefaultFpEnvironment::enter();
        // This breaks the rule of `set` on purpose, as a library that the thread called before us may.
        ControlWord(FLUSH).set();
        // SAFETY: the layouts are dense and as long as the two arrays, which do not overlap and which nothing else uses.
        let done = unsafe {
            convert(
                &CopySource {
                    data: source.as_ptr().cast(),
                    dtype: DType::Float64,
                    layout: &from,
                    order: ByteOrder::Native,
                },
                &CopyDestination { data: target.as_mut_ptr().cast(), dtype: DType::Float32, layout: &to },
                3,
            )
        };
        let after = ControlWord::DEFAULT.set();
        drop(environment);
        done.unwrap();
        assert_eq!(after.0 & FLUSH, FLUSH, "the previous environment is restored");
        assert!(target.iter().all(|&value| value.to_bits() == (1e-40f64 as f32).to_bits()));
    }
}

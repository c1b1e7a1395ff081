//! The floating-point environment of casts: round to nearest even, subnormals enabled, exceptions masked.
//!
//! A thread may flush subnormals or round differently, and threads that it starts inherit that (TensorFlow's threads flush
//! subnormals). Casts must not depend on it, so each block of work runs in the default environment.

/// A guard that sets the default environment on this thread and restores the previous one when it is dropped.
pub(super) struct DefaultFpEnvironment {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    previous: u32,
}

/// The MXCSR value of the default environment.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const DEFAULT_MXCSR: u32 = 0x1f80;

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn set_mxcsr(value: u32) {
    // SAFETY: loads the control word from memory that lives through the instruction; the value is one that was read
    // from there, or the one that the language assumes.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack, readonly)) }
}

impl DefaultFpEnvironment {
    /// Sets the default environment.
    pub(super) fn enter() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let mut previous = 0u32;
            // SAFETY: stores the control word into a local variable.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut previous, options(nostack)) };
            set_mxcsr(DEFAULT_MXCSR);
            Self { previous }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        Self {}
    }
}

impl Drop for DefaultFpEnvironment {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        set_mxcsr(self.previous);
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::pack::{CopyDestination, CopySource, convert};
    use crate::{ByteOrder, DType, Layout};

    /// Flush to zero, and subnormals as zeros.
    const FLUSH: u32 = DEFAULT_MXCSR | 0x8040;

    #[test]
    fn subnormals_are_kept_in_any_environment() {
        let source = [1e-40f64; 999];
        let mut target = [0f32; 999];
        let (from, to) = (Layout::dense(8, &[999]).unwrap(), Layout::dense(4, &[999]).unwrap());
        let environment = DefaultFpEnvironment::enter();
        set_mxcsr(FLUSH);
        // SAFETY: both arrays are as long as their layouts.
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
        let mut after = 0u32;
        // SAFETY: stores the control word into a local variable.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut after, options(nostack)) };
        drop(environment);
        done.unwrap();
        assert_eq!(after & FLUSH, FLUSH, "the previous environment is restored");
        assert!(target.iter().all(|&value| value.to_bits() == (1e-40f64 as f32).to_bits()));
    }
}

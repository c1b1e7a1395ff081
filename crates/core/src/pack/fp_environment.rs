//! The processor's floating point state, as the casts need it.
//!
//! A thread may have told its processor to flush subnormals or to round otherwise (TensorFlow's threads do the
//! first), and a thread that it starts inherits that. A cast must not depend on it, so each part of the work runs
//! in the state that every program begins with.

/// While this lives, this thread's state is the plain one; then it is again what it was.
pub(super) struct Plain {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    before: u32,
}

/// Nearest even, subnormals kept, no trap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const PLAIN: u32 = 0x1f80;

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn set(state: u32) {
    // SAFETY: loads the control word from memory that lives through the instruction; the value is one that was read
    // from there, or the one that the language assumes.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const state, options(nostack, readonly)) }
}

impl Plain {
    /// Sets the plain state.
    pub(super) fn set() -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let mut before = 0u32;
            // SAFETY: stores the control word into memory of ours.
            unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut before, options(nostack)) };
            set(PLAIN);
            Self { before }
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        Self {}
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        set(self.before);
    }
}

#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;
    use crate::pack::{CopyDestination, CopySource, convert};
    use crate::{ByteOrder, DType, Layout};

    /// Flush to zero, and subnormals as zeros.
    const FLUSH: u32 = PLAIN | 0x8040;

    #[test]
    fn subnormals_are_kept_whatever_the_thread_was_told() {
        let source = [1e-40f64; 999];
        let mut target = [0f32; 999];
        let (from, to) = (Layout::dense(8, &[999]).unwrap(), Layout::dense(4, &[999]).unwrap());
        let before = Plain::set();
        set(FLUSH);
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
        // SAFETY: stores the control word into memory of ours.
        unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut after, options(nostack)) };
        drop(before);
        done.unwrap();
        assert_eq!(after & FLUSH, FLUSH, "the caller has its state back");
        assert!(target.iter().all(|&value| value.to_bits() == (1e-40f64 as f32).to_bits()));
    }
}

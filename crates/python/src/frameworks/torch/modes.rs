//! Whether a `TorchFunctionMode` is active on the calling thread.

use crate::fast_paths::{self, FastPath, Probed, Unusable, check};
use crate::frameworks::within;
use crate::interpreter::slots::{BoolFunction, Function};
use pyo3::prelude::*;
use std::ffi::CStr;

/// How active modes are detected.
pub(super) enum Modes {
    /// By a C++ function (the fast path `torch.function_mode`).
    Flag(BoolFunction),
    /// By the length of the mode stack (the fast path `torch.function_stack`).
    StackLength(Function),
    /// Not at all, because no public function exists. A mode is assumed to be active.
    Unknown,
}

impl Modes {
    /// Runs the probes. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Self {
        let py = torch.py();
        let flag = || -> Probed<BoolFunction> {
            let name = c"_ZN2at4impl27torch_function_mode_enabledEv";
            // SAFETY: `of` requires the name of a function without arguments that returns a bool and may be called at any time: it
            // is `bool at::impl::torch_function_mode_enabled()`, which reads thread-local state.
            let question = unsafe { BoolFunction::of(library, name) };
            let question =
                question.ok_or_else(|| Unusable::missing("libtorch_cpu.so does not export the function"))?;
            check_modes(torch, || question.call())?;
            Ok(question)
        };
        let stack_length = || -> Probed<Function> {
            let function = Function::of(&torch.getattr("_C")?, "_len_torch_function_stack");
            let function =
                function.ok_or_else(|| Unusable::missing("torch._C lacks _len_torch_function_stack"))?;
            check_modes(torch, || !function.is_zero(py))?;
            Ok(function)
        };
        if let Some(question) = fast_paths::probe(py, FastPath::TorchFunctionMode, flag) {
            return Self::Flag(question);
        }
        fast_paths::probe(py, FastPath::TorchFunctionStack, stack_length)
            .map_or(Self::Unknown, Self::StackLength)
    }

    /// Whether no mode is active.
    #[inline(always)]
    pub(super) fn are_inactive(&self, py: Python<'_>) -> bool {
        match self {
            Self::Flag(question) => !question.call(),
            Self::StackLength(function) => function.is_zero(py),
            Self::Unknown => false,
        }
    }
}

/// Compares the detection with the known state before, inside and after a mode.
fn check_modes(torch: &Bound<'_, PyModule>, is_active: impl Fn() -> bool) -> Probed<()> {
    let mode = torch.getattr("overrides")?.getattr("TorchFunctionMode")?.call0()?;
    let before = is_active();
    let inside = within(&[mode], || Ok(is_active()))?;
    let after = is_active();
    check((before, inside, after) == (false, true, false), || {
        format!("the result is {before} before, {inside} inside and {after} after a TorchFunctionMode")
    })
}

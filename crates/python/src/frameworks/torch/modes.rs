//! Whether a `__torch_function__` mode is on.

use crate::fast_paths::{self, FastPath, Probed, Unusable, check};
use crate::frameworks::within;
use crate::interpreter::slots::{Function, Question};
use pyo3::prelude::*;
use std::ffi::CStr;

/// How to learn whether a mode is on.
pub(super) enum Modes {
    /// C++ tells, in a few instructions.
    Asked(Question),
    /// Python counts them.
    Counted(Function),
    /// No public function tells: it may be.
    Unknown,
}

impl Modes {
    /// Called on a thread on which no mode is on.
    pub(super) fn of(torch: &Bound<'_, PyModule>, library: &CStr) -> Self {
        let py = torch.py();
        let asked = || -> Probed<Question> {
            let name = c"_ZN2at4impl27torch_function_mode_enabledEv";
            // SAFETY: the name stands for `bool at::impl::torch_function_mode_enabled()`, which reads a thread's state.
            let question = unsafe { Question::of(library, name) };
            let question = question.ok_or_else(|| Unusable::missing("libtorch_cpu.so does not export it"))?;
            check_modes(torch, || question.ask())?;
            Ok(question)
        };
        let counted = || -> Probed<Function> {
            let function = Function::of(&torch.getattr("_C")?, "_len_torch_function_stack");
            let function = function.ok_or_else(|| Unusable::missing("torch._C does not have it"))?;
            check_modes(torch, || !function.is_zero(py))?;
            Ok(function)
        };
        if let Some(question) = fast_paths::probe(py, FastPath::TorchFunctionMode, asked) {
            return Self::Asked(question);
        }
        fast_paths::probe(py, FastPath::TorchFunctionStack, counted).map_or(Self::Unknown, Self::Counted)
    }

    #[inline(always)]
    pub(super) fn are_off(&self, py: Python<'_>) -> bool {
        match self {
            Self::Asked(question) => !question.ask(),
            Self::Counted(function) => function.is_zero(py),
            Self::Unknown => false,
        }
    }
}

/// Compares an answer with what is known: no mode, one mode, and none again.
fn check_modes(torch: &Bound<'_, PyModule>, is_on: impl Fn() -> bool) -> Probed<()> {
    let mode = torch.getattr("overrides")?.getattr("TorchFunctionMode")?.call0()?;
    let before = is_on();
    let inside = within(&[mode], || Ok(is_on()))?;
    let after = is_on();
    check((before, inside, after) == (false, true, false), || {
        format!("it answers {before} before, {inside} in and {after} after a TorchFunctionMode")
    })
}

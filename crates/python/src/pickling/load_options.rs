//! The options of unpickling, which hold for the calling thread inside of a `with` block.

use crate::api::options;
use crate::errors::{Result, fail};
use crate::frameworks::{self, Target};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use tensorferry_core::ErrorKind;
use tensorferry_core::host::HostBlock;
use tensorferry_core::plan::{ConvertOptions, DeviceRequest};
use tensorferry_core::tree_block::TreeBlocks;

/// The options of the innermost block.
#[derive(Clone, Copy)]
pub(super) struct Options {
    /// The framework of every tensor; `None` for the one that it had.
    pub(super) target: Option<Target>,
    /// The device of every tensor; `None` for the one that it had.
    pub(super) device: Option<DeviceRequest>,
    pub(super) writable: Option<bool>,
}

/// A block that is entered.
enum Scope {
    /// A `with` block: its options, and the memory of tensors that are copied.
    Block { options: Options, copies: TreeBlocks },
    /// The arrays of a sparse tensor, which keep their framework until the tensor is complete.
    SparseTensor,
}

/// The options outside of every block.
const NO_OPTIONS: Options = Options { target: None, device: None, writable: None };

thread_local! {
    static SCOPES: RefCell<Vec<Scope>> = const { RefCell::new(Vec::new()) };
}

/// The options that hold on this thread.
pub(super) fn current() -> Options {
    SCOPES.with_borrow(|scopes| match scopes.last() {
        Some(Scope::Block { options, .. }) => *options,
        Some(Scope::SparseTensor) | None => NO_OPTIONS,
    })
}

/// Begins the arrays of a sparse tensor.
pub(super) fn enter_sparse_tensor() {
    SCOPES.with_borrow_mut(|scopes| scopes.push(Scope::SparseTensor));
}

/// Ends the arrays of a sparse tensor. Returns whether they were begun.
pub(super) fn leave_sparse_tensor() -> bool {
    SCOPES.with_borrow_mut(|scopes| scopes.pop_if(|scope| matches!(scope, Scope::SparseTensor)).is_some())
}

/// Memory for a copy. Small copies inside of a block share memory.
pub(super) fn memory_for_copy(bytes: usize) -> tensorferry_core::Result<HostBlock> {
    SCOPES.with_borrow_mut(|scopes| match scopes.last_mut() {
        Some(Scope::Block { copies, .. }) => copies.take(bytes),
        _ => HostBlock::new(bytes),
    })
}

/// `with _LoadOptions(framework, device, writable):` makes every tensor that this thread unpickles one of the framework, on the
/// device.
#[pyclass(frozen, module = "tensorferry._native", name = "_LoadOptions")]
pub(crate) struct LoadOptions {
    options: Options,
}

#[pymethods]
impl LoadOptions {
    #[new]
    #[pyo3(signature = (framework=None, device=None, writable=None))]
    fn new(
        framework: Option<&Bound<'_, PyAny>>,
        device: Option<&Bound<'_, PyAny>>,
        writable: Option<&Bound<'_, PyAny>>,
    ) -> Result<Self> {
        let parsed: ConvertOptions = options::parse_common(device, None, None, writable, None)?.options;
        let target = framework.map(frameworks::target).transpose()?;
        let device = device.map(|_| parsed.device);
        Ok(Self { options: Options { target, device, writable: parsed.writable } })
    }

    fn __enter__(&self) {
        // A plain unpickler that failed may have left a sparse tensor incomplete.
        while leave_sparse_tensor() {}
        let scope = Scope::Block { options: self.options, copies: TreeBlocks::new() };
        SCOPES.with_borrow_mut(|scopes| scopes.push(scope));
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) -> Result<()> {
        // An error may have left sparse tensors incomplete. The memory is dropped outside of the borrow.
        while leave_sparse_tensor() {}
        let left = SCOPES.with_borrow_mut(Vec::pop);
        left.map(drop).ok_or_else(|| {
            let hint = "leave the block on the thread that entered it";
            fail(ErrorKind::InvalidArgument, "the options of unpickling are not entered on this thread", hint)
        })
    }
}

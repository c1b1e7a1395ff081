//! Pickling: a tensor becomes a payload, whose bytes travel out of band.
//!
//! A pickler finds the reducer of a type in the [`dispatch table`](dispatch_table), which asks the register of frameworks. The
//! reducer returns a [`Payload`](payload::Payload) and the arguments of its call. The payload itself is reduced to a call of
//! the rebuild function, with the bytes as a `PickleBuffer`, so a stream names one function of this package. An unpickler calls
//! the rebuild function, which checks the description against the bytes, and then the payload, which makes the tensor.
//!
//! The payload is an object of its own for two reasons. Pickle memoises objects, so two tensors with one payload (tied
//! weights) travel once. And only `__reduce_ex__` is told the protocol: below 5 there are no out-of-band buffers.
//!
//! Rejected: entries in `copyreg`, which change `torch.save` and `copy.copy` too.

mod description;
mod dispatch_table;
mod framework_state;
mod load_errors;
mod load_options;
mod payload;
mod payload_plans;
mod rebuild;
mod reduce;
mod shared_payloads;
mod stream_format;

use pyo3::prelude::*;
use stream_format::PUBLIC_MODULE;

/// Adds the classes and functions of this module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<payload::Payload>()?;
    module.add_class::<dispatch_table::DispatchTable>()?;
    module.add_class::<reduce::OwnReduction>()?;
    module.add_class::<reduce::SparseStart>()?;
    module.add_class::<load_options::LoadOptions>()?;
    module.add_function(wrap_pyfunction!(payload_plans::_plan_payloads, module)?)?;
    for function in [wrap_pyfunction!(rebuild::_rebuild, module)?, wrap_pyfunction!(reduce::_reduce, module)?]
    {
        function.setattr("__module__", PUBLIC_MODULE)?;
        module.add_function(function)?;
    }
    Ok(())
}

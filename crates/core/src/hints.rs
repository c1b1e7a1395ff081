//! The hint keys of this crate. A front end words the advice for each.

crate::hint_keys! {
    /// Memory ran out: use less of it.
    FREE_MEMORY = "core.free_memory";
    /// A tensor from another library breaks its own contract.
    REPORT_INVALID_TENSOR = "core.report_invalid_tensor";
}

//! The simulated devices, and the current context of each thread.

use std::cell::RefCell;
use std::sync::LazyLock;

/// Memory of each device.
pub(crate) const DEVICE_MEMORY_BYTES: usize = 1 << 30;

/// The context of the first device; those of the other devices follow.
const FIRST_CONTEXT: usize = 0xc000;

thread_local! {
    /// The context stack of a thread, the current context last.
    static CONTEXTS: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The devices that this process sees, by physical index. `TENSORFERRY_TESTDRIVER_DEVICES=1,0` exchanges the two devices,
/// and `=1` shows only the second.
pub(crate) fn visible_devices() -> &'static [usize] {
    static DEVICES: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let text = std::env::var("TENSORFERRY_TESTDRIVER_DEVICES").unwrap_or_else(|_| "0,1".into());
        text.split(',').filter_map(|index| index.parse().ok()).collect()
    });
    &DEVICES
}

/// The ordinal of a device in this process, by its physical index.
pub(crate) fn ordinal_of(physical_index: usize) -> Option<usize> {
    visible_devices().iter().position(|&other| other == physical_index)
}

/// The primary context of a device.
pub(crate) fn context_of(device: usize) -> usize {
    FIRST_CONTEXT + device
}

/// The device whose context is current.
pub(crate) fn current_device() -> usize {
    current_context().map_or(0, |context| context - FIRST_CONTEXT)
}

pub(crate) fn current_context() -> Option<usize> {
    CONTEXTS.with_borrow(|contexts| contexts.last().copied())
}

pub(crate) fn push_context(context: usize) {
    CONTEXTS.with_borrow_mut(|contexts| contexts.push(context));
}

pub(crate) fn pop_context() -> Option<usize> {
    CONTEXTS.with_borrow_mut(Vec::pop)
}

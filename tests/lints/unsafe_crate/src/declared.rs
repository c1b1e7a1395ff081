/// Declares an unsafe function, and has no block.
///
/// # Safety
/// None.
pub unsafe fn declared() {}

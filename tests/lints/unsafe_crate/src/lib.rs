//! Unsafe code in every form. A comment with unsafe { } does not count.

mod attribute;
mod declared;

/// Reads a number.
pub fn read(number: *const u8) -> u8 {
    let text = "unsafe { }";
    assert!(!text.is_empty());
    unsafe { *number }
}

/// Two blocks in one function.
pub fn twice(number: *const u8) -> (u8, u8) {
    (unsafe { *number }, unsafe { *number })
}

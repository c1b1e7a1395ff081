//! The structs of the Arrow C data, stream and device interfaces.
//!
//! The definitions follow the specification: <https://arrow.apache.org/docs/format/CDataInterface.html>. A struct whose
//! `release` is null is released. A struct may be moved, if the memory that it leaves is marked as released.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// The flag of a schema whose dictionary has an order.
pub const FLAG_DICTIONARY_ORDERED: i64 = 1;
/// The flag of a schema whose values may be null.
pub const FLAG_NULLABLE: i64 = 2;

/// The type of a column.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowSchema {
    /// The type as text, ended by a zero byte.
    pub format: *const c_char,
    /// The name of the column, ended by a zero byte; may be null.
    pub name: *const c_char,
    /// Keys and values in a binary format; may be null.
    pub metadata: *const c_char,
    /// A combination of the flags above.
    pub flags: i64,
    /// The number of children.
    pub n_children: i64,
    /// The types of the children.
    pub children: *mut *mut ArrowSchema,
    /// The type of the values of a dictionary; null for other types.
    pub dictionary: *mut ArrowSchema,
    /// Releases the struct and its children.
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    /// Data of the producer.
    pub private_data: *mut c_void,
}

/// The memory of a column.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArray {
    /// The number of elements.
    pub length: i64,
    /// The number of nulls; -1 if it was not counted.
    pub null_count: i64,
    /// The number of elements before the first one.
    pub offset: i64,
    /// The number of buffers.
    pub n_buffers: i64,
    /// The number of children.
    pub n_children: i64,
    /// The buffers: validity first, where the type has one.
    pub buffers: *mut *const c_void,
    /// The arrays of the children.
    pub children: *mut *mut ArrowArray,
    /// The values of a dictionary; null for other types.
    pub dictionary: *mut ArrowArray,
    /// Releases the struct and its children.
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    /// Data of the producer.
    pub private_data: *mut c_void,
}

/// Arrays that are delivered one by one.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowArrayStream {
    /// Writes the type of the arrays; returns zero or an error number.
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    /// Writes the next array, which is released at the end; returns zero or an error number.
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    /// The text of the last error; may be null.
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    /// Releases the struct.
    pub release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    /// Data of the producer.
    pub private_data: *mut c_void,
}

/// The memory of a column on a device.
#[repr(C)]
#[derive(Debug)]
pub struct ArrowDeviceArray {
    /// The array, whose buffers are on the device.
    pub array: ArrowArray,
    /// The number of the device; -1 for a device without one.
    pub device_id: i64,
    /// The kind of the device, with the numbers of DLPack.
    pub device_type: i32,
    /// A pointer to an event to wait for; null without an event.
    pub sync_event: *mut c_void,
    /// Zeros.
    pub reserved: [i64; 3],
}

impl ArrowSchema {
    /// A released struct, for a producer to fill.
    pub const fn released() -> Self {
        Self {
            format: ptr::null(),
            name: ptr::null(),
            metadata: ptr::null(),
            flags: 0,
            n_children: 0,
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: None,
            private_data: ptr::null_mut(),
        }
    }
}

impl ArrowArray {
    /// A released struct, for a producer to fill.
    pub const fn released() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: ptr::null_mut(),
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: None,
            private_data: ptr::null_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_specification() {
        assert_eq!(size_of::<ArrowSchema>(), 72);
        assert_eq!(size_of::<ArrowArray>(), 80);
        assert_eq!(size_of::<ArrowArrayStream>(), 40);
        assert_eq!(size_of::<ArrowDeviceArray>(), 128);
    }
}

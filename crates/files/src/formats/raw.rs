//! Raw bytes: a file that says nothing about itself. The caller does, and the length must agree to the byte.

use crate::entry::{FileEntry, Place, TensorSpec};
use crate::fault::{bad, wrong};
use crate::open::OpenOptions;
use crate::source::FileSource;
use tensorferry_core::Result;

/// The one tensor of a file. Without a shape it has one dimension, with all that is there.
pub(crate) fn open(source: &FileSource, options: &OpenOptions) -> Result<FileEntry> {
    let Some(dtype) = options.dtype else {
        return Err(wrong("raw bytes do not say what they are", "pass dtype= and shape="));
    };
    let length = source.length();
    let shape = match &options.shape {
        Some(shape) => shape.clone(),
        None if length.is_multiple_of(dtype.size() as u64) => vec![(length / dtype.size() as u64) as i64],
        None => {
            return Err(bad(format!("its {length} bytes are no whole number of {dtype}"))
                .with_advice("pass the dtype that it was written with"));
        }
    };
    let spec =
        TensorSpec { name: String::new(), dtype, shape, order: options.order, fortran: options.fortran };
    spec.layout()?;
    FileEntry::new(spec, length, Place::Stored { file: 0, offset: 0, member: None })
        .map_err(|error| error.with_advice("pass the shape and dtype that it was written with"))
}

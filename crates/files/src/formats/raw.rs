//! Raw bytes: a file without a header. The caller names type and shape, and the file's size must match exactly.

use crate::entry::{DataLocation, FileEntry};
use crate::errors::{invalid_argument, invalid_file};
use crate::hints;
use crate::options::OpenOptions;
use crate::reading::file_source::FileSource;
use crate::spec::TensorSpec;
use tensorferry_core::Result;

/// The one tensor of a file. Without a shape it has one dimension that covers the file.
pub(crate) fn read_entry(source: &FileSource, options: &OpenOptions) -> Result<FileEntry> {
    let Some(dtype) = options.dtype else {
        return Err(invalid_argument("raw bytes need an element type", hints::DESCRIBE_RAW_BYTES));
    };
    let file_bytes = source.size();
    let item = dtype.size() as u64;
    let shape = match &options.shape {
        Some(shape) => shape.clone(),
        None if file_bytes.is_multiple_of(item) => vec![(file_bytes / item) as i64],
        None => {
            return Err(invalid_file(format!(
                "{file_bytes} bytes are not a multiple of {item}, the element size of {dtype}"
            ))
            .with_hint(hints::MATCH_RAW_DTYPE));
        }
    };
    let spec =
        TensorSpec { name: String::new(), dtype, shape, order: options.order, fortran: options.fortran };
    spec.layout()?;
    FileEntry::new(spec, file_bytes, DataLocation::Stored { file: 0, offset: 0, member: None })
        .map_err(|error| error.with_hint(hints::MATCH_RAW_SHAPE))
}

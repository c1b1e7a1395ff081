//! Detection of a file's format, by its first bytes and its name.
//!
//! | format | first bytes | extension |
//! |---|---|---|
//! | .npy | `\x93NUMPY` | `.npy` |
//! | .npz | `PK` | `.npz` |
//! | safetensors | the length of a header, then `{` | `.safetensors` |
//! | safetensors index | `{` | `.json` |
//! | TensorProto | no signature | `.pb`, `.tensorproto` |
//! | raw | no signature | `.bin`, `.raw` |
//!
//! A contradiction between the two is an error: a .npz file named `.npy` is opened as neither.

use crate::errors::{invalid_argument, invalid_file, quoted};
use crate::format::FileFormat;
use crate::formats::{npy, npz, safetensors};
use crate::hints;
use std::path::Path;
use tensorferry_core::error::HintKey;
use tensorferry_core::{Error, Result};

/// The number of first bytes that [`detect_format`] needs: the header of a zip's first member with its name, which PyTorch derives
/// from the name of the file.
pub(crate) const SIGNATURE_BYTES: u64 = 512;

/// The number of first bytes that a message shows.
const SHOWN_BYTES: usize = 64;

/// The format that the first bytes of a file indicate.
fn format_of_content(start: &[u8], file_bytes: u64) -> Option<FileFormat> {
    if start.starts_with(npy::header::MAGIC) {
        return Some(FileFormat::Npy);
    }
    if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        return Some(FileFormat::Npz);
    }
    if let Some((header_bytes, rest)) = start.split_first_chunk::<8>() {
        let header_bytes = u64::from_le_bytes(*header_bytes);
        if rest.first() == Some(&b'{')
            && header_bytes <= safetensors::MAX_HEADER_BYTES
            && header_bytes <= file_bytes.saturating_sub(8)
        {
            return Some(FileFormat::Safetensors);
        }
    }
    let text = start.trim_ascii_start();
    (text.first() == Some(&b'{')).then_some(FileFormat::SafetensorsIndex)
}

/// A known format that tensorferry does not read, as a description and a hint.
fn unsupported_format(start: &[u8]) -> Option<(&'static str, HintKey)> {
    let known: [(&[u8], _, _); 4] = [
        (b"\x80\x02", "a pickle, which can run any code", hints::LOAD_TORCH_PICKLE),
        (b"\x80\x04", "a pickle, which can run any code", hints::LOAD_PICKLE),
        (b"\x89HDF\r\n", "an HDF5 file", hints::LOAD_WITH_H5PY),
        (b"\x1f\x8b", "compressed with gzip", hints::DECOMPRESS_FIRST),
    ];
    known
        .into_iter()
        .find(|(magic, ..)| start.starts_with(magic))
        .map(|(_, description, hint)| (description, hint))
}

/// The format of a file, from the request, the first bytes and the name. `is_described` says that the caller gave the type
/// and shape of raw bytes.
pub(crate) fn detect_format(
    requested: Option<FileFormat>,
    is_described: bool,
    path: &Path,
    start: &[u8],
    file_bytes: u64,
) -> Result<FileFormat> {
    if let Some(format) = requested {
        return Ok(format);
    }
    let (content, name) = (format_of_content(start, file_bytes), FileFormat::from_path(path));
    match (content, name) {
        // One byte in 256 is a brace, which is weak evidence against a name that allows any content.
        (Some(FileFormat::SafetensorsIndex), Some(FileFormat::Raw)) => Ok(FileFormat::Raw),
        (Some(FileFormat::Npz), _) if npz::is_torch_checkpoint(start) => Err(npz::torch_checkpoint()),
        (Some(content), Some(name)) if content != name => Err(mismatch(content, name)),
        (Some(content), _) => Ok(content),
        (None, Some(name)) => match unsupported_format(start) {
            Some((description, hint)) if name != FileFormat::Raw => {
                Err(invalid_file(format!("the name says {name}, and the file is {description}"))
                    .with_hint(hint))
            }
            _ => Ok(name),
        },
        (None, None) if is_described => Ok(FileFormat::Raw),
        (None, None) => Err(match unsupported_format(start) {
            Some((description, hint)) => invalid_file(format!("the file is {description}")).with_hint(hint),
            None => invalid_argument(
                format!(
                    "the format is unknown: neither the extension nor the first bytes {} identify it",
                    quoted(&start[..start.len().min(SHOWN_BYTES)].escape_ascii().to_string())
                ),
                hints::NAME_FORMAT,
            ),
        }),
    }
}

fn mismatch(content: FileFormat, name: FileFormat) -> Error {
    invalid_file(format!("the name says {name}, and the content is {content}"))
        .with_hint_value(hints::NAME_FORMAT_OR_RENAME, content.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry_core::error::Hint;

    fn detect(name: &str, start: &[u8]) -> Result<FileFormat> {
        detect_format(None, false, Path::new(name), start, start.len() as u64)
    }

    const EMPTY_SAFETENSORS: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

    #[test]
    fn content_comes_first() {
        assert_eq!(detect("x", b"\x93NUMPY\x01\0").unwrap(), FileFormat::Npy);
        assert_eq!(detect("x.dat", b"PK\x03\x04....").unwrap(), FileFormat::Npz);
        assert_eq!(detect("x", EMPTY_SAFETENSORS).unwrap(), FileFormat::Safetensors);
        assert_eq!(detect("x", b" \n{\"weight_map\": {}}").unwrap(), FileFormat::SafetensorsIndex);
        assert_eq!(detect("x.pb", b"\x08\x01").unwrap(), FileFormat::TensorProto);
        assert_eq!(detect("x.BIN", b"\x08\x01").unwrap(), FileFormat::Raw);
    }

    #[test]
    fn a_name_that_contradicts_the_content_is_an_error() {
        let error = detect("x.npy", b"PK\x03\x04").unwrap_err();
        assert_eq!(error.hint(), Some(&Hint::Key(hints::NAME_FORMAT_OR_RENAME, Some("npz".to_owned()))));
        assert!(detect("x.bin", b"\x93NUMPY\x01\0").is_err());
        assert!(detect("x.json", EMPTY_SAFETENSORS).is_err());
    }

    #[test]
    fn a_requested_format_overrides_both() {
        let format =
            detect_format(Some(FileFormat::Raw), false, Path::new("x.npy"), b"PK\x03\x04", 4).unwrap();
        assert_eq!(format, FileFormat::Raw);
        assert_eq!(detect_format(None, true, Path::new("x"), b"12", 2).unwrap(), FileFormat::Raw);
    }

    #[test]
    fn pickles_are_recognised() {
        for name in ["x.pt", "x.npy", "x.safetensors"] {
            let error = detect(name, b"\x80\x02}q").unwrap_err();
            assert_eq!(error.hint(), Some(&Hint::Key(hints::LOAD_TORCH_PICKLE, None)));
        }
    }

    /// The start of a zip, up to the content of its first member.
    fn zip_start(member: &str) -> Vec<u8> {
        let mut start = b"PK\x03\x04".to_vec();
        start.resize(26, 0);
        start.extend((member.len() as u16).to_le_bytes());
        start.extend([0, 0]);
        start.extend(member.as_bytes());
        start
    }

    #[test]
    fn checkpoints_of_pytorch_are_recognised_under_any_name() {
        let long = format!("{}/data.pkl", "m".repeat(255));
        for (name, member) in [
            ("m.safetensors", "m/data.pkl"),
            ("m.bin", "archive/data.pkl"),
            ("m.npy", &long),
            ("m.pt", &long),
        ] {
            let error = detect(name, &zip_start(member)).unwrap_err();
            assert_eq!(error.hint(), Some(&Hint::Key(hints::LOAD_TORCH_CHECKPOINT, None)), "{name}");
        }
        let error = detect("x.safetensors", &zip_start("x.npy")).unwrap_err();
        assert_eq!(error.hint(), Some(&Hint::Key(hints::NAME_FORMAT_OR_RENAME, Some("npz".to_owned()))));
        // A name that reaches beyond the first bytes.
        let cut = &zip_start("m/data.pkl")[..35];
        assert_eq!(detect("x.npz", cut).unwrap(), FileFormat::Npz);
    }

    #[test]
    fn an_unknown_format_must_be_named() {
        let error = detect("x", b"hello").unwrap_err();
        assert_eq!(error.hint(), Some(&Hint::Key(hints::NAME_FORMAT, None)));
    }
}

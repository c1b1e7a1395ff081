//! Which format a file has: by what it begins with, and by its name where that says nothing.
//!
//! | format | begins with | name |
//! |---|---|---|
//! | .npy | `\x93NUMPY` | `.npy` |
//! | .npz | `PK` | `.npz` |
//! | safetensors | the length of a header, then `{` | `.safetensors` |
//! | index | `{` | `.json` |
//! | TensorProto | nothing that is only its own | `.pb`, `.tensorproto` |
//! | raw | anything | `.bin`, `.raw` |
//!
//! Where the two disagree somebody is wrong, and it is an error: a .npz called `.npy` is not opened under either name.

use crate::fault::{bad, quoted, wrong};
use std::fmt;
use std::path::Path;
use tensorferry_core::{Error, Result};

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// One array of NumPy's.
    Npy,
    /// A zip of .npy files.
    Npz,
    /// Named tensors behind a JSON header.
    Safetensors,
    /// Several safetensors files, by a JSON file that says which tensor is in which.
    SafetensorsIndex,
    /// One tensor as a protobuf message, ONNX's or TensorFlow's.
    TensorProto,
    /// Bytes alone; shape and type come from the caller.
    Raw,
}

impl FileFormat {
    /// Every format.
    pub const ALL: [FileFormat; 6] = [
        FileFormat::Npy,
        FileFormat::Npz,
        FileFormat::Safetensors,
        FileFormat::SafetensorsIndex,
        FileFormat::TensorProto,
        FileFormat::Raw,
    ];

    /// The name that users write and read.
    pub fn name(self) -> &'static str {
        match self {
            Self::Npy => "npy",
            Self::Npz => "npz",
            Self::Safetensors => "safetensors",
            Self::SafetensorsIndex => "safetensors-index",
            Self::TensorProto => "tensorproto",
            Self::Raw => "raw",
        }
    }

    /// The format with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The format that files of this name have.
    pub fn from_path(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "npy" => Self::Npy,
            "npz" => Self::Npz,
            "safetensors" => Self::Safetensors,
            "json" => Self::SafetensorsIndex,
            "pb" | "tensorproto" => Self::TensorProto,
            "bin" | "raw" => Self::Raw,
            _ => return None,
        })
    }

    /// Whether such a file holds one tensor, and not several by their names.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Npy | Self::TensorProto | Self::Raw)
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The format that a file of this length begins as.
pub(crate) fn from_content(start: &[u8], length: u64) -> Option<FileFormat> {
    if start.starts_with(crate::npy::MAGIC) {
        return Some(FileFormat::Npy);
    }
    if start.starts_with(b"PK\x03\x04") || start.starts_with(b"PK\x05\x06") {
        return Some(FileFormat::Npz);
    }
    if let Some((size, rest)) = start.split_first_chunk::<8>() {
        let size = u64::from_le_bytes(*size);
        if rest.first() == Some(&b'{')
            && size <= crate::safetensors::MOST_HEADER
            && size <= length.saturating_sub(8)
        {
            return Some(FileFormat::Safetensors);
        }
    }
    let text = start.trim_ascii_start();
    (text.first() == Some(&b'{')).then_some(FileFormat::SafetensorsIndex)
}

/// What else a file may be that people try to open, and what to do with it.
fn stranger(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let known: [(&[u8], _, _); 4] = [
        (
            b"\x80\x02",
            "a pickle, which can run any code",
            "load it with torch or pickle if you trust it, and save it as safetensors",
        ),
        (
            b"\x80\x04",
            "a pickle, which can run any code",
            "load it with pickle if you trust it, and save it as .npy or safetensors",
        ),
        (b"\x89HDF\r\n", "an HDF5 file", "read it with h5py"),
        (b"\x1f\x8b", "compressed with gzip", "unpack it first"),
    ];
    known.into_iter().find(|(magic, ..)| start.starts_with(magic)).map(|(_, what, hint)| (what, hint))
}

/// The format of a file, from what the caller says, what it begins with, and its name.
pub(crate) fn recognise(
    asked: Option<FileFormat>,
    described: bool,
    path: &Path,
    start: &[u8],
    length: u64,
) -> Result<FileFormat> {
    if let Some(format) = asked {
        return Ok(format);
    }
    let (content, name) = (from_content(start, length), FileFormat::from_path(path));
    match (content, name) {
        // One byte in 256 is a brace: it says too little against a name that allows anything.
        (Some(FileFormat::SafetensorsIndex), Some(FileFormat::Raw)) => Ok(FileFormat::Raw),
        (Some(content), Some(name)) if content != name => Err(mismatch(content, name)),
        (Some(content), _) => Ok(content),
        (None, Some(name)) => match stranger(start) {
            Some((what, hint)) if name != FileFormat::Raw => {
                Err(bad(format!("its name says {name}, and it is {what}")).with_advice(hint))
            }
            _ => Ok(name),
        },
        (None, None) if described => Ok(FileFormat::Raw),
        (None, None) => Err(match stranger(start) {
            Some((what, hint)) => bad(format!("it is {what}")).with_advice(hint),
            None => wrong(
                format!(
                    "neither its name nor its beginning {} tells its format",
                    quoted(&start.escape_ascii().to_string())
                ),
                "pass format=; raw bytes are loaded by load_raw, with dtype= and shape=",
            ),
        }),
    }
}

fn mismatch(content: FileFormat, name: FileFormat) -> Error {
    bad(format!("its name says {name}, and it begins as {content} does"))
        .with_advice(format!("pass format=\"{content}\", or give it the right name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, start: &[u8]) -> Result<FileFormat> {
        recognise(None, false, Path::new(name), start, start.len() as u64)
    }

    const SAFE: &[u8] = b"\x02\0\0\0\0\0\0\0{}";

    #[test]
    fn content_comes_first() {
        assert_eq!(of("x", b"\x93NUMPY\x01\0").unwrap(), FileFormat::Npy);
        assert_eq!(of("x.dat", b"PK\x03\x04....").unwrap(), FileFormat::Npz);
        assert_eq!(of("x", SAFE).unwrap(), FileFormat::Safetensors);
        assert_eq!(of("x", b" \n{\"weight_map\": {}}").unwrap(), FileFormat::SafetensorsIndex);
        assert_eq!(of("x.pb", b"\x08\x01").unwrap(), FileFormat::TensorProto);
        assert_eq!(of("x.BIN", b"\x08\x01").unwrap(), FileFormat::Raw);
    }

    #[test]
    fn content_against_name_is_an_error_with_a_hint() {
        let error = of("x.npy", b"PK\x03\x04").unwrap_err();
        assert_eq!(error.fact(), "its name says npy, and it begins as npz does");
        assert!(error.to_string().contains("pass format=\"npz\", or give it the right name"));
        assert!(of("x.bin", b"\x93NUMPY\x01\0").is_err());
        assert!(of("x.json", SAFE).is_err());
    }

    #[test]
    fn the_caller_has_the_last_word() {
        let format = recognise(Some(FileFormat::Raw), false, Path::new("x.npy"), b"PK\x03\x04", 4).unwrap();
        assert_eq!(format, FileFormat::Raw);
        assert_eq!(recognise(None, true, Path::new("x"), b"12", 2).unwrap(), FileFormat::Raw);
    }

    #[test]
    fn pickles_are_named() {
        for name in ["x.pt", "x.npy", "x.safetensors"] {
            let error = of(name, b"\x80\x02}q").unwrap_err();
            assert!(error.fact().contains("pickle") && error.to_string().contains("if you trust it"));
        }
    }

    #[test]
    fn what_nothing_tells_is_asked_for() {
        assert!(of("x", b"hello").unwrap_err().to_string().contains("format="));
    }

    #[test]
    fn every_name_reads_back() {
        for format in FileFormat::ALL {
            assert_eq!(FileFormat::from_name(format.name()), Some(format));
        }
    }
}

//! The file formats, by their names and file name extensions.

use std::fmt;
use std::path::Path;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileFormat {
    /// One NumPy array.
    Npy,
    /// A zip of .npy files.
    Npz,
    /// Named tensors behind a JSON header.
    Safetensors,
    /// A JSON file that maps the names of tensors to safetensors files.
    SafetensorsIndex,
    /// One tensor as a protobuf message of ONNX or TensorFlow.
    TensorProto,
    /// Bytes without a header; the caller names type and shape.
    Raw,
}

impl FileFormat {
    /// Every format.
    pub const ALL: &[FileFormat] = &[
        FileFormat::Npy,
        FileFormat::Npz,
        FileFormat::Safetensors,
        FileFormat::SafetensorsIndex,
        FileFormat::TensorProto,
        FileFormat::Raw,
    ];

    /// The name in arguments and messages.
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
        Self::ALL.iter().copied().find(|format| format.name() == name)
    }

    /// The format that belongs to the extension of a file name.
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

    /// Whether the format holds one tensor instead of several named ones.
    pub fn is_single(self) -> bool {
        matches!(self, Self::Npy | Self::TensorProto | Self::Raw)
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for &format in FileFormat::ALL {
            assert_eq!(FileFormat::from_name(format.name()), Some(format));
        }
    }
}

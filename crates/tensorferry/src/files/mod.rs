//! Tensors in files: safetensors with their index files, npy, npz, TensorProto and raw bytes.
//!
//! [`TensorFile::open`] validates the headers of a file, in which nothing is trusted or executed. Its entries are then read
//! into memory, which is safe, or mapped, which is not:
//!
//! ```
//! use tensorferry::files::{TensorFile, save};
//! use tensorferry::Tensor;
//!
//! # let folder = std::env::temp_dir().join(format!("tensorferry-doc-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! let path = folder.join("model.safetensors");
//! save(&path, [("weight", &Tensor::from_vec(vec![0.5f32; 6], &[2, 3])?)])?;
//!
//! let file = TensorFile::open(&path)?;
//! for entry in file.entries() {
//!     println!("{} {} {:?}", entry.name(), entry.dtype(), entry.shape());
//! }
//! let weight = file.entry("weight")?.read()?;
//! assert_eq!(weight.as_slice::<f32>()?, [0.5; 6]);
//! # std::fs::remove_dir_all(&folder).unwrap();
//! # Ok::<(), tensorferry::Error>(())
//! ```

mod options;
mod read;
mod write;

pub use options::{OpenOptions, WriteOptions};
pub use read::{FileEntry, TensorFile};
pub use tensorferry_files::{Dialect, FileFormat, MapMode};
pub use write::{FileWriter, TensorSpec, save};

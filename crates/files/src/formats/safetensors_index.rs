//! The safetensors index, `model.safetensors.index.json`: a model whose tensors are in several safetensors files (shards).
//!
//! The index maps names of tensors to names of files. It can be hostile, so a shard is named by a plain file name and lies in
//! the folder of the index. A symbolic link is followed only if its target lies in the folder of the index, or in the folder
//! where the index itself really is. Caches of model hubs need the second: every name there is a link into one folder.
//!
//! A tensor of a shard that the index does not list under that shard is skipped with a reason.

use super::json::{Members, Scalar, invalid_json};
use super::safetensors;
use crate::entry::FileContents;
use crate::errors::{invalid_file, io_error, quoted};
use crate::hints;
use crate::options::OpenOptions;
use crate::reading::file_source::FileSource;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensorferry_core::Result;

/// The limit on the size of an index. The indices of the largest models have about 10 MB.
const MAX_INDEX_BYTES: u64 = 100_000_000;
/// The limit on the shards of an index: each is held open.
const MAX_SHARDS: usize = 10_000;

/// The members of an index.
struct Index {
    metadata: Vec<(String, Scalar)>,
    /// Names of tensors and of files.
    weight_map: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IndexVisitor;
        impl<'de> Visitor<'de> for IndexVisitor {
            type Value = Index;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a weight_map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
                let (mut metadata, mut weight_map) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    let is_duplicate = match key.as_str() {
                        "metadata" => metadata.replace(map.next_value::<Members<Scalar>>()?.0).is_some(),
                        "weight_map" => weight_map.replace(map.next_value::<Members<String>>()?.0).is_some(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                    if is_duplicate {
                        return Err(A::Error::custom(format!("duplicate name {key:?}")));
                    }
                }
                let weight_map = weight_map.ok_or_else(|| A::Error::custom("weight_map is missing"))?;
                Ok(Index { metadata: metadata.unwrap_or_default(), weight_map })
            }
        }
        deserializer.deserialize_map(IndexVisitor)
    }
}

/// Parses the text of an index and validates the file names in it.
fn parse_index(text: &[u8]) -> Result<Index> {
    let index: Index = serde_json::from_slice(text).map_err(|error| invalid_json("the index", &error))?;
    for (_, file) in &index.weight_map {
        let is_plain = !file.is_empty() && file != "." && file != ".." && !file.contains(['/', '\\', '\0']);
        if !is_plain {
            return Err(invalid_file(format!(
                "the index names the file {}, which is not a plain file name",
                quoted(file)
            )));
        }
    }
    Ok(index)
}

/// Reads an index and the headers of all its shards. The first source is the index itself.
pub(crate) fn read_contents(
    source: Arc<FileSource>,
    options: &OpenOptions,
) -> Result<(FileContents, Vec<Arc<FileSource>>)> {
    if source.size() > MAX_INDEX_BYTES {
        return Err(invalid_file(format!(
            "the index has {} bytes, over the limit of {MAX_INDEX_BYTES}",
            source.size()
        )));
    }
    let index = parse_index(&source.read_to_vec(0, source.size() as usize)?)?;
    let folder = IndexFolder::of(source.path())?;
    let mut sources = vec![source];
    let mut file_indices: HashMap<&str, usize> = HashMap::new();
    for (_, file) in &index.weight_map {
        if file_indices.contains_key(file.as_str()) {
            continue;
        }
        if file_indices.len() == MAX_SHARDS {
            return Err(invalid_file(format!("the index names more than {MAX_SHARDS} files")));
        }
        file_indices.insert(file, sources.len());
        sources.push(Arc::new(folder.open_shard(file)?));
    }
    let listed: HashMap<&str, usize> =
        index.weight_map.iter().map(|(name, file)| (name.as_str(), file_indices[file.as_str()])).collect();
    let mut contents = FileContents::default();
    let (mut entries, mut skipped_names) = (HashMap::new(), HashSet::new());
    let mut files: Vec<(&str, usize)> = file_indices.iter().map(|(name, index)| (*name, *index)).collect();
    files.sort_unstable_by_key(|file| file.1);
    for (file_name, file) in files {
        let shard = safetensors::read_contents(&sources[file], file, options)
            .map_err(|error| error.at(quoted(file_name)))?;
        for entry in shard.entries {
            if listed.get(entry.name()) == Some(&file) {
                entries.insert(entry.name().to_owned(), entry);
            } else {
                let reason = invalid_file(format!(
                    "tensor {} is in {}, where the index does not list it",
                    quoted(entry.name()),
                    quoted(file_name)
                ));
                contents.skipped.push((entry.name().to_owned(), reason));
            }
        }
        skipped_names.extend(shard.skipped.iter().map(|skipped| skipped.0.clone()));
        contents.skipped.extend(shard.skipped);
    }
    for (name, file) in &index.weight_map {
        match entries.remove(name) {
            Some(entry) => contents.entries.push(entry),
            None if skipped_names.contains(name) => {}
            None => {
                return Err(invalid_file(format!(
                    "the index lists tensor {} in {}, which does not contain it",
                    quoted(name),
                    quoted(file)
                ))
                .with_hint(hints::FETCH_ALL_SHARDS));
            }
        }
    }
    contents.metadata =
        index.metadata.into_iter().filter_map(|(key, value)| value.0.map(|value| (key, value))).collect();
    Ok((contents, sources))
}

/// The folder of an index, as named and with links resolved.
struct IndexFolder {
    path: PathBuf,
    /// The resolved folder of the path, and the folder of the resolved path.
    allowed: [PathBuf; 2],
}

impl IndexFolder {
    fn of(index: &Path) -> Result<Self> {
        let path = match index.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let folder_of_target = canonicalize(index)?.parent().map_or_else(PathBuf::new, Path::to_owned);
        Ok(Self { allowed: [canonicalize(&path)?, folder_of_target], path })
    }

    fn open_shard(&self, name: &str) -> Result<FileSource> {
        let target = canonicalize(&self.path.join(name))?;
        if !self.allowed.iter().any(|folder| Some(folder.as_path()) == target.parent()) {
            return Err(invalid_file(format!(
                "the index names {}, a link that leads outside its folder",
                quoted(name)
            ))
            .with_hint(hints::PUT_SHARD_BESIDE_INDEX));
        }
        // The resolved path, so that the checked file is the one that is opened.
        FileSource::open(&target)
    }
}

fn canonicalize(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| io_error(&path.display().to_string(), &error))
}

//! Several safetensors files behind one index, as large models come: `model.safetensors.index.json`.
//!
//! The index maps names of tensors to names of files. It may be hostile, so a file is named by its bare name and lies in the
//! folder of the index; there is no way up, down or out. A symbolic link in that folder is followed only if it ends beside
//! the index: in the folder where the index is, or where the index itself really is if it too is a link. The second is how
//! the caches of model hubs look, where every name is a link into one folder of contents.
//!
//! A tensor that a file has and the index does not list under that file is skipped, and said to be.

use crate::fault::{bad, failed, quoted};
use crate::json::{Pairs, Scalar, broken};
use crate::open::{Found, OpenOptions};
use crate::safetensors;
use crate::source::FileSource;
use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tensorferry_core::Result;

/// The longest index that is read. Those of the largest models have some 10 MB.
const MOST: u64 = 100_000_000;
/// The most files that an index may name: each is held open.
const MOST_FILES: usize = 10_000;

/// The members of an index.
pub(crate) struct Index {
    metadata: Vec<(String, Scalar)>,
    /// Names of tensors and of files.
    weights: Vec<(String, String)>,
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Index;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a weight_map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Index, A::Error> {
                let (mut metadata, mut weights) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    let again = match key.as_str() {
                        "metadata" => metadata.replace(map.next_value::<Pairs<Scalar>>()?.0).is_some(),
                        "weight_map" => weights.replace(map.next_value::<Pairs<String>>()?.0).is_some(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            false
                        }
                    };
                    if again {
                        return Err(A::Error::custom(format!("{key} stands there twice")));
                    }
                }
                let weights = weights.ok_or_else(|| A::Error::custom("there is no weight_map"))?;
                Ok(Index { metadata: metadata.unwrap_or_default(), weights })
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Reads the text of an index, and checks the names in it.
pub(crate) fn parse(text: &[u8]) -> Result<Index> {
    let index: Index = serde_json::from_slice(text).map_err(|error| broken("the index", &error))?;
    for (_, file) in &index.weights {
        let plain = !file.is_empty() && file != "." && file != ".." && !file.contains(['/', '\\', '\0']);
        if !plain {
            return Err(bad(format!(
                "the index names the file {}, which is no plain file name",
                quoted(file)
            )));
        }
    }
    Ok(index)
}

/// Reads an index and the headers of all its files. The first source is the index itself.
pub(crate) fn open(source: Arc<FileSource>, options: &OpenOptions) -> Result<(Found, Vec<Arc<FileSource>>)> {
    if source.length() > MOST {
        return Err(bad(format!("an index of {} bytes; {MOST} is the most that is read", source.length())));
    }
    let index = parse(&source.bytes(0, source.length() as usize)?)?;
    let folders = Folders::of(source.path())?;
    let mut sources = vec![source];
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    for (_, file) in &index.weights {
        if numbers.contains_key(file.as_str()) {
            continue;
        }
        if numbers.len() == MOST_FILES {
            return Err(bad(format!("the index names more than {MOST_FILES} files")));
        }
        numbers.insert(file, sources.len());
        sources.push(Arc::new(folders.open(file)?));
    }
    let listed: HashMap<&str, usize> =
        index.weights.iter().map(|(name, file)| (name.as_str(), numbers[file.as_str()])).collect();
    let mut found = Found::default();
    let (mut entries, mut packed) = (HashMap::new(), HashSet::new());
    let mut names: Vec<(&str, usize)> = numbers.iter().map(|(name, number)| (*name, *number)).collect();
    names.sort_unstable_by_key(|file| file.1);
    for (name, number) in names {
        let shard =
            safetensors::open(&sources[number], number, options).map_err(|error| error.at(quoted(name)))?;
        for entry in shard.entries {
            if listed.get(entry.name()) == Some(&number) {
                entries.insert(entry.name().to_owned(), entry);
            } else {
                let why = bad(format!(
                    "the tensor {} is in {}, where the index does not have it",
                    quoted(entry.name()),
                    quoted(name)
                ));
                found.skipped.push((entry.name().to_owned(), why));
            }
        }
        packed.extend(shard.skipped.iter().map(|skipped| skipped.0.clone()));
        found.skipped.extend(shard.skipped);
    }
    for (name, file) in &index.weights {
        match entries.remove(name) {
            Some(entry) => found.entries.push(entry),
            None if packed.contains(name) => {}
            None => {
                return Err(bad(format!(
                    "the index has the tensor {} in {}, which lacks it",
                    quoted(name),
                    quoted(file)
                ))
                .with_advice("fetch all files again: they are not of one version"));
            }
        }
    }
    found.metadata =
        index.metadata.into_iter().filter_map(|(key, value)| value.0.map(|value| (key, value))).collect();
    Ok((found, sources))
}

/// The folders in which the files of an index may lie.
struct Folders {
    named: PathBuf,
    real: [PathBuf; 2],
}

impl Folders {
    fn of(index: &Path) -> Result<Self> {
        let real =
            |path: &Path| path.canonicalize().map_err(|error| failed(&path.display().to_string(), &error));
        let named = match index.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        let beside = real(index)?.parent().map_or_else(PathBuf::new, Path::to_owned);
        Ok(Self { real: [real(&named)?, beside], named })
    }

    fn open(&self, name: &str) -> Result<FileSource> {
        let path = self.named.join(name);
        let real = path.canonicalize().map_err(|error| failed(&path.display().to_string(), &error))?;
        if !self.real.iter().any(|folder| Some(folder.as_path()) == real.parent()) {
            return Err(bad(format!("the index names {}, which is a link out of its folder", quoted(name)))
                .with_advice("put the file itself beside the index"));
        }
        // By its real path, so that what was checked is what is opened.
        FileSource::open(&real)
    }
}

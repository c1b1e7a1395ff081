//! Producers for tests: columns that own their memory and count their releases. Tests change single fields of a struct.

use std::ffi::{CString, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_arrow::abi::{ArrowArray, ArrowSchema};

/// A column to be produced.
#[derive(Clone, Default)]
pub(crate) struct Produced {
    pub(crate) format: &'static str,
    pub(crate) name: &'static str,
    pub(crate) metadata: Vec<(&'static str, String)>,
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    /// A null pointer for `None`.
    pub(crate) buffers: Vec<Option<Vec<u8>>>,
    pub(crate) children: Vec<Produced>,
    pub(crate) dictionary: Option<Box<Produced>>,
}

/// How often the structs of a column were released.
#[derive(Clone, Default)]
pub(crate) struct Releases(Arc<AtomicUsize>);

impl Releases {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct SchemaMemory {
    _format: CString,
    _name: CString,
    _metadata: Vec<u8>,
    children: Vec<*mut ArrowSchema>,
    dictionary: *mut ArrowSchema,
    releases: Releases,
}

struct ArrayMemory {
    _storage: Vec<Option<Vec<u8>>>,
    _buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    dictionary: *mut ArrowArray,
    releases: Releases,
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: `schema` made the private data with a box, and the struct is released once. Children are boxes too.
    unsafe {
        let memory = Box::from_raw((*schema).private_data.cast::<SchemaMemory>());
        let dictionary = (!memory.dictionary.is_null()).then_some(memory.dictionary);
        for child in memory.children.iter().copied().chain(dictionary) {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*schema).release = None;
        memory.releases.0.fetch_add(1, Ordering::SeqCst);
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as in `release_schema`.
    unsafe {
        let memory = Box::from_raw((*array).private_data.cast::<ArrayMemory>());
        let dictionary = (!memory.dictionary.is_null()).then_some(memory.dictionary);
        for child in memory.children.iter().copied().chain(dictionary) {
            let mut child = Box::from_raw(child);
            if let Some(release) = child.release {
                release(&raw mut *child);
            }
        }
        (*array).release = None;
        memory.releases.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn encode_metadata(pairs: &[(&'static str, String)]) -> Vec<u8> {
    let mut bytes = (pairs.len() as i32).to_ne_bytes().to_vec();
    for (key, value) in pairs {
        for text in [key.as_bytes(), value.as_bytes()] {
            bytes.extend((text.len() as i32).to_ne_bytes());
            bytes.extend(text);
        }
    }
    bytes
}

impl Produced {
    /// Numbers without nulls.
    pub(crate) fn numbers<T: Copy>(format: &'static str, values: &[T]) -> Self {
        Self {
            format,
            length: values.len() as i64,
            buffers: vec![None, Some(bytes_of(values))],
            ..Self::default()
        }
    }

    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The same column with nulls where a bit of the validity is zero.
    pub(crate) fn with_validity(mut self, bits: &[u8]) -> Self {
        self.buffers[0] = Some(bits.to_vec());
        self.null_count = -1;
        self
    }

    pub(crate) fn with_extension(mut self, name: &str, metadata: &str) -> Self {
        self.metadata = vec![
            ("ARROW:extension:name", name.to_owned()),
            ("ARROW:extension:metadata", metadata.to_owned()),
        ];
        self
    }

    /// Some of the elements.
    pub(crate) fn slice(mut self, offset: i64, length: i64) -> Self {
        self.offset += offset;
        self.length = length;
        if self.null_count > 0 {
            self.null_count = -1;
        }
        self
    }

    /// A parent of other columns.
    pub(crate) fn parent(format: &'static str, length: i64, children: Vec<Self>) -> Self {
        Self { format, length, buffers: vec![None], children, ..Self::default() }
    }

    pub(crate) fn schema(&self, releases: &Releases) -> ArrowSchema {
        let format = CString::new(self.format).unwrap();
        let name = CString::new(self.name).unwrap();
        let metadata = encode_metadata(&self.metadata);
        let boxed = |child: &Self| Box::into_raw(Box::new(child.schema(releases)));
        let mut memory = Box::new(SchemaMemory {
            children: self.children.iter().map(boxed).collect(),
            dictionary: self.dictionary.as_deref().map_or(ptr::null_mut(), boxed),
            _format: format,
            _name: name,
            _metadata: metadata,
            releases: releases.clone(),
        });
        ArrowSchema {
            format: memory._format.as_ptr(),
            name: memory._name.as_ptr(),
            metadata: if self.metadata.is_empty() { ptr::null() } else { memory._metadata.as_ptr().cast() },
            flags: 2,
            n_children: memory.children.len() as i64,
            children: memory.children.as_mut_ptr(),
            dictionary: memory.dictionary,
            release: Some(release_schema),
            private_data: Box::into_raw(memory).cast(),
        }
    }

    pub(crate) fn array(&self, releases: &Releases) -> ArrowArray {
        let boxed = |child: &Self| Box::into_raw(Box::new(child.array(releases)));
        let storage = self.buffers.clone();
        let pointer =
            |buffer: &Option<Vec<u8>>| buffer.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast());
        let mut memory = Box::new(ArrayMemory {
            _buffers: storage.iter().map(pointer).collect(),
            _storage: storage,
            children: self.children.iter().map(boxed).collect(),
            dictionary: self.dictionary.as_deref().map_or(ptr::null_mut(), boxed),
            releases: releases.clone(),
        });
        ArrowArray {
            length: self.length,
            null_count: self.null_count,
            offset: self.offset,
            n_buffers: memory._buffers.len() as i64,
            n_children: memory.children.len() as i64,
            buffers: memory._buffers.as_mut_ptr(),
            children: memory.children.as_mut_ptr(),
            dictionary: memory.dictionary,
            release: Some(release_array),
            private_data: Box::into_raw(memory).cast(),
        }
    }

    /// The number of structs of each kind.
    pub(crate) fn structs(&self) -> usize {
        1 + self.children.iter().map(Self::structs).sum::<usize>()
            + self.dictionary.as_deref().map_or(0, Self::structs)
    }
}

pub(crate) fn bytes_of<T: Copy>(values: &[T]) -> Vec<u8> {
    // SAFETY: the numbers of these tests have no padding, so that all their bytes are written.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }.to_vec()
}

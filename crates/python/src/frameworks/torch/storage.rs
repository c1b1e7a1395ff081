//! Which memory a storage owns, and whether PyTorch's own CPU allocator allocated it.
//!
//! A tensor can outlive its memory: `x.untyped_storage().resize_(0)` frees it, and shape and strides stay. So the range of the
//! storage is compared with that of every tensor that is read.
//!
//! The allocator aligns to 64 bytes. A storage can also wrap memory of other libraries (`torch.from_numpy`, DLPack), and no
//! public function distinguishes the two: `resizable()` is false for wrapped memory, but also after `t.numpy()` and for
//! tensors of `torch.load`. Three words of the C++ storage do: the data pointer, the deleter, and the deleter's argument, which
//! equals the data pointer for memory of the allocator.
//!
//! The offsets of these words and of the size are not hard-coded. A probe finds them in sample storages of the allocator and
//! of NumPy memory (the fast path `torch.storage`). If it fails, methods of the storage are called.

use super::cpp_object::CppObject;
use crate::errors::Result;
use crate::fast_paths::{self, FastPath, Probed, Unusable, present};
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyString, PyType};

/// How many words of a C++ storage are read. The object has more in every version since 2.0.
const STORAGE_WORDS: usize = 8;

/// Reads the words of the C++ storage, or calls methods of the storage without the fast path.
pub(super) struct Storages(Option<StorageProbe>);

struct StorageProbe {
    storage: CppObject,
    words: Words,
}

/// The indices of the words in a C++ storage, and the deleter of the allocator's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    data: usize,
    deleter: usize,
    argument: usize,
    size: usize,
    /// The deleter of PyTorch's CPU allocator.
    deleter_address: usize,
}

/// A storage whose data pointer and size are known.
struct Sample {
    words: [usize; STORAGE_WORDS],
    data: usize,
    size: usize,
}

impl Storages {
    /// Runs the probe. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchStorage, || StorageProbe::find(torch)))
    }

    /// The address of the storage's memory, and its size in bytes.
    ///
    /// # Safety
    /// The object is a `torch.UntypedStorage`.
    #[inline(always)]
    pub(super) unsafe fn range(&self, storage: &Bound<'_, PyAny>) -> Result<(usize, usize)> {
        let Some(StorageProbe { storage: object, words }) = &self.0 else {
            let py = storage.py();
            let data = storage.call_method0(interned!(py, "data_ptr"))?.extract()?;
            return Ok((data, storage.call_method0(interned!(py, "nbytes"))?.extract()?));
        };
        // SAFETY: `read` requires a `torch.UntypedStorage`, as does this function.
        let found = unsafe { read(*object, storage) };
        Ok((found[words.data], found[words.size]))
    }

    /// Whether the alignment of the memory is guaranteed: PyTorch allocated it, or mapped it as shared memory.
    ///
    /// # Safety
    /// The object is a `torch.UntypedStorage`.
    pub(super) unsafe fn is_aligned(&self, storage: &Bound<'_, PyAny>) -> bool {
        let is_allocated = match &self.0 {
            // SAFETY: `read` requires a `torch.UntypedStorage`, as does this function.
            Some(probe) => probe.words.matches_allocator(&unsafe { read(probe.storage, storage) }),
            None => call_predicate(storage, interned!(storage.py(), "resizable")),
        };
        is_allocated || call_predicate(storage, interned!(storage.py(), "is_shared"))
    }
}

/// The truth value of a method of the storage; false if it raises an exception.
fn call_predicate(storage: &Bound<'_, PyAny>, name: &Bound<'_, PyString>) -> bool {
    storage.call_method0(name).and_then(|value| value.is_truthy()).unwrap_or(false)
}

/// The first words of the C++ storage.
///
/// # Safety
/// The object is a `torch.UntypedStorage`, and `object` was found in samples of that type.
#[inline(always)]
unsafe fn read(object: CppObject, storage: &Bound<'_, PyAny>) -> [usize; STORAGE_WORDS] {
    // SAFETY: `implementation` requires an instance of the type of its samples, as the contract of `read` says. The Python object
    // keeps the C++ storage alive, which has at least these words in every version since 2.0. Integers have no invalid values.
    unsafe { object.implementation(storage).cast::<[usize; STORAGE_WORDS]>().read() }
}

impl StorageProbe {
    /// Finds the words in sample storages of both kinds.
    fn find(torch: &Bound<'_, PyModule>) -> Probed<Self> {
        let kind = present(torch.getattr("UntypedStorage"))?.cast_into::<PyType>().map_err(PyErr::from)?;
        let options = [("device", "cpu")].into_py_dict(torch.py())?;
        let create = |name: &str, length: i32| torch.call_method(name, (length,), Some(&options));
        let array = torch.py().import("numpy")?.call_method1("ones", (16,))?;
        let tensors = [
            create("empty", 16)?,
            create("ones", 1000)?,
            create("arange", 3)?,
            torch.call_method1("from_numpy", (&array,))?,
            torch.call_method1("from_dlpack", (&array,))?,
        ];
        let mut storages = Vec::new();
        for tensor in tensors {
            let storage = tensor.call_method0("untyped_storage")?;
            if !objects::has_type(&storage, &kind) {
                return Err(Unusable::failed("a storage is not an instance of UntypedStorage"));
            }
            storages.push(storage);
        }
        let storage = CppObject::of(&storages.iter().collect::<Vec<_>>())?;
        let mut samples = Vec::new();
        for object in &storages {
            // SAFETY: `read` requires a `torch.UntypedStorage`: the loop above has compared the types.
            let words = unsafe { read(storage, object) };
            let (data, size) = (object.call_method0("data_ptr")?, object.call_method0("nbytes")?);
            samples.push(Sample { words, data: data.extract()?, size: size.extract()? });
        }
        let words = Words::of(&samples[..3], &samples[3..])
            .ok_or_else(|| Unusable::failed("the words do not distinguish PyTorch's memory from NumPy's"))?;
        Ok(Self { storage, words })
    }
}

impl Words {
    /// The words that hold the data pointer twice, and one deleter, in all storages of the allocator and in no other; and the
    /// only word that holds the size.
    fn of(allocated: &[Sample], wrapped: &[Sample]) -> Option<Self> {
        let indices = |holds: fn(&Sample, usize) -> bool| {
            (0..STORAGE_WORDS).filter(move |&index| allocated.iter().all(|sample| holds(sample, index)))
        };
        let mut pointers = indices(|sample, index| sample.words[index] == sample.data && sample.data != 0);
        let mut sizes = indices(|sample, index| sample.words[index] == sample.size);
        let (data, argument, size) = (pointers.next()?, pointers.next()?, sizes.next()?);
        let first = allocated.first()?;
        let found = (data + 1..argument)
            .map(|deleter| Self { data, deleter, argument, size, deleter_address: first.words[deleter] })
            .find(|words| {
                allocated.iter().all(|sample| words.matches_allocator(&sample.words))
                    && wrapped.iter().all(|Sample { words: found, data: address, size: bytes }| {
                        (found[data], found[size]) == (*address, *bytes) && !words.matches_allocator(found)
                    })
            });
        found.filter(|_| pointers.next().is_none() && sizes.next().is_none())
    }

    fn matches_allocator(self, found: &[usize; STORAGE_WORDS]) -> bool {
        found[self.data] == found[self.argument] && found[self.deleter] == self.deleter_address
    }
}

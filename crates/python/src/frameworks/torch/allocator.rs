//! Whether PyTorch's own CPU allocator allocated the memory of a storage.
//!
//! That allocator aligns to 64 bytes. A storage can also wrap memory of other libraries (`torch.from_numpy`, DLPack), and no
//! public function distinguishes the two: `resizable()` is false for wrapped memory, but also after `t.numpy()` and for
//! tensors of `torch.load`. Three words of the C++ storage do: the data pointer, the deleter, and the deleter's argument, which
//! equals the data pointer for memory of the allocator.
//!
//! The offsets of these words are not hard-coded. A probe finds them in sample storages of the allocator and of NumPy memory,
//! and verifies that they distinguish the two (the fast path `torch.allocator`). If it fails, `resizable()` is called.

use crate::fast_paths::{self, FastPath, Probed, Unusable, present};
use crate::interpreter::objects;
use crate::interpreter::once::interned;
use crate::interpreter::slots::Attribute;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyString, PyType};

/// How many words of a C++ storage are read. The object has more in every version since 2.0.
const STORAGE_WORDS: usize = 5;

/// Recognises the allocator's memory by the words of the C++ storage, or by `resizable` without the fast path.
pub(super) struct Allocator(Option<StorageProbe>);

struct StorageProbe {
    /// `_cdata`, the address of the C++ storage.
    address: Attribute,
    words: Words,
}

/// The indices of the words in a C++ storage, and the deleter of the allocator's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    data: usize,
    argument: usize,
    deleter: usize,
    /// The deleter of PyTorch's CPU allocator.
    deleter_address: usize,
}

impl Allocator {
    /// Runs the probe. The calling thread must not be inside a mode.
    pub(super) fn of(torch: &Bound<'_, PyModule>) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchAllocator, || StorageProbe::find(torch)))
    }

    /// Whether the alignment of the memory is guaranteed: PyTorch allocated it, or mapped it as shared memory.
    ///
    /// # Safety
    /// The object is a `torch.UntypedStorage`.
    pub(super) unsafe fn is_aligned(&self, storage: &Bound<'_, PyAny>) -> bool {
        // SAFETY: `read` requires a `torch.UntypedStorage`, as the contract of `is_aligned` says, and the attribute `_cdata` of its
        // type: `StorageProbe::find` took it from `StorageBase`, the base of that type.
        let is_allocated = unsafe {
            match &self.0 {
                Some(probe) => {
                    read(&probe.address, storage).is_ok_and(|found| probe.words.matches_allocator(&found))
                }
                None => call_predicate(storage, interned!(storage.py(), "resizable")),
            }
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
/// The object is a `torch.UntypedStorage`, and the attribute is `_cdata` of its type.
unsafe fn read(address: &Attribute, storage: &Bound<'_, PyAny>) -> PyResult<[usize; STORAGE_WORDS]> {
    // SAFETY: `Attribute::get` requires an instance of the attribute's type, as the contract of `read` says. `_cdata` is the
    // address of the C++ storage, which the Python object keeps alive and which has at least these words in every version since
    // 2.0. Integers have no invalid values.
    unsafe {
        let address = address.get(storage)?.extract::<usize>()?;
        Ok((address as *const [usize; STORAGE_WORDS]).read())
    }
}

impl StorageProbe {
    /// Finds the words in sample storages of both kinds.
    fn find(torch: &Bound<'_, PyModule>) -> Probed<Self> {
        let base = present(torch.getattr("_C")?.getattr("StorageBase"))?;
        let base = base.cast_into::<PyType>().map_err(PyErr::from)?;
        let address = Attribute::of(&base, c"_cdata");
        let storage = |tensor: Bound<'_, PyAny>| -> Probed<([usize; STORAGE_WORDS], usize)> {
            let storage = tensor.call_method0("untyped_storage")?;
            if !objects::has_type(&storage, &base) {
                return Err(Unusable::failed("a storage is not an instance of StorageBase"));
            }
            present(storage.getattr("_cdata"))?;
            // SAFETY: `read` requires a `torch.UntypedStorage` and its `_cdata`: `untyped_storage` returned the object, whose class
            // was compared with `StorageBase`, and the attribute was found in that class.
            Ok((unsafe { read(&address, &storage) }?, storage.call_method0("data_ptr")?.extract()?))
        };
        let options = [("device", "cpu")].into_py_dict(torch.py())?;
        let create = |name: &str, length: i32| torch.call_method(name, (length,), Some(&options));
        let allocated =
            [storage(create("empty", 16)?)?, storage(create("ones", 1000)?)?, storage(create("arange", 3)?)?];
        let array = torch.py().import("numpy")?.call_method1("ones", (16,))?;
        let wrapped = [
            storage(torch.call_method1("from_numpy", (&array,))?)?,
            storage(torch.call_method1("from_dlpack", (&array,))?)?,
        ];
        let words = Words::of(&allocated, &wrapped)
            .ok_or_else(|| Unusable::failed("the words do not distinguish PyTorch's memory from NumPy's"))?;
        Ok(Self { address, words })
    }
}

impl Words {
    /// The words that hold the data pointer twice, and one deleter, in all storages of the allocator and in no other.
    fn of(
        allocated: &[([usize; STORAGE_WORDS], usize)],
        wrapped: &[([usize; STORAGE_WORDS], usize)],
    ) -> Option<Self> {
        let is_data =
            |index: usize| allocated.iter().all(|(words, data)| words[index] == *data && *data != 0);
        let mut indices = (0..STORAGE_WORDS).filter(|&index| is_data(index));
        let (data, argument) = (indices.next()?, indices.next()?);
        let (first, _) = allocated.first()?;
        let found = (data + 1..argument)
            .map(|deleter| Self { data, argument, deleter, deleter_address: first[deleter] })
            .find(|words| {
                allocated.iter().all(|(found, _)| words.matches_allocator(found))
                    && wrapped
                        .iter()
                        .all(|(found, address)| found[data] == *address && !words.matches_allocator(found))
            });
        found.filter(|_| indices.next().is_none())
    }

    fn matches_allocator(self, found: &[usize; STORAGE_WORDS]) -> bool {
        found[self.data] == found[self.argument] && found[self.deleter] == self.deleter_address
    }
}

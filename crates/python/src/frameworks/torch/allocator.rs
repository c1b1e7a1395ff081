//! Whether PyTorch itself allocated the memory of a storage.
//!
//! PyTorch's CPU allocator aligns to 64 bytes. A storage may also hold memory from elsewhere (`torch.from_numpy`, DLPack),
//! and no public function tells the two apart: `resizable()` is false for foreign memory, but also after `t.numpy()` and
//! for what `torch.load` read. The C++ storage has three words that do: the data pointer, the deleter and the deleter's
//! argument, which for memory of the allocator is the data pointer again.
//!
//! Where these words lie is not taken on trust. They are looked for in storages made for the purpose, of the allocator and
//! of NumPy's memory, and must tell them apart (the fast path `torch.allocator`); otherwise `resizable()` is asked.

use crate::fast_paths::{self, FastPath, Probed, Unusable, present};
use crate::interpreter::slots::Attribute;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyString, PyType};

/// How many words of a C++ storage are looked at. The object has more in every version since 2.0.
const WORDS: usize = 5;

/// How to tell: by the words of the C++ storage, or by `resizable`.
pub(super) struct Allocator(Option<Known>);

struct Known {
    /// The address of the C++ storage.
    address: Attribute,
    words: Words,
}

/// Where the words of a C++ storage lie, and what they are for memory of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    data: usize,
    argument: usize,
    deleter: usize,
    /// The deleter of PyTorch's CPU allocator.
    frees: usize,
}

impl Allocator {
    /// Called on a thread on which no mode is on.
    pub(super) fn of(torch: &Bound<'_, PyModule>) -> Self {
        Self(fast_paths::probe(torch.py(), FastPath::TorchAllocator, || Known::find(torch)))
    }

    /// Whether memory of this storage is aligned by construction: PyTorch allocated it, or mapped it.
    ///
    /// # Safety
    /// The object is a storage of PyTorch's.
    pub(super) unsafe fn made(&self, storage: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the caller's contract.
        let own = unsafe {
            match &self.0 {
                Some(known) => read(&known.address, storage).is_ok_and(|found| known.words.fit(&found)),
                None => says(storage, intern!(storage.py(), "resizable")),
            }
        };
        own || says(storage, intern!(storage.py(), "is_shared"))
    }
}

/// What a storage answers to a question.
fn says(storage: &Bound<'_, PyAny>, question: &Bound<'_, PyString>) -> bool {
    storage.call_method0(question).and_then(|answer| answer.is_truthy()).unwrap_or(false)
}

/// The first words of the C++ storage.
///
/// # Safety
/// The object is a storage of PyTorch's, and the attribute is `_cdata` of its type.
unsafe fn read(address: &Attribute, storage: &Bound<'_, PyAny>) -> PyResult<[usize; WORDS]> {
    // SAFETY: the attribute is the address of a live C++ object that is larger than the words.
    unsafe {
        let address = address.get(storage)?.extract::<usize>()?;
        Ok((address as *const [usize; WORDS]).read())
    }
}

impl Known {
    /// Finds the words, in storages of both kinds.
    fn find(torch: &Bound<'_, PyModule>) -> Probed<Self> {
        let base = present(torch.getattr("_C")?.getattr("StorageBase"))?;
        let base = base.cast_into::<PyType>().map_err(PyErr::from)?;
        let address = Attribute::of(&base, c"_cdata");
        let storage = |tensor: Bound<'_, PyAny>| -> Probed<([usize; WORDS], usize)> {
            let storage = tensor.call_method0("untyped_storage")?;
            if !storage.is_instance(&base)? {
                return Err(Unusable::failed("a storage is not an instance of StorageBase"));
            }
            present(storage.getattr("_cdata"))?;
            // SAFETY: a storage, as was just checked, which has the attribute.
            Ok((unsafe { read(&address, &storage) }?, storage.call_method0("data_ptr")?.extract()?))
        };
        let place = [("device", "cpu")].into_py_dict(torch.py())?;
        let made = |name: &str, length: i32| torch.call_method(name, (length,), Some(&place));
        let own = [storage(made("empty", 16)?)?, storage(made("ones", 1000)?)?, storage(made("arange", 3)?)?];
        let array = torch.py().import("numpy")?.call_method1("ones", (16,))?;
        let foreign = [
            storage(torch.call_method1("from_numpy", (&array,))?)?,
            storage(torch.call_method1("from_dlpack", (&array,))?)?,
        ];
        let words = Words::of(&own, &foreign)
            .ok_or_else(|| Unusable::failed("its words do not tell PyTorch's memory from NumPy's"))?;
        Ok(Self { address, words })
    }
}

impl Words {
    /// The places that hold the data pointer twice and one deleter in all storages of the allocator, and in no other.
    fn of(own: &[([usize; WORDS], usize)], foreign: &[([usize; WORDS], usize)]) -> Option<Self> {
        let everywhere = |place: usize| own.iter().all(|(words, data)| words[place] == *data && *data != 0);
        let mut places = (0..WORDS).filter(|&place| everywhere(place));
        let (data, argument) = (places.next()?, places.next()?);
        let (first, _) = own.first()?;
        let found = (data + 1..argument)
            .map(|deleter| Self { data, argument, deleter, frees: first[deleter] })
            .find(|words| {
                own.iter().all(|(found, _)| words.fit(found))
                    && foreign.iter().all(|(found, address)| found[data] == *address && !words.fit(found))
            });
        found.filter(|_| places.next().is_none())
    }

    fn fit(self, found: &[usize; WORDS]) -> bool {
        found[self.data] == found[self.argument] && found[self.deleter] == self.frees
    }
}

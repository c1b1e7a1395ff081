//! Whether PyTorch itself allocated the memory of a storage.
//!
//! PyTorch's CPU allocator aligns to 64 bytes. A storage may also hold memory from elsewhere (`torch.from_numpy`, DLPack),
//! and no public function tells the two apart: `resizable()` is false for foreign memory, but also after `t.numpy()` and
//! for what `torch.load` read. The C++ storage has three words that do: the data pointer, the deleter and the deleter's
//! argument, which for memory of the allocator is the data pointer again.
//!
//! Where these words lie is not taken on trust. They are looked for in storages made for the purpose, of the allocator and
//! of NumPy's memory, and must tell them apart; otherwise `resizable()` is asked.

use crate::settings::fast_paths_disabled;
use crate::slots::{Attribute, Method};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// How many words of a C++ storage are looked at. The object has more in every version since 2.0.
const WORDS: usize = 5;

pub(super) struct Allocator {
    /// The address of the C++ storage.
    address: Attribute,
    resizable: Method,
    words: Option<Words>,
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
    pub(super) fn of(torch: &Bound<'_, PyModule>) -> PyResult<Self> {
        let base = torch.getattr("_C")?.getattr("StorageBase")?.cast_into::<PyType>()?;
        let mut allocator = Self {
            address: Attribute::of(&base, c"_cdata")?,
            resizable: Method::of(&base, c"resizable")?,
            words: None,
        };
        if !fast_paths_disabled() {
            // Modes of the caller's must not see the samples, nor call back from here.
            allocator.words = super::quietly(torch, || allocator.find(torch))?;
        }
        Ok(allocator)
    }

    /// Whether memory of this storage is aligned by construction: PyTorch allocated it, or mapped it.
    ///
    /// # Safety
    /// The object is a storage of PyTorch's.
    pub(super) unsafe fn made(&self, storage: &Bound<'_, PyAny>) -> bool {
        // SAFETY: the caller's contract.
        let own = unsafe {
            match self.words {
                Some(words) => self.read(storage).is_ok_and(|found| words.fit(&found)),
                None => self.resizable.is_true(storage).unwrap_or(false),
            }
        };
        own || storage
            .call_method0(intern!(storage.py(), "is_shared"))
            .and_then(|shared| shared.is_truthy())
            .unwrap_or(false)
    }

    /// The first words of the C++ storage.
    ///
    /// # Safety
    /// The object is a storage of PyTorch's.
    unsafe fn read(&self, storage: &Bound<'_, PyAny>) -> PyResult<[usize; WORDS]> {
        // SAFETY: the object is a storage, so the attribute is one of its type's, and is the address of a live C++ object
        // that is larger than the words.
        unsafe {
            let address = self.address.get(storage)?.extract::<usize>()?;
            Ok((address as *const [usize; WORDS]).read())
        }
    }

    /// Finds the words, in storages of both kinds.
    fn find(&self, torch: &Bound<'_, PyModule>) -> PyResult<Option<Words>> {
        let storage = |tensor: Bound<'_, PyAny>| -> PyResult<([usize; WORDS], usize)> {
            let storage = tensor.call_method0("untyped_storage")?;
            // SAFETY: a storage, as the method's name says; torch was imported, so this is its own method.
            Ok((unsafe { self.read(&storage) }?, storage.call_method0("data_ptr")?.extract()?))
        };
        let own = [
            storage(torch.call_method1("empty", (16,))?)?,
            storage(torch.call_method1("ones", (1000,))?)?,
            storage(torch.call_method1("arange", (3,))?)?,
        ];
        let array = torch.py().import("numpy")?.call_method1("ones", (16,))?;
        let foreign = [
            storage(torch.call_method1("from_numpy", (&array,))?)?,
            storage(torch.call_method1("from_dlpack", (&array,))?)?,
        ];
        Ok(Words::of(&own, &foreign))
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

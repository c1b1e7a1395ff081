//! Tickets, as Python passes them on.

use crate::errors::{Result, describe, fail};
use crate::interpreter::guard;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};
use tensorferry_core::ErrorKind;
use tensorferry_share::Publication;

/// A claim on tensors that a process has published: what `publish` gives, and what `attach` takes.
///
/// `str(ticket)` and `bytes(ticket)` are the whole claim, for an environment variable, a command line or a pipe;
/// `Ticket(text)` reads it back. In the process that published, others can attach for as long as this object lives, or
/// until `withdraw`; `with` withdraws at the end of its block. A ticket that was pickled (put into a queue of
/// multiprocessing, say) is good for one consumer also when this object is gone by then, for an hour.
///
/// Example:
///     >>> ticket = ferry.publish(np.arange(3))
///     >>> ferry.Ticket(str(ticket)).pid == ticket.pid
///     True
#[pyclass(frozen, module = "tensorferry", name = "Ticket")]
pub(crate) struct Ticket {
    claim: tensorferry_share::Ticket,
    publication: Option<Publication>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(publication) = self.publication.take() else { return };
        // What it held may be a lot of memory, which takes its time.
        if !guard::exits() {
            Python::attach(|py| py.detach(move || drop(publication)));
        }
    }
}

impl Ticket {
    /// The ticket of a publication of our own.
    pub(super) fn of(publication: Publication) -> Self {
        Self { claim: publication.ticket().clone(), publication: Some(publication) }
    }

    /// The publication, in the process that has made it: the child of a fork has the object too.
    fn own(&self) -> Option<&Publication> {
        self.publication.as_ref().filter(|_| self.claim.process() == std::process::id())
    }

    /// The claim in whatever form it was passed.
    pub(super) fn claim_of(given: &Bound<'_, PyAny>) -> Result<tensorferry_share::Ticket> {
        if let Ok(ticket) = given.cast::<Self>() {
            return Ok(ticket.get().claim.clone());
        }
        if let Ok(text) = given.cast::<PyString>() {
            // What a shell or a file adds around a word.
            return Ok(tensorferry_share::Ticket::from_text(text.to_string_lossy().trim())?);
        }
        if let Ok(bytes) = given.cast::<PyBytes>() {
            return Ok(tensorferry_share::Ticket::from_bytes(bytes.as_bytes())?);
        }
        let fact = format!("{} is no ticket", describe(given));
        Err(fail(ErrorKind::InvalidArgument, fact, "pass what publish() gave, or its text or bytes"))
    }
}

#[pymethods]
impl Ticket {
    #[new]
    fn new(claim: &Bound<'_, PyAny>) -> Result<Self> {
        Ok(Self { claim: Self::claim_of(claim)?, publication: None })
    }

    /// How many consumers hold the tensors now; None where the ticket is another process's.
    #[getter]
    fn leases(&self) -> Option<usize> {
        self.own().map(Publication::leases)
    }

    /// How many consumers have come, those included that have gone; None where the ticket is another process's.
    #[getter]
    fn consumers(&self) -> Option<usize> {
        self.own().map(Publication::served)
    }

    /// The process ID of the producer.
    #[getter]
    fn pid(&self) -> u32 {
        self.claim.process()
    }

    /// Lets nobody in any more. Those who are in keep what they have.
    fn withdraw(&self, py: Python<'_>) -> Result<()> {
        let Some(publication) = self.own() else {
            let fact = format!("{} was received, and is not ours to withdraw", self.claim);
            return Err(fail(ErrorKind::InvalidArgument, fact, "withdraw it where it was published"));
        };
        py.detach(|| publication.withdraw());
        Ok(())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> Result<()> {
        if self.own().is_some() { self.withdraw(py) } else { Ok(()) }
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.claim.to_bytes())
    }

    fn __str__(&self) -> String {
        self.claim.to_text()
    }

    /// Without the secret: a log is no place for it.
    fn __repr__(&self) -> String {
        match self.leases() {
            Some(leases) => format!("<Ticket: {}, {leases} leases>", self.claim),
            None => format!("<Ticket: {}>", self.claim),
        }
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, operation: CompareOp) -> Py<PyAny> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return py.NotImplemented() };
        let same = self.claim == other.get().claim;
        match operation {
            CompareOp::Eq => same.into_pyobject(py).map(|answer| answer.to_owned().into_any().unbind()),
            CompareOp::Ne => (!same).into_pyobject(py).map(|answer| answer.to_owned().into_any().unbind()),
            _ => return py.NotImplemented(),
        }
        .unwrap_or_else(|_| py.NotImplemented())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.claim.id().hash(&mut hasher);
        hasher.finish()
    }

    /// For pickles: the claim travels, and one more consumer is promised to be let in.
    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = this.py();
        if let Some(publication) = this.get().own() {
            publication.promise();
        }
        let bytes = this.get().__bytes__(py);
        (this.get_type(), (bytes,)).into_pyobject(py)
    }

    fn __copy__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __deepcopy__(this: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        this
    }
}

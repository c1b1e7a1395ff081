//! The Python class `Ticket`, a claim on published tensors that can be sent to other processes.

use crate::errors::{Result, describe_argument, fail};
use crate::interpreter::guard;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};
use tensorferry_core::ErrorKind;
use tensorferry_share::Publication;

/// A claim on tensors that a process has published: returned by `publish`, and accepted by `attach`.
///
/// `str(ticket)` and `bytes(ticket)` contain the complete claim, for an environment variable, a command line or a pipe;
/// `Ticket(text)` parses it. Other processes can attach while the ticket object of the producer lives, or until `withdraw`;
/// a `with` block withdraws at its end. Pickling the ticket (for example in a queue of multiprocessing) reserves one attach
/// for one hour, which stays valid after the object is gone.
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
        // Freeing much memory takes time: other Python threads run meanwhile.
        if !guard::exits() {
            Python::attach(|py| py.detach(move || drop(publication)));
        }
    }
}

impl Ticket {
    /// The ticket of a new publication.
    pub(super) fn new_published(publication: Publication) -> Self {
        Self { claim: publication.ticket().clone(), publication: Some(publication) }
    }

    /// The publication, in the process that made it. A forked child has a copy of the object, but not the publication.
    fn own_publication(&self) -> Option<&Publication> {
        self.publication.as_ref().filter(|_| self.claim.process() == std::process::id())
    }

    /// The claim of a ticket, or of its text or bytes.
    pub(super) fn claim_of(value: &Bound<'_, PyAny>) -> Result<tensorferry_share::Ticket> {
        if let Ok(ticket) = value.cast::<Self>() {
            return Ok(ticket.get().claim.clone());
        }
        if let Ok(text) = value.cast::<PyString>() {
            // A shell or a file may add whitespace.
            return Ok(tensorferry_share::Ticket::from_text(text.to_string_lossy().trim())?);
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(tensorferry_share::Ticket::from_bytes(bytes.as_bytes())?);
        }
        let fact = format!("{} is not a ticket", describe_argument(value));
        Err(fail(
            ErrorKind::InvalidArgument,
            fact,
            "pass the ticket that publish() returned, or its text or bytes",
        ))
    }
}

#[pymethods]
impl Ticket {
    #[new]
    fn new(claim: &Bound<'_, PyAny>) -> Result<Self> {
        Ok(Self { claim: Self::claim_of(claim)?, publication: None })
    }

    /// The number of consumers that hold the tensors now; None for a ticket of another process.
    #[getter]
    fn leases(&self) -> Option<usize> {
        self.own_publication().map(Publication::leases)
    }

    /// The number of consumers that have attached so far; None for a ticket of another process.
    #[getter]
    fn consumers(&self) -> Option<usize> {
        self.own_publication().map(Publication::deliveries)
    }

    /// The process ID of the producer.
    #[getter]
    fn pid(&self) -> u32 {
        self.claim.process()
    }

    /// Rejects new consumers. Consumers that have attached keep their tensors.
    fn withdraw(&self, py: Python<'_>) -> Result<()> {
        let Some(publication) = self.own_publication() else {
            let fact = format!("{} was not published by this process", self.claim);
            return Err(fail(
                ErrorKind::InvalidArgument,
                fact,
                "withdraw it in the process that published it",
            ));
        };
        py.detach(|| publication.withdraw());
        Ok(())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> Result<()> {
        if self.own_publication().is_some() { self.withdraw(py) } else { Ok(()) }
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.claim.to_bytes())
    }

    fn __str__(&self) -> String {
        self.claim.to_text()
    }

    /// Omits the secret, which must not appear in logs.
    fn __repr__(&self) -> String {
        match self.leases() {
            Some(leases) => format!("<Ticket: {}, {leases} leases>", self.claim),
            None => format!("<Ticket: {}>", self.claim),
        }
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, operation: CompareOp) -> Py<PyAny> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return py.NotImplemented() };
        let is_equal = self.claim == other.get().claim;
        match operation {
            CompareOp::Eq => is_equal.into_pyobject(py).map(|answer| answer.to_owned().into_any().unbind()),
            CompareOp::Ne => {
                (!is_equal).into_pyobject(py).map(|answer| answer.to_owned().into_any().unbind())
            }
            _ => return py.NotImplemented(),
        }
        .unwrap_or_else(|_| py.NotImplemented())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.claim.id().hash(&mut hasher);
        hasher.finish()
    }

    /// Pickles the claim, and reserves one attach for the consumer that receives it.
    fn __reduce__<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = this.py();
        if let Some(publication) = this.get().own_publication() {
            publication.expect_consumer();
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

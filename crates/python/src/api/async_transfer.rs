//! The state of an asynchronous transfer: bytes moved, cancelling, and the wait for running transfers at exit.
//!
//! A `ferry.Job` of Python wraps a [`Transfer`], whose state the thread of the transfer updates.

use crate::errors::Result;
use crate::interpreter::guard;
use crate::text::format_bytes;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tensorferry_cuda::TransferControl;

/// The native part of a `ferry.Job`: counts bytes and cancels.
#[pyclass(frozen, module = "tensorferry._native", name = "_Transfer")]
pub(crate) struct Transfer(pub(super) Arc<TransferState>);

/// The state that the caller and the transfer's thread share.
pub(super) struct TransferState {
    status: Mutex<Status>,
    /// Whether the job has its outcome and its callbacks have run. Changed under the lock of `status`.
    is_delivered: AtomicBool,
    /// The process whose thread moves the bytes. The child of a fork has the job, but not the thread.
    process: u32,
    changed: Condvar,
    pub(super) control: TransferControl,
    created_at: Instant,
    total: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Running,
    Succeeded,
    /// With an error, or cancelled.
    Failed,
}

/// Transfers that may be running.
static RUNNING_TRANSFERS: Mutex<Vec<Weak<TransferState>>> = Mutex::new(Vec::new());

/// How long the exit waits for transfers that it has cancelled: chunks in flight arrive first.
const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How often a wait for callbacks checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

impl TransferState {
    /// The state of a transfer of `total` bytes that begins now.
    pub(super) fn new(total: usize, control: TransferControl) -> Arc<Self> {
        Arc::new(Self {
            status: Mutex::new(Status::Running),
            is_delivered: AtomicBool::new(false),
            process: std::process::id(),
            changed: Condvar::new(),
            control,
            created_at: Instant::now(),
            total,
        })
    }

    /// Has the exit of the interpreter wait for this transfer.
    pub(super) fn register(self: &Arc<Self>) {
        let mut running = RUNNING_TRANSFERS.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|transfer| transfer.strong_count() > 0);
        running.push(Arc::downgrade(self));
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the transfer with this outcome, or as cancelled if it was cancelled before.
    pub(super) fn end<T>(&self, outcome: Result<T>) -> Result<T> {
        let mut status = self.status();
        let cancelled = self.control.check();
        *status = if outcome.is_ok() && cancelled.is_ok() { Status::Succeeded } else { Status::Failed };
        drop(status);
        self.changed.notify_all();
        let result = outcome?;
        cancelled?;
        Ok(result)
    }

    /// Waits for the callbacks of a transfer that has ended. They run on the thread of the transfer, which must not outlive
    /// the interpreter. Ctrl-C ends the wait.
    fn wait_for_callbacks(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let is_over = py.detach(|| {
                let waits = |status: &mut Status| {
                    *status != Status::Running && !self.is_delivered.load(Ordering::SeqCst)
                };
                let waited = self.changed.wait_timeout_while(self.status(), SIGNAL_INTERVAL, waits);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            });
            if is_over {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Records that the job has its outcome and its callbacks have run.
    pub(super) fn set_delivered(&self) {
        let status = self.status();
        self.is_delivered.store(true, Ordering::SeqCst);
        drop(status);
        self.changed.notify_all();
    }
}

/// Called by `atexit`, while threads may still use the interpreter. Cancels the running transfers and waits for them.
#[pyfunction]
pub(crate) fn end_jobs(py: Python<'_>) -> PyResult<()> {
    // Callbacks may start other jobs.
    loop {
        let running = std::mem::take(&mut *RUNNING_TRANSFERS.lock().unwrap_or_else(PoisonError::into_inner));
        let transfers: Vec<Arc<TransferState>> = running.iter().filter_map(Weak::upgrade).collect();
        if transfers.is_empty() {
            return Ok(());
        }
        transfers.iter().for_each(|transfer| transfer.control.cancel());
        let deadline = Instant::now() + EXIT_WAIT;
        for transfer in &transfers {
            py.detach(|| {
                let left = deadline.saturating_duration_since(Instant::now());
                let is_running = |status: &mut Status| *status == Status::Running;
                drop(transfer.changed.wait_timeout_while(transfer.status(), left, is_running));
            });
            transfer.wait_for_callbacks(py)?;
        }
    }
}

/// Called in the child of a fork. The threads of running transfers belong to the parent.
pub(crate) fn after_fork_in_child() {
    std::mem::take(&mut *RUNNING_TRANSFERS.lock().unwrap_or_else(PoisonError::into_inner));
}

impl Transfer {
    fn is_inherited(&self) -> bool {
        self.0.process != std::process::id()
    }
}

#[pymethods]
impl Transfer {
    /// The number of bytes that have moved.
    #[getter]
    fn bytes_moved(&self) -> usize {
        if *self.0.status() == Status::Succeeded {
            self.0.total
        } else {
            self.0.control.bytes_moved().min(self.0.total)
        }
    }

    /// The number of bytes of the whole transfer.
    #[getter]
    fn bytes_total(&self) -> usize {
        self.0.total
    }

    /// For how many seconds a timed transfer waited until its destination was free; 0 for others.
    #[getter]
    fn seconds_queued(&self) -> f64 {
        let started_at = self.0.control.started_at();
        started_at.map_or(0.0, |at| at.duration_since(self.0.created_at).as_secs_f64())
    }

    /// Cancels the transfer. Returns whether it is cancelled, by this call or an earlier one.
    fn cancel(&self) -> bool {
        // Under the lock, so that the transfer cannot end in between.
        let status = self.0.status();
        if *status == Status::Running {
            if self.is_inherited() {
                return false;
            }
            self.0.control.cancel();
        }
        *status != Status::Succeeded && self.0.control.check().is_err()
    }

    /// The reason why the job will never have a result, and a hint. None if it will have one.
    fn why_abandoned(&self) -> Option<(&'static str, &'static str)> {
        if *self.0.status() != Status::Running {
            None
        } else if self.is_inherited() {
            Some((
                "the job belongs to the process that forked this one",
                "start a job in the process that waits for it",
            ))
        } else if guard::exits() {
            Some((
                "the interpreter exits, and the job was abandoned",
                "wait for jobs before the program ends",
            ))
        } else {
            None
        }
    }

    fn __repr__(&self) -> String {
        format!("{} of {}", format_bytes(self.bytes_moved()), format_bytes(self.0.total))
    }
}

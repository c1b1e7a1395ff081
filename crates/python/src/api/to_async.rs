//! `to_async`: a conversion whose bytes move on another thread.

use crate::api::job::{self, JobTensor, JobTree, JobWork, PreparedJob};
use crate::api::options::{self, ParsedKeywords};
use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::convert::StartedObject;
use crate::conversion::fill_out;
use crate::conversion::object_kinds::RecognisedObject;
use crate::conversion::recognise::recognise;
use crate::conversion::request::ConversionRequest;
use crate::conversion::sharded;
use crate::errors::{Failure, Result, fail};
use crate::frameworks;
use crate::sparse;
use crate::trees::traverse;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tensorferry_core::ErrorKind;
use tensorferry_cuda::TransferControl;

/// Starts a conversion and returns at once; bytes move on another thread.
///
/// A shared tensor is available at once. The source of a copy must not be written until the job is done. The copy waits for
/// work that was queued on the source's stream before the call.
///
/// Args:
///     x: A dense tensor or a tree of them, as for `to`.
///     framework: The framework of the result, by name or as its module.
///     device, dtype, copy, writable, stream, budget, out: As for `to`.
///
/// Returns:
///     A Job, which is a concurrent.futures.Future and can be awaited.
///
/// Raises:
///     FerryError: What `to` would raise before bytes move. Later errors are raised by `Job.result`.
///
/// Example:
///     >>> job = ferry.to_async(np.arange(3), "torch", copy=True)
///     >>> job.result().tolist()
///     [0, 1, 2]
#[pyfunction]
#[pyo3(
    signature = (x, framework, **options),
    text_signature = "(x, framework, *, device=None, dtype=None, copy=None, writable=None, stream=None, \
                      budget=None, out=None)"
)]
pub(crate) fn to_async<'py>(
    x: &Bound<'py, PyAny>,
    framework: &Bound<'py, PyAny>,
    options: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let py = x.py();
    if sparse::is_sparse(x)? {
        return Err(sparse_error());
    }
    let target = frameworks::target(framework)?;
    let keywords = match options {
        None => ParsedKeywords::none(),
        Some(given) => options::parse("to_async", given, true)?,
    };
    if keywords.progress.is_some() {
        return Err(fail(
            ErrorKind::InvalidArgument,
            "to_async() does not accept progress=",
            "read job.bytes_moved and job.bytes_total",
        ));
    }
    let ParsedKeywords { options, sharding, stream, out, .. } = keywords;
    let request = ConversionRequest { options, sharding, stream, ..ConversionRequest::new(target) };
    let mut work = JobWork::new(py)?;
    let traced = work.is_traced();
    let resolved = arrow::read::resolve(x, Purpose::Conversion)?;
    let x = resolved.as_ref().unwrap_or(x);
    let recognised = recognise(x)?;
    match (traverse::container_of(recognised)?, out) {
        (_, Some(out)) => {
            let (started, report) = fill_out::start(x, &out, &request, traced, true)?;
            let reports = report.into_iter().collect();
            work.tensors.push(JobTensor { source: x.clone().unbind(), conversion: started.into(), reports });
        }
        (Some(container), None) => {
            let tree = traverse::walk_for_job(x, container, false, &mut |leaf, path| {
                work.add(start_tensor(leaf, &request, traced)?, path)?;
                Ok(leaf.object().clone())
            })?;
            let late_conversion = Box::new(request);
            work.tree = Some(JobTree { object: tree.unbind(), visits_each: false, late_conversion });
        }
        (None, None) => work.tensors.push(start_tensor(recognised, &request, traced)?),
    }
    let (job, prepared) = job::prepare_job(py, work, TransferControl::default())?;
    prepared.map_or(Ok(()), PreparedJob::start_thread)?;
    Ok(job)
}

fn sparse_error() -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        "to_async() does not accept sparse tensors",
        "use ferry.to, or ferry.sparse.to for a format",
    )
}

/// Starts the conversion of one tensor.
fn start_tensor(
    recognised: RecognisedObject<'_, '_>,
    request: &ConversionRequest,
    traced: bool,
) -> Result<JobTensor> {
    let object = recognised.object();
    let StartedObject { started, reports, .. } = match sharded::start_object(recognised, request, traced) {
        Err(_) if sparse::is_sparse(object)? => return Err(sparse_error()),
        started => started?,
    };
    Ok(JobTensor { source: object.clone().unbind(), conversion: started.into(), reports })
}

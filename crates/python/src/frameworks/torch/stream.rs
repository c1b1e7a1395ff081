//! PyTorch's current stream of the calling thread.
//!
//! PyTorch never destroys its own streams; a user who makes an external stream current keeps it alive (docs/guides/gpu.md).

use crate::errors::{Result, framework_error};
use crate::fast_paths::{self, FastPath, Probed, Unusable, check, present};
use crate::frameworks::dlpack_exchange::Exchange;
use crate::interpreter::call;
use crate::interpreter::once::ForkSafeOnce;
use crate::interpreter::once::interned;
use pyo3::prelude::*;
use tensorferry_core::Device;
use tensorferry_cuda::Stream;

/// The function that returns it.
enum CurrentStream {
    /// The C exchange API.
    Exchange(Exchange),
    /// `torch._C._cuda_getCurrentRawStream`.
    Raw(Py<PyAny>),
    /// `torch.cuda.current_stream`.
    Public(Py<PyAny>),
}

static CURRENT: ForkSafeOnce<CurrentStream> = ForkSafeOnce::new();

/// The current stream of a GPU.
pub(super) fn current(
    torch: &Bound<'_, PyModule>,
    exchange: Option<&Exchange>,
    device: Device,
) -> Result<Stream> {
    let py = torch.py();
    let found = match CURRENT.get(py) {
        Some(found) => found,
        None => {
            let cuda = torch.getattr("cuda")?;
            // Before CUDA is initialised, PyTorch has queued no work and will use the default stream. The public function would
            // initialise CUDA.
            if !cuda.call_method0("is_initialized")?.is_truthy()? {
                return Ok(Stream::LEGACY);
            }
            CURRENT.get_or_try_init(py, || CurrentStream::of(torch, &cuda, exchange, device))?
        }
    };
    found.query(py, device).map_err(|failure| framework_error(py, "PyTorch", failure))
}

impl CurrentStream {
    fn of(
        torch: &Bound<'_, PyModule>,
        cuda: &Bound<'_, PyAny>,
        exchange: Option<&Exchange>,
        device: Device,
    ) -> Result<Self> {
        let py = torch.py();
        let public = Self::Public(cuda.getattr("current_stream")?.unbind());
        let expected = public.query(py, device)?;
        let compared = |found: Self| -> Probed<Self> {
            let stream = found.query(py, device)?;
            check(stream == expected, || {
                let (found, expected) = (stream.handle(), expected.handle());
                format!("the stream is {found:#x}, expected {expected:#x}")
            })?;
            Ok(found)
        };
        let by_exchange = || -> Probed<Self> {
            let exchange = exchange.filter(|exchange| exchange.has_stream());
            let exchange =
                exchange.ok_or_else(|| Unusable::missing("torch.exchange_api lacks current_work_stream"))?;
            compared(Self::Exchange(*exchange))
        };
        let raw = || -> Probed<Self> {
            let function = present(torch.getattr("_C")?.getattr("_cuda_getCurrentRawStream"))?;
            compared(Self::Raw(function.unbind()))
        };
        Ok(fast_paths::probe(py, FastPath::TorchExchangeStream, by_exchange)
            .or_else(|| fast_paths::probe(py, FastPath::TorchRawStream, raw))
            .unwrap_or(public))
    }

    fn query(&self, py: Python<'_>, device: Device) -> Result<Stream> {
        let index = || device.index.into_pyobject(py).map_err(PyErr::from).map(Bound::into_any);
        let handle = match self {
            Self::Exchange(exchange) => return exchange.stream(py, Device::cuda(device.index)),
            Self::Raw(function) => call::call1(function.bind(py), &index()?)?,
            Self::Public(function) => {
                call::call1(function.bind(py), &index()?)?.getattr(interned!(py, "cuda_stream"))?
            }
        };
        // SAFETY: `from_handle` requires a stream that outlives the result: PyTorch returned its current stream, which it never
        // destroys. The documentation asks a user who makes an external stream current to keep it alive.
        Ok(unsafe { Stream::from_handle(handle.extract()?) })
    }
}

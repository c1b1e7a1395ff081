//! Settings from environment variables, read once when the extension module is initialised.
//!
//! Invalid values are ignored with a warning: silence would let the user believe that they took effect.

use crate::fast_paths::{self, Disabled};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use std::ffi::CString;
use std::num::NonZero;
use std::sync::OnceLock;
use tensorferry_core::pool;
use tensorferry_cuda::RingOptions;

struct Settings {
    threads: usize,
    ring: RingOptions,
    disabled_fast_paths: Disabled,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

fn settings() -> &'static Settings {
    SETTINGS.get_or_init(|| Settings {
        threads: core_count(),
        ring: RingOptions::with_defaults(core_count(), None, None),
        disabled_fast_paths: Disabled::NONE,
    })
}

/// Threads and chunk size of transfers between a GPU and the host, from `TENSORFERRY_THREADS` and `TENSORFERRY_CHUNK`, with
/// the defaults of [`RingOptions::with_defaults`].
pub(crate) fn ring_options() -> RingOptions {
    settings().ring
}

/// The largest number of threads of one host copy: `TENSORFERRY_THREADS`, or one per core available to the process.
pub(crate) fn threads() -> usize {
    settings().threads
}

/// The fast paths disabled by `TENSORFERRY_DISABLE`. With `all`, only public APIs of the frameworks are called.
pub(crate) fn disabled_fast_paths() -> Disabled {
    settings().disabled_fast_paths
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Reads the environment variables. Called when the module is initialised.
pub(crate) fn read(py: Python<'_>) -> PyResult<()> {
    let threads = parse_variable(py, "TENSORFERRY_THREADS", "a number of threads", "write 4", |text| {
        text.parse::<NonZero<usize>>().ok()
    })?;
    let (disabled_fast_paths, unknown) = match std::env::var_os("TENSORFERRY_DISABLE") {
        Some(given) => fast_paths::parse(&given.to_string_lossy()),
        None => (Disabled::NONE, Vec::new()),
    };
    for (name, hint) in unknown {
        warn(py, format!("TENSORFERRY_DISABLE: {name:?} is not a fast path and is ignored\nhint: {hint}"))?;
    }
    if let Some(bytes) =
        parse_variable(py, "TENSORFERRY_POOL", "a number of bytes", "write 512M or 2GiB", pool::parse_bytes)?
    {
        pool::set_limit(bytes);
    }
    let chunk =
        parse_variable(py, "TENSORFERRY_CHUNK", "a number of bytes from 64K to 1G", "write 2M", |text| {
            pool::parse_bytes(text).filter(|bytes| (64 << 10..=1 << 30).contains(bytes))
        })?;
    SETTINGS.get_or_init(|| Settings {
        ring: RingOptions::with_defaults(core_count(), threads, chunk),
        threads: threads.map_or_else(core_count, NonZero::get),
        disabled_fast_paths,
    });
    Ok(())
}

/// The parsed value of an environment variable. An invalid value gives `None` and a warning; an empty one counts as unset.
fn parse_variable<T>(
    py: Python<'_>,
    name: &str,
    expected: &str,
    hint: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> PyResult<Option<T>> {
    let Some(given) = std::env::var_os(name) else { return Ok(None) };
    let text = given.to_string_lossy();
    if text.trim().is_empty() {
        return Ok(None);
    }
    let value = parse(text.trim());
    if value.is_none() {
        warn(py, format!("{name}: {text:?} is not {expected} and is ignored\nhint: {hint}"))?;
    }
    Ok(value)
}

fn warn(py: Python<'_>, message: String) -> PyResult<()> {
    let message = CString::new(message)?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
}

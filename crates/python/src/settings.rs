//! What the environment asks for, read once, when the module is made.
//!
//! A value that means nothing is not passed over in silence: the user who wrote it believes that it counts.

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
        threads: cores(),
        ring: ring(None, None),
        disabled_fast_paths: Disabled::NONE,
    })
}

/// How transfers between a GPU and the host are shared out: `TENSORFERRY_THREADS` and `TENSORFERRY_CHUNK`, or three quarters
/// of the cores (all of up to four, sixteen at most), the caller's own among them, and 1.5 MiB.
pub(crate) fn transfer() -> RingOptions {
    settings().ring
}

fn ring(threads: Option<NonZero<usize>>, chunk: Option<usize>) -> RingOptions {
    /// More have not been seen to help, and each has buffers.
    const MOST: usize = 16;
    /// Fewer have the threads wait for slots, more take longer to pin: of 256 MiB on an H200, in milliseconds, the first download
    /// took 16, 13.6 and 13 to 24 with 1, 1.5 and 2 MiB, and later ones 12.5, 10 and 11.
    const CHUNK: usize = 3 << 19;
    let few = |cores: usize| if cores <= 4 { cores } else { cores * 3 / 4 };
    let threads = threads.map_or_else(|| few(cores()), NonZero::get).min(MOST);
    RingOptions { threads, chunk: chunk.unwrap_or(CHUNK), spares: false, batched: false }
}

/// The most threads that a copy uses: `TENSORFERRY_THREADS`, or one for each core that the process may use.
pub(crate) fn threads() -> usize {
    settings().threads
}

/// The fast paths that `TENSORFERRY_DISABLE` turns off; with `all`, only public functions of the frameworks are called.
pub(crate) fn disabled_fast_paths() -> Disabled {
    settings().disabled_fast_paths
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Reads the environment.
pub(crate) fn read(py: Python<'_>) -> PyResult<()> {
    let threads = ask(py, "TENSORFERRY_THREADS", "a number of threads", "write 4", |text| {
        text.parse::<NonZero<usize>>().ok()
    })?;
    let (disabled_fast_paths, unknown) = match std::env::var_os("TENSORFERRY_DISABLE") {
        Some(given) => fast_paths::parse(&given.to_string_lossy()),
        None => (Disabled::NONE, Vec::new()),
    };
    for (name, hint) in unknown {
        warn(
            py,
            format!(
                "TENSORFERRY_DISABLE names {name:?}, which is not a fast path: it is ignored\nhint: {hint}"
            ),
        )?;
    }
    if let Some(bytes) =
        ask(py, "TENSORFERRY_POOL", "a number of bytes", "write 512M or 2GiB", pool::parse_bytes)?
    {
        pool::set_limit(bytes);
    }
    let chunk = ask(py, "TENSORFERRY_CHUNK", "a number of bytes from 64K to 1G", "write 2M", |text| {
        pool::parse_bytes(text).filter(|bytes| (64 << 10..=1 << 30).contains(bytes))
    })?;
    SETTINGS.get_or_init(|| Settings {
        ring: ring(threads, chunk),
        threads: threads.map_or_else(cores, NonZero::get),
        disabled_fast_paths,
    });
    Ok(())
}

/// The value of a variable; a warning, and none, where it means nothing. Empty is as good as not set.
fn ask<T>(
    py: Python<'_>,
    name: &str,
    meaning: &str,
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
        warn(py, format!("{name} is {text:?}, which is not {meaning}: it is ignored\nhint: {hint}"))?;
    }
    Ok(value)
}

fn warn(py: Python<'_>, message: String) -> PyResult<()> {
    let message = CString::new(message)?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
}

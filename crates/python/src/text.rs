//! Formats sizes and durations, and suggests the closest known name.

use tensorferry_core::plan::count_noun;

/// A number of bytes with a unit.
pub(crate) fn format_bytes(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return count_noun(bytes, "byte");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// A duration with a unit.
pub(crate) fn format_duration(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

/// The largest edit distance at which another name is suggested.
const MAX_TYPING_ERRORS: usize = 2;

/// The known name that is closest to a misspelt one.
pub(crate) fn closest_name<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> Option<S> {
    close_names(name, known).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// The known name that is closer to a misspelt one than all others; `None` if several are equally close.
pub(crate) fn only_closest_name<S: AsRef<str>>(name: &str, known: impl IntoIterator<Item = S>) -> Option<S> {
    let mut close: Vec<_> = close_names(name, known).collect();
    let smallest = close.iter().map(|(distance, _)| *distance).min()?;
    close.retain(|(distance, _)| *distance == smallest);
    if close.len() == 1 { close.pop().map(|(_, known)| known) } else { None }
}

/// The known names within the largest edit distance, each with its distance.
fn close_names<S: AsRef<str>>(
    name: &str,
    known: impl IntoIterator<Item = S>,
) -> impl Iterator<Item = (usize, S)> {
    let lower = name.to_lowercase();
    known.into_iter().filter_map(move |known| {
        let distance = strsim::osa_distance(&lower, known.as_ref());
        let shorter = known.as_ref().chars().count().min(lower.chars().count());
        (distance <= MAX_TYPING_ERRORS && distance < shorter).then_some((distance, known))
    })
}

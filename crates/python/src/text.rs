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
    let lower = name.to_lowercase();
    known
        .into_iter()
        .map(|known| (strsim::osa_distance(&lower, known.as_ref()), known))
        .filter(|(distance, known)| {
            let shorter = known.as_ref().chars().count().min(lower.chars().count());
            *distance <= MAX_TYPING_ERRORS && *distance < shorter
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

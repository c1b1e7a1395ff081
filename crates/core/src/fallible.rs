//! Fallible growth of vectors: running out of memory is an error instead of an abort.
//!
//! See [`emergency_pool`](crate::emergency_pool).

use crate::error::{Error, Result};

/// Reserves capacity for more items.
///
/// # Errors
/// If memory runs out.
#[inline]
pub fn try_reserve<T>(list: &mut Vec<T>, more: usize) -> Result<()> {
    list.try_reserve(more).map_err(|_| {
        let items = list.len().saturating_add(more);
        Error::out_of_memory(items.saturating_mul(size_of::<T>()))
    })
}

/// Adds an item.
///
/// # Errors
/// If memory runs out.
#[inline]
pub fn try_push<T>(list: &mut Vec<T>, item: T) -> Result<()> {
    try_reserve(list, 1)?;
    list.push(item);
    Ok(())
}

/// Copies a slice.
///
/// # Errors
/// If memory runs out.
pub fn try_copy<T: Copy>(items: &[T]) -> Result<Vec<T>> {
    let mut list = Vec::new();
    try_reserve(&mut list, items.len())?;
    list.extend_from_slice(items);
    Ok(list)
}

/// Collects items until the first error.
///
/// # Errors
/// The first error of an item, or that memory ran out.
pub fn try_collect<T, E: From<Error>>(items: impl Iterator<Item = Result<T, E>>) -> Result<Vec<T>, E> {
    let mut list = Vec::new();
    try_reserve(&mut list, items.size_hint().0)?;
    for item in items {
        try_push(&mut list, item?)?;
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn items_are_collected_in_order_until_one_is_an_error() {
        assert_eq!(try_collect((0..5).map(Ok::<_, Error>)).unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(try_collect("abc".chars().filter(|c| *c != 'b').map(Ok::<_, Error>)).unwrap(), ['a', 'c']);
        let failure = || Error::new(ErrorKind::InvalidArgument, "failure");
        let items = (0..5).map(|item| if item == 3 { Err(failure()) } else { Ok(item) });
        assert_eq!(try_collect(items).unwrap_err(), failure());
        assert_eq!(try_copy(&[1u8, 2]).unwrap(), [1, 2]);
    }

    #[test]
    fn impossible_capacity_is_an_error() {
        let mut list = vec![0u64];
        let error = try_reserve(&mut list, usize::MAX / 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.hint().is_some());
        assert_eq!(list, [0]);
    }
}

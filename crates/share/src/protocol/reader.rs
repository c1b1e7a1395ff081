//! A bounds-checked reader of the bytes of a message.

use crate::errors::protocol_error;
use tensorferry_core::Result;
use tensorferry_core::plan::count_noun;

/// Checks a count against a limit.
pub(crate) fn check_limit(what: &str, count: usize, limit: usize) -> Result<()> {
    if count <= limit {
        Ok(())
    } else {
        Err(protocol_error(format!("{count} {what} exceed the limit of {limit}")))
    }
}

/// The bytes that are left.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            let missing = count - self.0.len();
            return Err(protocol_error(format!("message is truncated: {missing} bytes are missing")));
        };
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT]> {
        let mut array = [0; COUNT];
        array.copy_from_slice(self.take(COUNT)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of items that take at least `min_item_bytes` each. It exceeds neither `limit` nor what the bytes that
    /// are left can contain.
    pub(crate) fn count(&mut self, what: &str, limit: usize, min_item_bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        check_limit(what, count, limit)?;
        check_limit(what, count, self.0.len() / min_item_bytes)?;
        Ok(count)
    }

    /// Checks that no byte is left.
    pub(crate) fn finish(&self, what: &str) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(protocol_error(format!("{} after the {what}", count_noun(self.0.len(), "trailing byte"))))
        }
    }
}

//! One row of a table of advice.

use tensorferry_core::error::HintKey;

/// Advice by key. `{}` stands for the value that the error carries.
pub(super) type Advice = (HintKey, &'static str);

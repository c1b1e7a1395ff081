//! Rows of the tables of advice, and the proof that a table is complete.

use tensorferry_core::error::HintKey;

/// Advice by key. `{}` stands for the value that the error carries.
pub(super) type Advice = (HintKey, &'static str);

/// Whether each of the keys has exactly one row in the tables.
pub(super) const fn covers(tables: &[&[Advice]], keys: &[HintKey]) -> bool {
    let mut key = 0;
    while key < keys.len() {
        let (mut table, mut rows) = (0, 0);
        while table < tables.len() {
            let mut row = 0;
            while row < tables[table].len() {
                rows += is_equal(tables[table][row].0.name(), keys[key].name()) as usize;
                row += 1;
            }
            table += 1;
        }
        if rows != 1 {
            return false;
        }
        key += 1;
    }
    true
}

/// `==` of strings is not const.
const fn is_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut byte = 0;
    while byte < one.len() {
        if one[byte] != other[byte] {
            return false;
        }
        byte += 1;
    }
    true
}

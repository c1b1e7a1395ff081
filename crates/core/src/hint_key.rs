//! Hint keys: names for pieces of advice, and the tables in which front ends word them.
//!
//! Advice that does not depend on the front end ("check the path") is part of the key. Advice that names arguments or
//! functions is a row in a table of each front end. [`covers`] proves that each key has exactly one of the two.

/// Identifies one piece of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HintKey {
    name: &'static str,
    advice: Option<&'static str>,
}

/// Advice by key, in the words of a front end. `{}` stands for the value that the error carries.
pub type Advice = (HintKey, &'static str);

impl HintKey {
    /// A key with this name. Use [`hint_keys!`](crate::hint_keys), which also lists the keys for the front ends' tests.
    pub const fn new(name: &'static str, advice: Option<&'static str>) -> Self {
        Self { name, advice }
    }

    /// The name by which front ends look up their advice.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// The advice, if it is the same in every front end.
    pub const fn advice(self) -> Option<&'static str> {
        self.advice
    }
}

/// Whether each of the keys has advice of its own, or else exactly one row in the tables.
pub const fn covers(tables: &[&[Advice]], keys: &[HintKey]) -> bool {
    let mut key = 0;
    while key < keys.len() {
        let (mut table, mut rows) = (0, keys[key].advice.is_some() as usize);
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

/// Defines the hint keys of a crate, and `ALL`, which lists them. `=> "advice"` follows the name of a key whose advice is
/// the same in every front end.
#[macro_export]
macro_rules! hint_keys {
    ($($(#[$doc:meta])* $name:ident = $text:literal $(=> $advice:literal)?;)*) => {
        $($(#[$doc])* pub const $name: $crate::error::HintKey =
            $crate::error::HintKey::new($text, $crate::hint_keys!(@advice $($advice)?));)*

        /// Every key above.
        pub const ALL: &[$crate::error::HintKey] = &[$($name),*];
    };
    (@advice) => { None };
    (@advice $advice:literal) => { Some($advice) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: HintKey = HintKey::new("own", Some("check the path"));
    const WORDED: HintKey = HintKey::new("worded", None);

    #[test]
    fn each_key_needs_one_advice() {
        assert!(covers(&[&[(WORDED, "pass x")]], &[OWN, WORDED]));
        assert!(!covers(&[&[]], &[OWN, WORDED]), "no advice");
        assert!(!covers(&[&[(WORDED, "a")], &[(WORDED, "b")]], &[WORDED]), "two rows");
        assert!(!covers(&[&[(OWN, "pass x")]], &[OWN]), "its own and a row");
    }
}

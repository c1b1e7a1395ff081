//! Hint keys: names for pieces of advice, which each front end words in its own terms.

/// Identifies one piece of advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HintKey(&'static str);

impl HintKey {
    /// A key with this name. Use [`hint_keys!`](crate::hint_keys), which also lists the keys for the front ends' tests.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name by which front ends look up their advice.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// Defines the hint keys of a crate, and `ALL`, which lists them.
#[macro_export]
macro_rules! hint_keys {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: $crate::error::HintKey = $crate::error::HintKey::new($text);)*

        /// Every key above.
        pub const ALL: &[$crate::error::HintKey] = &[$($name),*];
    };
}

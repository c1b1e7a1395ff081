//! Names `crate::fmt::Quoted` only where it does not count.

use std::fmt;

/* A comment /* with another */ that names crate::fmt::Quoted. */

/// See [`crate::fmt::Quoted`].
pub fn quote(text: &str) -> String {
    // use crate::fmt::Quoted;
    let (mark, escape) = ('"', '\'');
    let _raw = r#"crate::fmt::Quoted("x")"#;
    let _bytes = b"crate::fmt::Quoted \" crate::fmt::Quoted";
    format!("{mark}{text}{mark}{escape} crate::fmt::Quoted")
}

pub struct Text<'a>(&'a str);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

#[cfg(test)]
fn quoted() -> crate::fmt::Quoted {
    crate::fmt::Quoted(String::new())
}

#[cfg(test)]
mod tests {
    use crate::fmt::Quoted;

    #[test]
    fn it_quotes() {
        assert_eq!(Quoted("a".into()).to_string(), "\"a\"'");
    }
}

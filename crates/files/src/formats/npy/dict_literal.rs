//! A parser for the text of a .npy header, which is a Python dict literal.
//!
//! NumPy passes this text to `ast.literal_eval`. This parser accepts only what a header may contain: the keys `descr`,
//! `fortran_order` and `shape`, each once, in any order. Their values are a string without escapes, `True` or `False`, and
//! a tuple of non-negative integers. Everything else that Python would accept is rejected: nested containers, concatenated
//! strings, signs, underscores, hexadecimal. The exception is `3L`, which Python 2 wrote into versions 1.0 and 2.0.
//!
//! A list under `descr` is a structured type. The parser recognises it and stops there, because the reader rejects it.
//!
//! After the dict there may be blanks, a newline, and the type comment of [`super::header`].

use crate::errors::{invalid_file, quoted};
use crate::spec::check_rank;
use tensorferry_core::{Error, Result};

/// The fields of a header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HeaderFields {
    pub(crate) descr: Descr,
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<i64>,
    /// The type that the type comment names.
    pub(crate) type_comment: Option<String>,
}

/// The value of `descr`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Descr {
    TypeString(String),
    Structured,
}

/// The start of a type comment.
pub(crate) const TYPE_COMMENT_PREFIX: &str = "# tensorferry: ";

struct Parser<'a> {
    bytes: &'a [u8],
    position: usize,
    allows_long_suffix: bool,
}

/// Parses a header. `allows_long_suffix` accepts `3L`, for versions that Python 2 may have written.
pub(crate) fn parse(text: &[u8], allows_long_suffix: bool) -> Result<HeaderFields> {
    let mut parser = Parser { bytes: text, position: 0, allows_long_suffix };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    parser.expect(b'{')?;
    while !parser.take(b'}') {
        let key = parser.string()?;
        parser.expect(b':')?;
        let is_duplicate = match key.as_str() {
            "descr" if parser.peek() == Some(b'[') => {
                return Ok(HeaderFields {
                    descr: Descr::Structured,
                    fortran: false,
                    shape: Vec::new(),
                    type_comment: None,
                });
            }
            "descr" => descr.replace(Descr::TypeString(parser.string()?)).is_some(),
            "fortran_order" => fortran.replace(parser.boolean()?).is_some(),
            "shape" => shape.replace(parser.tuple()?).is_some(),
            _ => {
                return Err(invalid_file(format!("unknown key {} in the .npy header", quoted(&key))));
            }
        };
        if is_duplicate {
            return Err(invalid_file(format!("duplicate key {} in the .npy header", quoted(&key))));
        }
        if !parser.take(b',') {
            parser.expect(b'}')?;
            break;
        }
    }
    let type_comment = parser.type_comment()?;
    let missing = |key: &str| invalid_file(format!("missing key {} in the .npy header", quoted(key)));
    Ok(HeaderFields {
        descr: descr.ok_or_else(|| missing("descr"))?,
        fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
        type_comment,
    })
}

impl Parser<'_> {
    /// Skips blanks and returns the next byte.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.position), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.position += 1;
        }
        self.bytes.get(self.position).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.position += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", byte as char))) }
    }

    fn unexpected(&self, expected: &str) -> Error {
        match self.bytes.get(self.position) {
            Some(byte) => invalid_file(format!(
                "byte {} of the .npy header is '{}', expected {expected}",
                self.position,
                byte.escape_ascii()
            )),
            None => invalid_file(format!("the .npy header ends, expected {expected}")),
        }
    }

    fn string(&mut self) -> Result<String> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err(self.unexpected("a string"));
        };
        let start = self.position + 1;
        let length = self.bytes[start..]
            .iter()
            .position(|&byte| byte == quote || byte == b'\\' || !(b' '..=b'~').contains(&byte));
        let Some(end) = length.map(|length| start + length).filter(|&end| self.bytes[end] == quote) else {
            return Err(invalid_file("a string in the .npy header is unterminated or contains escapes"));
        };
        self.position = end + 1;
        Ok(String::from_utf8_lossy(&self.bytes[start..end]).into_owned())
    }

    fn boolean(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.bytes[self.position..].starts_with(word) {
                self.position += word.len();
                return Ok(value);
            }
        }
        Err(self.unexpected("True or False"))
    }

    fn tuple(&mut self) -> Result<Vec<i64>> {
        self.expect(b'(')?;
        let mut shape = Vec::new();
        let mut commas = 0;
        while !self.take(b')') {
            shape.push(self.dimension()?);
            check_rank(shape.len())?;
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
            commas += 1;
        }
        if shape.len() == 1 && commas == 0 {
            return Err(invalid_file(format!("the shape ({}) is a number, not a tuple", shape[0])));
        }
        Ok(shape)
    }

    fn dimension(&mut self) -> Result<i64> {
        if self.peek() == Some(b'-') {
            return Err(invalid_file("a dimension in the .npy header is negative"));
        }
        let digits = self.bytes[self.position..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = &self.bytes[self.position..self.position + digits];
        if digits == 0 || (digits > 1 && text[0] == b'0') {
            return Err(self.unexpected("the length of a dimension"));
        }
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| invalid_file("the length of a dimension overflows"))?;
        self.position += digits;
        if self.allows_long_suffix && self.bytes.get(self.position) == Some(&b'L') {
            self.position += 1;
        }
        Ok(number)
    }

    /// Parses what follows the dict: blanks, and an optional type comment.
    fn type_comment(&mut self) -> Result<Option<String>> {
        if self.peek().is_none() {
            return Ok(None);
        }
        let rest = &self.bytes[self.position..];
        let line =
            rest.strip_prefix(TYPE_COMMENT_PREFIX.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
        let word = line.map(str::trim_end).filter(|word| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        match word {
            Some(word) => Ok(Some(word.to_owned())),
            None => Err(self.unexpected("the end of the header")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fact(text: &str) -> String {
        parse(text.as_bytes(), true).unwrap_err().fact().to_owned()
    }

    #[test]
    fn headers_of_numpy_are_parsed() {
        let fields =
            parse(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }          \n", false).unwrap();
        assert_eq!(fields.descr, Descr::TypeString("<f8".into()));
        assert_eq!(
            (fields.fortran, fields.shape.as_slice(), fields.type_comment),
            (false, &[3, 4][..], None)
        );
        let fields = parse(b"{\"shape\":(),'descr':'|b1','fortran_order':True}", false).unwrap();
        assert_eq!((fields.fortran, fields.shape.len()), (true, 0));
    }

    #[test]
    fn long_integers_of_python_2_are_accepted() {
        let text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L,), }\n";
        assert_eq!(parse(text, true).unwrap().shape, [3]);
        assert!(parse(text, false).is_err());
    }

    #[test]
    fn a_type_comment_is_kept() {
        let text = b"{'descr': '<V2', 'fortran_order': False, 'shape': (3,), } # tensorferry: bfloat16    \n";
        assert_eq!(parse(text, false).unwrap().type_comment.as_deref(), Some("bfloat16"));
        assert!(
            fact("{'descr': '<V2', 'fortran_order': False, 'shape': (3,), } # hello")
                .contains("end of the header")
        );
        assert!(
            fact("{'descr': '<V2', 'fortran_order': False, 'shape': (3,), } # tensorferry: a b")
                .contains("end")
        );
    }

    #[test]
    fn exactly_three_keys_are_accepted() {
        assert!(fact("{'descr': '<f8', 'fortran_order': False}").contains("\"shape\""));
        assert!(fact("{'descr': '<f8', 'descr': '<f8', 'shape': ()}").contains("duplicate"));
        assert!(fact("{'descr': '<f8', 'fortran_order': False, 'shape': (), 'x': 1}").contains("unknown"));
        assert!(fact("{}").contains("descr"));
    }

    #[test]
    fn invalid_shapes_are_rejected() {
        let shape =
            |shape: &str| fact(&format!("{{'shape': {shape}, 'descr': '<f8', 'fortran_order': False}}"));
        assert!(shape("(-1,)").contains("negative"));
        assert!(shape("(3)").contains("tuple"));
        assert!(shape("(99999999999999999999,)").contains("overflows"));
        for invalid in
            ["(03,)", "(1_0,)", "(0x1,)", "(+1,)", "(,)", "(1,,)", "[1]", "(1.0,)", "(1;)", "3", "((1,),)"]
        {
            assert!(!shape(invalid).is_empty(), "{invalid}");
        }
        let many = format!("({})", "1,".repeat(65));
        assert!(shape(&many).contains("65 dimensions"));
    }

    #[test]
    fn invalid_strings_are_rejected() {
        for invalid in ["'\\x3cf8'", "'<f8", "'<f\u{e4}'", "b'<f8'", "'''<f8'''", "'<' 'f8'", "<f8", "None"] {
            let text = format!("{{'descr': {invalid}, 'fortran_order': False, 'shape': ()}}");
            assert!(parse(text.as_bytes(), true).is_err(), "{invalid}");
        }
    }

    #[test]
    fn invalid_booleans_are_rejected() {
        for invalid in ["true", "1", "0", "None", "Truely"] {
            let text = format!("{{'fortran_order': {invalid}, 'descr': '<f8', 'shape': ()}}");
            assert!(parse(text.as_bytes(), true).is_err(), "{invalid}");
        }
    }

    #[test]
    fn a_structured_type_is_recognised() {
        let text = b"{'descr': [('a', '<f8'), ('b\\u1234', '<i4')], 'fortran_order': False, 'shape': ()}";
        assert_eq!(parse(text, false).unwrap().descr, Descr::Structured);
    }
}

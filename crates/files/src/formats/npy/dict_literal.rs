//! The header of a .npy as text: a Python dict literal, of which exactly one shape is accepted.
//!
//! NumPy hands this text to `ast.literal_eval`. This parser knows only what a header may say: the three keys `descr`,
//! `fortran_order` and `shape`, each once, in any order; a string without escapes, `True` or `False`, and a tuple of
//! whole numbers. Anything else that Python would accept (nested containers, concatenated strings, signs, underscores,
//! hexadecimal) is refused, with one exception: `3L`, which Python 2 wrote into versions 1.0 and 2.0.
//!
//! A list under `descr` is a structured type. It is recognised, to be refused for what it is, and not read further.
//!
//! Behind the dict there may be spaces, a newline, and the note of [`crate::npy`]'s convention, which to Python is a
//! comment.

use crate::entry::check_rank;
use crate::fault::{bad, quoted};
use tensorferry_core::Result;

/// What a header says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErrorDetails {
    pub(crate) descr: Descr,
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<i64>,
    /// The text of the note, if there is one.
    pub(crate) note: Option<String>,
}

/// The type, as it is written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Descr {
    Plain(String),
    Structured,
}

/// What a note begins with.
pub(crate) const NOTE: &str = "# tensorferry: ";

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
    old: bool,
}

/// Reads a header. `old` is for versions that Python 2 may have written.
pub(crate) fn parse(text: &[u8], old: bool) -> Result<ErrorDetails> {
    let mut text = Text { bytes: text, at: 0, old };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    text.expect(b'{')?;
    while !text.take(b'}') {
        let key = text.string()?;
        text.expect(b':')?;
        let again = match key.as_str() {
            "descr" if text.peek() == Some(b'[') => {
                // Nothing after it matters: a structured type is refused.
                return Ok(ErrorDetails {
                    descr: Descr::Structured,
                    fortran: false,
                    shape: Vec::new(),
                    note: None,
                });
            }
            "descr" => descr.replace(Descr::Plain(text.string()?)).is_some(),
            "fortran_order" => fortran.replace(text.truth()?).is_some(),
            "shape" => shape.replace(text.tuple()?).is_some(),
            _ => {
                return Err(bad(format!(
                    "the header has the key {}, which .npy does not know",
                    quoted(&key)
                )));
            }
        };
        if again {
            return Err(bad(format!("the header has the key {} twice", quoted(&key))));
        }
        if !text.take(b',') {
            text.expect(b'}')?;
            break;
        }
    }
    let note = text.note()?;
    let missing = |key: &str| bad(format!("the header has no {}", quoted(key)));
    Ok(ErrorDetails {
        descr: descr.ok_or_else(|| missing("descr"))?,
        fortran: fortran.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
        note,
    })
}

impl Text<'_> {
    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(&format!("'{}'", byte as char))) }
    }

    fn unexpected(&self, wanted: &str) -> tensorferry_core::Error {
        match self.bytes.get(self.at) {
            Some(byte) => bad(format!(
                "byte {} of the header is '{}', where {wanted} belongs",
                self.at,
                byte.escape_ascii()
            )),
            None => bad(format!("the header ends where {wanted} belongs")),
        }
    }

    fn string(&mut self) -> Result<String> {
        let Some(quote @ (b'\'' | b'"')) = self.peek() else {
            return Err(self.unexpected("a string"));
        };
        let start = self.at + 1;
        let length = self.bytes[start..]
            .iter()
            .position(|&byte| byte == quote || byte == b'\\' || !(b' '..=b'~').contains(&byte));
        let Some(end) = length.map(|length| start + length).filter(|&end| self.bytes[end] == quote) else {
            return Err(bad("the header has a string that does not end, or with escapes in it"));
        };
        self.at = end + 1;
        Ok(String::from_utf8_lossy(&self.bytes[start..end]).into_owned())
    }

    fn truth(&mut self) -> Result<bool> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.bytes[self.at..].starts_with(word) {
                self.at += word.len();
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
            shape.push(self.number()?);
            check_rank(shape.len())?;
            if !self.take(b',') {
                self.expect(b')')?;
                break;
            }
            commas += 1;
        }
        if shape.len() == 1 && commas == 0 {
            return Err(bad(format!("the shape ({}) is a number and no tuple", shape[0])));
        }
        Ok(shape)
    }

    fn number(&mut self) -> Result<i64> {
        if self.peek() == Some(b'-') {
            return Err(bad("the header has a dimension of negative length"));
        }
        let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = &self.bytes[self.at..self.at + digits];
        if digits == 0 || (digits > 1 && text[0] == b'0') {
            return Err(self.unexpected("the length of a dimension"));
        }
        let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| bad("the length of a dimension overflows"))?;
        self.at += digits;
        if self.old && self.bytes.get(self.at) == Some(&b'L') {
            self.at += 1;
        }
        Ok(number)
    }

    /// What follows the dict: blanks, and perhaps a note.
    fn note(&mut self) -> Result<Option<String>> {
        if self.peek().is_none() {
            return Ok(None);
        }
        let rest = &self.bytes[self.at..];
        let line = rest.strip_prefix(NOTE.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
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
    fn what_numpy_writes() {
        let said =
            parse(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }          \n", false).unwrap();
        assert_eq!(said.descr, Descr::Plain("<f8".into()));
        assert_eq!((said.fortran, said.shape.as_slice(), said.note), (false, &[3, 4][..], None));
        let said = parse(b"{\"shape\":(),'descr':'|b1','fortran_order':True}", false).unwrap();
        assert_eq!((said.fortran, said.shape.len()), (true, 0));
    }

    #[test]
    fn python_2_wrote_long_integers() {
        let text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3L,), }\n";
        assert_eq!(parse(text, true).unwrap().shape, [3]);
        assert!(parse(text, false).is_err());
    }

    #[test]
    fn a_note_is_kept() {
        let text = b"{'descr': '<V2', 'fortran_order': False, 'shape': (3,), } # tensorferry: bfloat16    \n";
        assert_eq!(parse(text, false).unwrap().note.as_deref(), Some("bfloat16"));
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
    fn keys_are_exactly_three() {
        assert!(fact("{'descr': '<f8', 'fortran_order': False}").contains("has no \"shape\""));
        assert!(fact("{'descr': '<f8', 'descr': '<f8', 'shape': ()}").contains("twice"));
        assert!(
            fact("{'descr': '<f8', 'fortran_order': False, 'shape': (), 'x': 1}").contains("does not know")
        );
        assert!(fact("{}").contains("descr"));
    }

    #[test]
    fn shapes_that_are_none() {
        let shape =
            |shape: &str| fact(&format!("{{'shape': {shape}, 'descr': '<f8', 'fortran_order': False}}"));
        assert!(shape("(-1,)").contains("negative"));
        assert!(shape("(3)").contains("no tuple"));
        assert!(shape("(99999999999999999999,)").contains("overflows"));
        for wrong in
            ["(03,)", "(1_0,)", "(0x1,)", "(+1,)", "(,)", "(1,,)", "[1]", "(1.0,)", "(1;)", "3", "((1,),)"]
        {
            assert!(!shape(wrong).is_empty(), "{wrong}");
        }
        let many = format!("({})", "1,".repeat(65));
        assert!(shape(&many).contains("65 dimensions"));
    }

    #[test]
    fn strings_have_no_escapes() {
        for wrong in ["'\\x3cf8'", "'<f8", "'<f\u{e4}'", "b'<f8'", "'''<f8'''", "'<' 'f8'", "<f8", "None"] {
            let text = format!("{{'descr': {wrong}, 'fortran_order': False, 'shape': ()}}");
            assert!(parse(text.as_bytes(), true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn truth_is_true_or_false() {
        for wrong in ["true", "1", "0", "None", "Truely"] {
            let text = format!("{{'fortran_order': {wrong}, 'descr': '<f8', 'shape': ()}}");
            assert!(parse(text.as_bytes(), true).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_structured_type_is_recognised() {
        let text = b"{'descr': [('a', '<f8'), ('b\\u1234', '<i4')], 'fortran_order': False, 'shape': ()}";
        assert_eq!(parse(text, false).unwrap().descr, Descr::Structured);
    }
}

//! NumPy's type strings, such as `'<f4'`, as element types.

use crate::errors::{invalid_file, quoted, unsupported_dtype};
use crate::hints;
use crate::options::OpenOptions;
use crate::spec::{BIG_ENDIAN, LITTLE_ENDIAN};
use tensorferry_core::{ByteOrder, DType, Result};

/// The element type and byte order of a type string. `comment` is the type that the type comment names.
pub(super) fn parse_type_string(
    descr: &str,
    comment: Option<&str>,
    options: &OpenOptions,
) -> Result<(DType, ByteOrder)> {
    let unknown = || invalid_file(format!("{} is not a NumPy type", quoted(descr)));
    let mut chars = descr.bytes();
    let (Some(order), Some(kind)) = (chars.next(), chars.next()) else {
        return Err(unknown());
    };
    let order = match order {
        b'<' => Some(LITTLE_ENDIAN),
        b'>' => Some(BIG_ENDIAN),
        b'|' => None,
        _ => return Err(unknown()),
    };
    if kind == b'O' {
        return Err(unsupported_dtype(
            "the array holds Python objects, stored as a pickle, which can run any code",
            hints::LOAD_OBJECT_ARRAY,
        ));
    }
    let digits = descr.get(2..).unwrap_or_default();
    let is_date = matches!(kind, b'M' | b'm');
    let number = if is_date { digits.split('[').next().unwrap_or_default() } else { digits };
    let size = match number.parse::<usize>() {
        Ok(size) if number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0') => size,
        // Strings of length zero exist; the match below rejects them as strings.
        Ok(0) if number == "0" => 0,
        _ => return Err(unknown()),
    };
    if comment.is_some() && kind != b'V' {
        return Err(invalid_file(format!("{} names a type, and so does the type comment", quoted(descr))));
    }
    let dtype = match kind {
        b'V' => {
            let is_bfloat16 = order == Some(LITTLE_ENDIAN) && size == 2;
            resolve_void(size, is_bfloat16, comment, options)?
        }
        b'b' | b'i' | b'u' | b'f' | b'c' => match DType::from_typestr(kind, size) {
            Some(dtype) => dtype,
            None if matches!((kind, size), (b'f', 12 | 16) | (b'c', 24 | 32)) => {
                return Err(unsupported_dtype(
                    format!("type {} is wider than 64 bits and differs between platforms", quoted(descr)),
                    hints::CONVERT_TO_FLOAT64,
                ));
            }
            None => return Err(unknown()),
        },
        b'M' | b'm' => {
            return Err(unsupported_dtype(
                format!("type {} is a date or a duration", quoted(descr)),
                hints::SAVE_DATES_AS_INT64,
            ));
        }
        b'S' | b'U' | b'a' | b'T' => {
            return Err(unsupported_dtype(
                "the array holds strings, which are not tensor elements",
                hints::LOAD_WITH_NUMPY,
            ));
        }
        _ => return Err(unknown()),
    };
    match order {
        Some(order) => Ok((dtype, order)),
        None if dtype.swap_unit() == 1 || kind == b'V' => Ok((dtype, LITTLE_ENDIAN)),
        None => Err(invalid_file(format!("type {} has no byte order", quoted(descr)))),
    }
}

/// The element type that NumPy stores as void.
fn resolve_void(
    size: usize,
    is_bfloat16: bool,
    comment: Option<&str>,
    options: &OpenOptions,
) -> Result<DType> {
    if let Some(comment) = comment {
        return match DType::from_name(comment).filter(|dtype| dtype.typestr().is_none()) {
            Some(dtype) if dtype.size() == size => Ok(dtype),
            _ => Err(invalid_file(format!(
                "the type comment names {}, which does not fit the element size of {size}",
                quoted(comment)
            ))),
        };
    }
    match options.dtype {
        Some(dtype) if dtype.size() == size && dtype.typestr().is_none() => Ok(dtype),
        None if is_bfloat16 => Ok(DType::BFloat16),
        _ => Err(unsupported_dtype(
            format!(
                "the type is void of size {size}, as NumPy stores types of ml_dtypes, without their name"
            ),
            hints::NAME_DTYPE,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry_core::ErrorKind;
    use tensorferry_core::error::Hint;

    fn parse(descr: &str) -> Result<(DType, ByteOrder)> {
        parse_type_string(descr, None, &OpenOptions::default())
    }

    #[test]
    fn object_types_are_rejected_with_a_hint() {
        for descr in ["|O", "|O8"] {
            let error = parse(descr).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
            assert_eq!(error.hint(), Some(&Hint::Key(hints::LOAD_OBJECT_ARRAY, None)));
        }
    }

    #[test]
    fn other_numpy_types_are_unsupported() {
        for descr in ["<f16", "<c32", "<M8[ns]", "<m8", "|S5", "<U3", "|S0", "|V7", "|V2", "|V1", "<V1"] {
            assert_eq!(parse(descr).unwrap_err().kind(), ErrorKind::UnsupportedDType, "{descr}");
        }
    }

    #[test]
    fn unknown_types_are_invalid() {
        for descr in [
            "",
            "<",
            "f4",
            "=f4",
            "<f",
            "<f3",
            "<f04",
            "<f+4",
            "<f4 ",
            "|f4",
            "<x4",
            "<i99999999999999999999",
        ] {
            assert_eq!(parse(descr).unwrap_err().kind(), ErrorKind::InvalidFile, "{descr:?}");
        }
    }

    #[test]
    fn void_types_without_a_comment() {
        assert_eq!(parse("<V2").unwrap(), (DType::BFloat16, LITTLE_ENDIAN));
        let options = OpenOptions { dtype: Some(DType::Float8E5M2), ..OpenOptions::default() };
        assert_eq!(parse_type_string("<V1", None, &options).unwrap().0, DType::Float8E5M2);
        assert!(parse_type_string("<V2", None, &options).is_err());
    }

    #[test]
    fn comments_that_contradict_the_type_string_are_rejected() {
        let options = OpenOptions::default();
        assert!(parse_type_string("<V1", Some("bfloat16"), &options).is_err());
        assert!(parse_type_string("<V4", Some("float32"), &options).is_err());
        assert!(parse_type_string("<f2", Some("bfloat16"), &options).is_err());
        assert!(parse_type_string("<V2", Some("nonsense"), &options).is_err());
    }
}

//! JSON objects as lists of members, in file order and without duplicates.
//!
//! serde's maps silently keep the last of two equal names. Here a duplicate is an error, because two readers of one file must
//! not disagree on which tensor a name means. serde_json limits the nesting depth.

use crate::errors::{escaped, invalid_file, quoted};
use crate::formats::names::find_duplicate;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use tensorferry_core::{Error, Result};

/// The members of a JSON object, in file order.
pub(crate) struct Members<T>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Members<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<T>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Members::unique(members).map_err(serde::de::Error::custom)
            }
        }
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<T> Members<T> {
    fn unique(members: Vec<(String, T)>) -> Result<Self, String> {
        match find_duplicate(members.iter().map(|member| member.0.as_str())) {
            Some(name) => Err(format!("duplicate name {}", quoted(name))),
            None => Ok(Self(members)),
        }
    }
}

/// A string, number or boolean as text; `None` for null, arrays and objects, which are skipped.
pub(crate) struct Scalar(pub(crate) Option<String>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScalarVisitor;
        impl<'de> Visitor<'de> for ScalarVisitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
                Ok(Scalar(Some(text.to_owned())))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(Some(value.to_string())))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(Some(value.to_string())))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(Some(value.to_string())))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(Some(value.to_string())))
            }

            fn visit_unit<E>(self) -> Result<Scalar, E> {
                Ok(Scalar(None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Scalar(None))
            }
        }
        deserializer.deserialize_any(ScalarVisitor)
    }
}

/// An error of the JSON parser. `subject` names the text.
pub(crate) fn invalid_json(subject: &str, error: &serde_json::Error) -> Error {
    // serde's message can quote the file, newlines included.
    invalid_file(format!("{subject} is invalid: {}", escaped(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members_of(text: &str) -> std::result::Result<Vec<(String, u32)>, String> {
        serde_json::from_str::<Members<u32>>(text).map(|members| members.0).map_err(|error| error.to_string())
    }

    #[test]
    fn order_is_kept_and_duplicates_are_rejected() {
        assert_eq!(members_of(r#"{"b": 1, "a": 2}"#).unwrap(), [("b".into(), 1), ("a".into(), 2)]);
        assert!(members_of(r#"{"b": 1, "a": 2, "b": 1}"#).unwrap_err().contains("duplicate"));
        // An escape does not make a different name.
        assert!(members_of(r#"{"a": 1, "\u0061": 2}"#).unwrap_err().contains("duplicate"));
    }

    #[test]
    fn deep_nesting_is_rejected() {
        let text = format!("{{\"a\": {}", "[".repeat(1_000_000));
        assert!(serde_json::from_str::<Members<Scalar>>(&text).is_err());
    }

    #[test]
    fn scalars_become_text() {
        let text = r#"{"a": 1, "b": "x", "c": [1, {}], "d": true, "e": null, "f": {"g": 1}, "h": -1}"#;
        let found: Vec<_> = serde_json::from_str::<Members<Scalar>>(text).unwrap().0;
        let found: Vec<_> = found.into_iter().map(|(_, value)| value.0).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found, [text("1"), text("x"), None, text("true"), None, None, text("-1")]);
    }
}

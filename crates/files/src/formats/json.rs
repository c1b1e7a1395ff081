//! JSON objects as a list of pairs, in their order, each name once.
//!
//! serde's maps keep the last of two equal names and say nothing. Here two equal names are an error: which of two tensors of
//! one name is meant must not depend on who reads the file. How deep the text nests is limited by serde_json.

use crate::fault::{bad, quoted};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use tensorferry_core::{Error, Result};

/// The members of an object, in their order.
pub(crate) struct Pairs<T>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Pairs::unique(pairs).map_err(serde::de::Error::custom)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

impl<T> Pairs<T> {
    fn unique(pairs: Vec<(String, T)>) -> Result<Self, String> {
        match twice(pairs.iter().map(|pair| pair.0.as_str())) {
            Some(name) => Err(format!("the name {} stands there twice", quoted(name))),
            None => Ok(Self(pairs)),
        }
    }
}

/// A name that is there more than once.
pub(crate) fn twice<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

/// A text, number or truth value as text; `None` for what has members of its own, which is passed over.
pub(crate) struct Scalar(pub(crate) Option<String>);

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
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
        deserializer.deserialize_any(Any)
    }
}

/// Says what is wrong with a JSON text.
pub(crate) fn broken(what: &str, error: &serde_json::Error) -> Error {
    // The message may quote the file, newlines and all.
    let text = quoted(&error.to_string());
    bad(format!("{what} is not what it should be: {}", text.trim_matches('"')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> std::result::Result<Vec<(String, u32)>, String> {
        serde_json::from_str::<Pairs<u32>>(text).map(|pairs| pairs.0).map_err(|error| error.to_string())
    }

    #[test]
    fn order_is_kept_and_duplicates_are_refused() {
        assert_eq!(pairs(r#"{"b": 1, "a": 2}"#).unwrap(), [("b".into(), 1), ("a".into(), 2)]);
        assert!(pairs(r#"{"b": 1, "a": 2, "b": 1}"#).unwrap_err().contains("twice"));
        // An escape does not make it another name.
        assert!(pairs(r#"{"a": 1, "\u0061": 2}"#).unwrap_err().contains("twice"));
    }

    #[test]
    fn deep_nesting_ends() {
        let text = format!("{{\"a\": {}", "[".repeat(1_000_000));
        assert!(serde_json::from_str::<Pairs<Scalar>>(&text).is_err());
    }

    #[test]
    fn scalars_are_texts() {
        let text = r#"{"a": 1, "b": "x", "c": [1, {}], "d": true, "e": null, "f": {"g": 1}, "h": -1}"#;
        let found: Vec<_> = serde_json::from_str::<Pairs<Scalar>>(text).unwrap().0;
        let found: Vec<_> = found.into_iter().map(|(_, value)| value.0).collect();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found, [text("1"), text("x"), None, text("true"), None, None, text("-1")]);
    }
}

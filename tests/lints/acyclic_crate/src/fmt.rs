//! Named as a module of the standard library; depends on `text`.

use crate::text::quote;
use std::fmt;

pub struct Quoted(pub String);

impl fmt::Display for Quoted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&quote(&self.0))
    }
}

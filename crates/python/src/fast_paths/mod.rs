//! Fast paths: private entry points of frameworks, with a switch, a probe and a public fallback for each.

mod fresh_thread;
mod python;
mod register;
pub(crate) mod samples;
mod switch;
mod table;

pub(crate) use self::fresh_thread::on_fresh_thread;
pub(crate) use self::python::{_fast_path_enabled, _fast_path_probed, _fast_paths};
pub(crate) use self::register::{Probed, Unusable, check, present, probe};
pub(crate) use self::switch::{Disabled, parse};
pub(crate) use self::table::FastPath;

//! Advice for the hint keys of this crate.

use super::{Advice, keys};

pub(super) const ADVICE: &[Advice] = &[
    (keys::NAME_FRAMEWORK, "pass one of {}, or register it with ferry.register_framework"),
    (keys::SUGGEST_DTYPE, "did you mean \"{}\"?"),
    (keys::NAME_DTYPE, "pass a name such as \"float32\", \"bfloat16\" or \"int64\", or \"default\""),
    (keys::NAME_DEVICE, "pass \"cpu\", \"cuda:0\" or \"default\""),
    (keys::NAME_FILE_FORMAT, "pass format=\"npy\", \"npz\", \"safetensors\", \"tensorproto\" or \"raw\""),
];

//! Plans and trips as Python objects: text, HTML for notebooks, and dicts for programs.

pub(crate) mod card;
mod fold;
mod html;
mod plan;
mod plan_data;
mod sparse;
mod tensor;
mod ties;
mod time;
pub(crate) mod trace;
mod transfer_path;
mod tree;
mod trip;
pub(crate) mod trips;

pub(crate) use fold::join_names;
pub(crate) use plan_data::{ArrayReport, PlanReport, SparseReport, TreeReport};
pub(crate) use tensor::{CopiedMemory, TensorReport};
pub(crate) use ties::Ties;
pub(crate) use trip::Trip;

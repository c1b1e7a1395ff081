//! `publish`: tensors that other processes may attach.

use super::structure::fold;
use super::{FACTS, Ticket, of_piece, seconds};
use crate::carry::{self, convert, materialise};
use crate::errors::Result;
use crate::gpu;
use crate::kinds::Recognised;
use crate::moving::{self, Moving};
use crate::owner::Owner;
use crate::source::{Memory, Source};
use crate::streams::Streams;
use crate::wishes::{self, Keywords};
use crate::{settings, trace};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::Instant;
use tensorferry_core::plan::{self, Plan, Reason, TargetFacts, Wishes};
use tensorferry_core::{Access, Layout, Tensor};
use tensorferry_share::{Options, Outgoing, Piece, find};

/// Lets other processes of this user attach a tensor, or a tree of tensors.
///
/// Memory that is shared already (made by `empty`, or attached) is published as it is: whoever attaches it sees later
/// writes. Anything else is copied once into shared memory.
///
/// Args:
///     x: A tensor of any framework; or a dict, list or tuple of such, of numbers and of text, nested as you like.
///     device: "cpu" brings a GPU tensor into shared host memory.
///     dtype: The element type under which it is published. None keeps the type.
///     copy: None copies what is not shared memory yet, True always, False never: it raises CopyRequired.
///     writable: False gives others memory that they cannot write; True guarantees that they can without harm to
///         anyone. None follows the tensors: if one of them is read-only or immutable, all are given as read-only.
///     budget: The most bytes of shared memory for each copy.
///     once: Whether the first consumer is the last.
///     timeout: For how many seconds the ticket may be used; None for as long as it lives.
///
/// Returns:
///     A Ticket: keep it for as long as others may come.
#[pyfunction]
#[pyo3(
    signature = (x, *, once=false, timeout=None, **wishes),
    text_signature = "(x, *, device=None, dtype=None, copy=None, writable=None, budget=None, once=False, timeout=None)"
)]
pub(crate) fn publish(
    x: &Bound<'_, PyAny>,
    once: bool,
    timeout: Option<f64>,
    wishes: Option<&Bound<'_, PyDict>>,
) -> Result<Ticket> {
    let timeout = timeout.map(|given| seconds("timeout", given)).transpose()?;
    let keywords =
        wishes.map_or_else(|| Ok(Keywords::none()), |given| wishes::parse("publish", given, false))?;
    let mut lot = Lot { tensors: Vec::new(), access: Access::ReadWrite, wishes: keywords.wishes };
    let structure = fold(x, &mut |leaf, recognised| lot.lay(leaf, recognised))?;
    let options = Options { once, timeout, access: lot.access };
    let publication = tensorferry_share::publish(&lot.tensors, &structure.write()?, &options)?;
    Ok(Ticket::of(publication))
}

/// What goes with one ticket.
struct Lot {
    tensors: Vec<Outgoing>,
    access: Access,
    wishes: Wishes,
}

impl Lot {
    /// Lays a tensor into shared memory, if it is not there.
    fn lay(&mut self, object: &Bound<'_, PyAny>, recognised: Recognised) -> Result<u32> {
        let started = trace::is_on().then(Instant::now);
        let mut source = carry::read(object, recognised)?;
        let found = place_of(&mut source)?;
        let own_memory = if found.is_some() { None } else { Some(Reason::Private) };
        let target = TargetFacts { own_memory, ..FACTS };
        let facts = source.facts();
        let plan = plan::decide(&facts, &target, &self.wishes)?;
        let report = started.map(|started| (started, crate::report::PlanReport::new(&facts, &target, &plan)));
        let outgoing = match found.filter(|_| plan.shares()) {
            Some(outgoing) => outgoing,
            None => copied(object.py(), source, &plan, &self.wishes)?,
        };
        if plan.access == Access::ReadOnly {
            self.access = Access::ReadOnly;
        }
        if let Some((started, report)) = report {
            trace::record(object.py(), report, started.elapsed())?;
        }
        self.tensors.push(outgoing);
        Ok(self.tensors.len() as u32 - 1)
    }
}

/// Where in shared memory a source lies, if it does.
fn place_of(source: &mut Source<'_>) -> Result<Option<Outgoing>> {
    let Memory::Here(tensor) = &mut source.memory else { return Ok(None) };
    let (dtype, layout) = (tensor.dtype(), tensor.layout());
    if layout.is_empty() {
        // There is nothing to copy, wherever nothing lies.
        let (piece, layout) = (Piece::new(0)?, Layout::dense(dtype.size(), layout.shape())?);
        return Ok(Some(Outgoing { memory: piece.arena().clone(), offset: piece.offset(), dtype, layout }));
    }
    if !tensor.device().is_host() {
        return Ok(None);
    }
    let (low, high) = layout.extent();
    let first = tensor.data().wrapping_offset(low as isize);
    let Some((memory, offset)) = find(first, (high - low) as usize) else { return Ok(None) };
    let offset = offset.wrapping_add_signed(low.wrapping_neg() as isize);
    let outgoing = Outgoing { offset, dtype, layout: layout.clone(), memory };
    if outgoing.memory.access() == Access::ReadOnly {
        tensor.set_read_only();
    }
    Ok(Some(outgoing))
}

/// A copy in shared memory, in the type that the plan names.
fn copied(py: Python<'_>, mut source: Source<'_>, plan: &Plan, wishes: &Wishes) -> Result<Outgoing> {
    let streams = source.take_streams();
    let tensor = match source.memory {
        Memory::Here(tensor) => tensor,
        Memory::Later { pending, ref layout, .. } => {
            plan::check_budget(layout.bytes(), wishes)?;
            materialise(&source.object, pending)?
        }
    };
    let (dtype, layout) = (plan.dtype, Layout::dense(plan.dtype.size(), tensor.layout().shape())?);
    let piece = Piece::new(layout.bytes())?;
    let (memory, offset) = (piece.arena().clone(), piece.offset());
    if tensor.device().is_host() {
        convert(py, &tensor, piece.data(), dtype, &layout)?;
    } else {
        let out = of_piece(piece, dtype, layout.clone())?;
        download(py, tensor, streams.unwrap_or_else(Streams::unnamed), out)?;
    }
    Ok(Outgoing { memory, offset, dtype, layout })
}

fn download(py: Python<'_>, tensor: Tensor<Owner>, streams: Streams, out: Tensor<Owner>) -> Result<()> {
    let total = out.layout().bytes();
    let work = gpu::download_into(tensor, streams, out, settings::transfer());
    let moving = Moving {
        total,
        work: Box::new(move |watch| work(watch).map(|()| None)),
        finish: Box::new(|py, _| Ok(py.None())),
    };
    moving::drive(py, moving, None).map(|_| ())
}

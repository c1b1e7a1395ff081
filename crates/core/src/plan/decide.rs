//! The rules of sharing and copying, as one pure function.

use super::facts::{Holds, Nature, SourceFacts, Strides, TargetFacts, Wanted, Wishes};
use super::{Note, Plan, Reason, Route};
use crate::device::DeviceKind;
use crate::dtype::{DType, Kind};
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Access, ByteOrder};
use smallvec::SmallVec;

type Reasons = SmallVec<[Reason; 2]>;

/// Decides what happens to the source on its way to the target.
///
/// # Errors
/// When the target cannot hold the tensor in any form, the wishes contradict each other or the target, or
/// `copy=False` meets a fact that needs a copy.
pub fn decide(source: &SourceFacts<'_>, target: &TargetFacts, wishes: &Wishes) -> Result<Plan> {
    check_writable(target, wishes)?;
    let same = source.framework == target.framework;
    // What a framework holds already it may keep, also where it would not take it anew (JAX's int64 with x64 off).
    let dtype = if same && wishes.dtype == Wanted::Same {
        source.dtype
    } else {
        result_type(source, target, wishes)?
    };
    if same && is_fine_as_it_is(source, wishes, dtype) {
        let mut notes = SmallVec::new();
        if source.nature == Nature::Snapshot {
            notes.push(Note::Snapshot);
        }
        let access = shared_access(source, target, wishes);
        return Ok(Plan { route: Route::Itself, dtype, access, notes });
    }
    check_reach(source, target)?;
    let dtype = if same { result_type(source, target, wishes)? } else { dtype };
    let reasons = reasons_to_copy(source, target, wishes, dtype);
    if reasons.is_empty() {
        let access = shared_access(source, target, wishes);
        return Ok(Plan {
            route: Route::Share,
            dtype,
            access,
            notes: notes(source, target, None, dtype, access),
        });
    }
    if wishes.copy == Some(false) {
        return Err(copy_required(reasons[0], source, target));
    }
    check_budget(source.layout.count().saturating_mul(dtype.size()), wishes)?;
    let frozen = wishes.writable == Some(false) || target.holds == Holds::Immutable;
    let access = if frozen { Access::ReadOnly } else { Access::ReadWrite };
    let notes = notes(source, target, Some(&reasons), dtype, access);
    Ok(Plan { route: Route::Copy(reasons), dtype, access, notes })
}

/// Whether a caller without wishes gets a share, and what may be done to it: the answer of [`decide`] in the common
/// case, without its reasons and notes. `None` means: ask [`decide`].
#[inline(always)]
pub fn plain_share(source: &SourceFacts<'_>, target: &TargetFacts) -> Option<Access> {
    let fits = source.pending.is_none()
        && source.order == ByteOrder::Native
        && source.device.kind == DeviceKind::Cpu
        && source.nature != Nature::Cached
        && target.dtypes.contains(source.dtype)
        && !target.repacked.contains(source.dtype)
        && !target.own_memory
        && (target.wide || source.dtype.narrowed() == source.dtype)
        && source.layout.rank() <= target.max_rank
        && (source.access == Access::ReadWrite || target.holds != Holds::Writable)
        && (target.strides == Strides::Bytes || is_in_place(source, target))
        && source.framework != target.framework;
    fits.then(|| shared_access(source, target, &Wishes::NONE))
}

/// Whether strides and alignment are what the target takes.
fn is_in_place(source: &SourceFacts<'_>, target: &TargetFacts) -> bool {
    let needs = target.alignment.max(source.dtype.align());
    // Both are powers of two.
    let aligned = source.address & (needs - 1) == 0 || source.layout.is_empty();
    aligned && (source.layout.is_dense() || stride_reason(source, target.strides).is_none())
}

fn check_reach(source: &SourceFacts<'_>, target: &TargetFacts) -> Result<()> {
    if source.device.kind != DeviceKind::Cpu {
        return Err(Error::new(
            ErrorKind::UnsupportedDevice,
            format!("the source is on {}, and only host memory is carried", source.device),
        )
        .with_hint("move it to the CPU with its own framework first"));
    }
    if source.layout.rank() > target.max_rank {
        return Err(Error::new(
            ErrorKind::UnsupportedLayout,
            format!(
                "the source has {} dimensions and {} holds at most {}",
                source.layout.rank(),
                target.title,
                target.max_rank
            ),
        )
        .with_hint("reshape it to fewer dimensions first"));
    }
    Ok(())
}

fn check_writable(target: &TargetFacts, wishes: &Wishes) -> Result<()> {
    match (wishes.writable, target.holds) {
        (Some(true), Holds::Immutable) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("writable=True cannot be kept: {} tensors are immutable", target.title),
        )
        .with_hint("leave writable out, or carry the tensor to numpy or torch")),
        (Some(false), Holds::Writable) => Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("writable=False cannot be kept: {} has no read-only tensors", target.title),
        )
        .with_hint("leave writable out, or carry the tensor to numpy or jax")),
        _ => Ok(()),
    }
}

fn is_fine_as_it_is(source: &SourceFacts<'_>, wishes: &Wishes, dtype: DType) -> bool {
    let access = match wishes.writable {
        None => true,
        Some(true) => source.access == Access::ReadWrite && source.nature.allows_writing(),
        Some(false) => source.access == Access::ReadOnly || !source.nature.allows_writing(),
    };
    let order = source.order == ByteOrder::Native || wishes.dtype == Wanted::Same;
    let place = source.device.kind == DeviceKind::Cpu || !wishes.on_host;
    dtype == source.dtype && order && place && wishes.copy != Some(true) && access
}

fn result_type(source: &SourceFacts<'_>, target: &TargetFacts, wishes: &Wishes) -> Result<DType> {
    let dtype = match wishes.dtype {
        Wanted::Type(dtype) => dtype,
        Wanted::Same => source.dtype,
        Wanted::Default if !target.wide => source.dtype.narrowed(),
        Wanted::Default
            if target.narrow_by_default && matches!(source.dtype.kind(), Kind::Float | Kind::Complex) =>
        {
            source.dtype.narrowed()
        }
        Wanted::Default => source.dtype,
    };
    if !target.wide && dtype.narrowed() != dtype {
        let narrow = dtype.narrowed();
        return Err(Error::new(
            ErrorKind::UnsupportedDType,
            format!("{} holds no {dtype} while 64-bit types are off", target.title),
        )
        .with_hint(format!("pass dtype=\"default\" to get {narrow}, or turn on jax_enable_x64")));
    }
    if !target.dtypes.contains(dtype) {
        return Err(Error::new(ErrorKind::UnsupportedDType, format!("{} has no type {dtype}", target.title))
            .with_hint(match dtype.kind() {
                Kind::Float => "pass dtype=\"float32\" (or another type that it has) to convert the values",
                Kind::Complex => "pass dtype=\"complex64\" to convert the values",
                _ => "pass dtype=\"int32\" (or another type that it has) to convert the values",
            }));
    }
    Ok(dtype)
}

fn reasons_to_copy(source: &SourceFacts<'_>, target: &TargetFacts, wishes: &Wishes, dtype: DType) -> Reasons {
    let mut reasons = Reasons::new();
    if let Some(pending) = source.pending {
        reasons.push(Reason::Pending(pending));
    }
    if dtype != source.dtype {
        reasons.push(Reason::Cast { from: source.dtype, to: dtype });
    }
    if source.order == ByteOrder::Swapped && !(target.swapped && wishes.dtype == Wanted::Same) {
        reasons.push(Reason::Swapped);
    }
    // Where the memory cannot be used at all, its strides and alignment are nobody's concern.
    if source.pending.is_none() && source.nature != Nature::Cached {
        if let Some(reason) = stride_reason(source, target.strides) {
            reasons.push(reason);
        }
        let needs = if target.strides == Strides::Bytes { 1 } else { target.alignment.max(dtype.align()) };
        if !source.layout.is_empty() && !source.address.is_multiple_of(needs) {
            reasons.push(Reason::Unaligned { needs });
        }
    }
    if target.repacked.contains(dtype) {
        reasons.push(Reason::Repacked);
    }
    if target.own_memory {
        reasons.push(Reason::OwnMemory);
    }
    let lent = source.access == Access::ReadOnly;
    if source.nature == Nature::Cached {
        reasons.push(Reason::CachedScalar);
    } else if lent && target.holds == Holds::Writable {
        reasons.push(Reason::Frozen);
    } else if wishes.writable == Some(true) && (lent || !source.nature.allows_writing()) {
        reasons.push(Reason::WritableAsked);
    }
    if wishes.copy == Some(true) {
        reasons.push(Reason::Asked);
    }
    reasons
}

fn stride_reason(source: &SourceFacts<'_>, strides: Strides) -> Option<Reason> {
    let layout = source.layout;
    match strides {
        Strides::Bytes => None,
        Strides::Dense => (!layout.is_dense()).then_some(Reason::NotDense),
        Strides::Permuted => (!layout.is_dense_permuted()).then_some(Reason::Gaps),
        Strides::Elements | Strides::Forward if !layout.strides_are_whole() => Some(Reason::BrokenStride),
        Strides::Forward if layout.has_negative_stride() => Some(Reason::NegativeStride),
        Strides::Elements | Strides::Forward => None,
    }
}

fn shared_access(source: &SourceFacts<'_>, target: &TargetFacts, wishes: &Wishes) -> Access {
    let read_only = match target.holds {
        Holds::Immutable => true,
        Holds::Writable => false,
        Holds::Flagged => {
            source.access == Access::ReadOnly
                || !source.nature.allows_writing()
                || wishes.writable == Some(false)
        }
    };
    if read_only { Access::ReadOnly } else { Access::ReadWrite }
}

fn notes(
    source: &SourceFacts<'_>,
    target: &TargetFacts,
    reasons: Option<&Reasons>,
    dtype: DType,
    access: Access,
) -> SmallVec<[Note; 2]> {
    let mut notes = SmallVec::new();
    if reasons.is_none() {
        if target.holds == Holds::Immutable && source.nature == Nature::Mutable {
            notes.push(Note::SourceMustRest);
        } else if source.nature == Nature::Immutable && access == Access::ReadWrite {
            notes.push(Note::AliasesImmutable);
        } else if access == Access::ReadWrite && source.nature != Nature::Temporary {
            notes.push(Note::Aliases);
        }
    }
    if source.nature == Nature::Snapshot {
        notes.push(Note::Snapshot);
    }
    if source.through_array {
        notes.push(Note::ThroughArray);
    }
    if source.requires_grad {
        notes.push(Note::Detached);
    }
    if source.dtype.kind() == Kind::Complex && !matches!(dtype.kind(), Kind::Complex | Kind::Bool) {
        notes.push(Note::DropsImaginary);
    }
    notes
}

/// Sees that a copy of so many bytes is within what there can be and what the caller allows.
///
/// # Errors
/// When it is not.
pub fn check_budget(needs: usize, wishes: &Wishes) -> Result<()> {
    if needs > isize::MAX as usize {
        return Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("no memory holds the {needs} bytes of the copy"),
        )
        .with_hint("convert a slice at a time"));
    }
    match wishes.budget {
        Some(budget) if needs > budget => Err(Error::new(
            ErrorKind::OutOfMemory,
            format!("the copy needs {needs} bytes and the budget is {budget}"),
        )
        .with_hint("raise the budget, or convert a slice at a time")),
        _ => Ok(()),
    }
}

fn copy_required(reason: Reason, source: &SourceFacts<'_>, target: &TargetFacts) -> Error {
    let fact = format!(
        "{} to {} needs a copy: {}",
        source.framework,
        target.framework,
        reason.sentence(source, target)
    );
    let hint = match reason.advice() {
        Some(advice) => format!("leave out copy=False to allow the copy, or {advice}"),
        None => "leave out copy=False to allow the copy".to_owned(),
    };
    Error::new(ErrorKind::CopyRequired, fact).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::super::facts::Pending;
    use super::*;
    use crate::device::Device;
    use crate::dtype::DTypes;
    use crate::layout::Layout;
    use proptest::prelude::*;

    const NUMPY: TargetFacts = TargetFacts {
        framework: "numpy",
        title: "NumPy",
        dtypes: DTypes::ALL,
        repacked: DTypes::NONE,
        own_memory: false,
        wide: true,
        narrow_by_default: false,
        swapped: true,
        strides: Strides::Bytes,
        alignment: 1,
        max_rank: 64,
        holds: Holds::Flagged,
    };
    const TORCH: TargetFacts = TargetFacts {
        framework: "torch",
        title: "PyTorch",
        dtypes: DTypes::ALL.without(DTypes::of(&[DType::Int4])),
        narrow_by_default: true,
        swapped: false,
        strides: Strides::Forward,
        holds: Holds::Writable,
        ..NUMPY
    };
    const TENSORFLOW: TargetFacts = TargetFacts {
        framework: "tensorflow",
        title: "TensorFlow",
        strides: Strides::Dense,
        alignment: 64,
        max_rank: 254,
        holds: Holds::Immutable,
        ..TORCH
    };
    const JAX_NARROW: TargetFacts = TargetFacts {
        framework: "jax",
        title: "JAX",
        wide: false,
        strides: Strides::Permuted,
        repacked: DTypes::of(&[DType::Int4]),
        dtypes: DTypes::ALL,
        ..TENSORFLOW
    };

    fn source(layout: &Layout, dtype: DType) -> SourceFacts<'_> {
        SourceFacts {
            framework: "somewhere",
            dtype,
            layout,
            device: Device::CPU,
            order: ByteOrder::Native,
            address: 4096,
            access: Access::ReadWrite,
            nature: Nature::Mutable,
            pending: None,
            requires_grad: false,
            through_array: false,
        }
    }

    fn float_layout() -> Layout {
        Layout::dense(4, &[3, 4]).unwrap()
    }

    fn reasons(source: &SourceFacts<'_>, target: &TargetFacts) -> Vec<Reason> {
        decide(source, target, &Wishes::NONE).unwrap().reasons().to_vec()
    }

    #[test]
    fn dense_aligned_writable_memory_is_shared_with_everyone() {
        let layout = float_layout();
        for target in [NUMPY, TORCH, TENSORFLOW, JAX_NARROW] {
            assert_eq!(
                decide(&source(&layout, DType::Float32), &target, &Wishes::NONE).unwrap().route,
                Route::Share
            );
        }
    }

    #[test]
    fn each_target_has_its_own_idea_of_strides() {
        let transposed = Layout::strided(4, &[4, 3], &[4, 16]).unwrap();
        let facts = source(&transposed, DType::Float32);
        assert_eq!(reasons(&facts, &NUMPY), []);
        assert_eq!(reasons(&facts, &TORCH), []);
        assert_eq!(reasons(&facts, &JAX_NARROW), []);
        assert_eq!(reasons(&facts, &TENSORFLOW), [Reason::NotDense]);
        let reversed = Layout::strided(4, &[4], &[-4]).unwrap();
        let facts = source(&reversed, DType::Float32);
        assert_eq!(reasons(&facts, &NUMPY), []);
        assert_eq!(reasons(&facts, &TORCH), [Reason::NegativeStride]);
        assert_eq!(reasons(&facts, &JAX_NARROW), [Reason::Gaps]);
        let record = Layout::strided(4, &[4], &[5]).unwrap();
        assert_eq!(reasons(&source(&record, DType::Float32), &TORCH), [Reason::BrokenStride]);
    }

    #[test]
    fn alignment_is_asked_where_it_matters() {
        let layout = float_layout();
        let facts = SourceFacts { address: 4096 + 16, ..source(&layout, DType::Float32) };
        assert_eq!(reasons(&facts, &TORCH), []);
        assert_eq!(reasons(&facts, &TENSORFLOW), [Reason::Unaligned { needs: 64 }]);
        let facts = SourceFacts { address: 4097, ..facts };
        assert_eq!(reasons(&facts, &NUMPY), []);
        assert_eq!(reasons(&facts, &TORCH), [Reason::Unaligned { needs: 4 }]);
    }

    #[test]
    fn frozen_memory_is_never_handed_to_a_writer() {
        let layout = float_layout();
        let facts = SourceFacts { access: Access::ReadOnly, ..source(&layout, DType::Float32) };
        assert_eq!(reasons(&facts, &TORCH), [Reason::Frozen]);
        let plan = decide(&facts, &NUMPY, &Wishes::NONE).unwrap();
        assert_eq!((plan.route, plan.access), (Route::Share, Access::ReadOnly));
        assert!(decide(&facts, &JAX_NARROW, &Wishes::NONE).unwrap().shares());
        let plan = decide(&facts, &NUMPY, &Wishes { writable: Some(true), ..Wishes::NONE }).unwrap();
        assert_eq!((plan.reasons(), plan.access), (&[Reason::WritableAsked][..], Access::ReadWrite));
    }

    #[test]
    fn immutable_sources_are_read_only_in_numpy_and_noted_elsewhere() {
        let layout = float_layout();
        let facts = SourceFacts { nature: Nature::Immutable, ..source(&layout, DType::Float32) };
        assert_eq!(decide(&facts, &NUMPY, &Wishes::NONE).unwrap().access, Access::ReadOnly);
        let plan = decide(&facts, &TORCH, &Wishes::NONE).unwrap();
        assert!(plan.shares() && plan.notes.contains(&Note::AliasesImmutable));
        let plan = decide(&facts, &TORCH, &Wishes { writable: Some(true), ..Wishes::NONE }).unwrap();
        assert_eq!(plan.reasons(), [Reason::WritableAsked]);
        let cached = SourceFacts { nature: Nature::Cached, ..facts };
        for target in [NUMPY, TORCH, JAX_NARROW] {
            assert_eq!(reasons(&cached, &target), [Reason::CachedScalar]);
        }
    }

    #[test]
    fn wide_types_bound_for_a_narrow_target_raise() {
        let layout = Layout::dense(8, &[2]).unwrap();
        let facts = source(&layout, DType::Int64);
        let error = decide(&facts, &JAX_NARROW, &Wishes::NONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert!(error.hint().unwrap().contains("dtype=\"default\""));
        let plan = decide(&facts, &JAX_NARROW, &Wishes { dtype: Wanted::Default, ..Wishes::NONE }).unwrap();
        assert_eq!(plan.dtype, DType::Int32);
        let plan = decide(&facts, &TORCH, &Wishes { dtype: Wanted::Default, ..Wishes::NONE }).unwrap();
        assert_eq!((plan.dtype, plan.route), (DType::Int64, Route::Share));
    }

    #[test]
    fn a_missing_type_is_an_error_with_a_way_out() {
        let layout = Layout::dense(1, &[2]).unwrap();
        let error = decide(&source(&layout, DType::Int4), &TORCH, &Wishes::NONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
        assert!(error.hint().unwrap().contains("dtype="));
        assert_eq!(reasons(&source(&layout, DType::Int4), &JAX_NARROW), [Reason::Repacked]);
    }

    #[test]
    fn the_same_framework_gives_the_object_itself() {
        let layout = float_layout();
        let facts = SourceFacts { framework: "torch", ..source(&layout, DType::Float32) };
        let route = |wishes| decide(&facts, &TORCH, &wishes).unwrap().route;
        assert_eq!(route(Wishes::NONE), Route::Itself);
        assert_eq!(route(Wishes { copy: Some(false), ..Wishes::NONE }), Route::Itself);
        assert!(matches!(route(Wishes { copy: Some(true), ..Wishes::NONE }), Route::Copy(_)));
        assert!(matches!(
            route(Wishes { dtype: Wanted::Type(DType::Float16), ..Wishes::NONE }),
            Route::Copy(_)
        ));
    }

    #[test]
    fn a_framework_keeps_what_it_would_not_take() {
        let layout = Layout::dense(8, &[2]).unwrap();
        let facts =
            SourceFacts { framework: "jax", nature: Nature::Immutable, ..source(&layout, DType::Int64) };
        assert_eq!(decide(&facts, &JAX_NARROW, &Wishes::NONE).unwrap().route, Route::Itself);
        let copied = decide(&facts, &JAX_NARROW, &Wishes { copy: Some(true), ..Wishes::NONE });
        assert_eq!(copied.unwrap_err().kind(), ErrorKind::UnsupportedDType);
    }

    #[test]
    fn what_is_out_of_reach_may_stay_where_it_is() {
        let layout = Layout::dense(4, &[1; 65]).unwrap();
        let device = Device { kind: DeviceKind::Cuda, index: 0 };
        let facts = SourceFacts { framework: "torch", device, ..source(&layout, DType::Float32) };
        assert_eq!(decide(&facts, &TORCH, &Wishes::NONE).unwrap().route, Route::Itself);
        for wishes in [Wishes { on_host: true, ..Wishes::NONE }, Wishes { copy: Some(true), ..Wishes::NONE }]
        {
            assert_eq!(decide(&facts, &TORCH, &wishes).unwrap_err().kind(), ErrorKind::UnsupportedDevice);
        }
        let error = decide(&facts, &NUMPY, &Wishes::NONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    }

    #[test]
    fn contradictions_are_named() {
        let layout = float_layout();
        let facts = source(&layout, DType::Float32);
        for (target, writable) in [(TENSORFLOW, true), (TORCH, false)] {
            let error =
                decide(&facts, &target, &Wishes { writable: Some(writable), ..Wishes::NONE }).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        }
    }

    #[test]
    fn budget_and_rank_hold() {
        let layout = float_layout();
        let facts = source(&layout, DType::Float32);
        let wishes = Wishes { copy: Some(true), budget: Some(47), ..Wishes::NONE };
        assert_eq!(decide(&facts, &NUMPY, &wishes).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert!(decide(&facts, &NUMPY, &Wishes { budget: Some(48), ..wishes }).is_ok());
        assert!(decide(&facts, &NUMPY, &Wishes { budget: Some(0), ..Wishes::NONE }).is_ok());
        let deep = Layout::dense(4, &[1; 65]).unwrap();
        let error = decide(&source(&deep, DType::Float32), &NUMPY, &Wishes::NONE).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedLayout);
    }

    /// [`plain_share`] knows no rule of its own.
    fn agrees(facts: &SourceFacts<'_>, target: &TargetFacts) -> bool {
        match (plain_share(facts, target), decide(facts, target, &Wishes::NONE)) {
            (Some(access), Ok(plan)) => plan.route == Route::Share && plan.access == access,
            (Some(_), Err(_)) => false,
            (None, Ok(plan)) => plan.route != Route::Share || facts.order == ByteOrder::Swapped,
            (None, Err(_)) => true,
        }
    }

    fn any_facts() -> impl Strategy<Value = (Vec<i64>, usize, bool, usize, u8, usize)> {
        (
            proptest::collection::vec(-3i64..4, 0..4),
            0usize..70,
            any::<bool>(),
            0usize..NATURES.len(),
            0u8..4,
            0usize..DType::COUNT,
        )
    }

    const NATURES: [Nature; 5] =
        [Nature::Mutable, Nature::Temporary, Nature::Immutable, Nature::Cached, Nature::Snapshot];

    proptest! {
        /// Whatever the facts: a plan never lets read-only memory be written, `copy=False` never copies,
        /// and a copy always says why.
        #[test]
        fn the_promises_hold(
            (strides, offset, frozen, nature, pending, dtype) in any_facts(),
            target in 0usize..4, copy in proptest::option::of(any::<bool>()), writable in proptest::option::of(any::<bool>()),
        ) {
            let dtype = DType::all().nth(dtype).unwrap();
            let shape = vec![2; strides.len()];
            let layout = Layout::strided(dtype.size(), &shape, &strides).unwrap();
            let facts = SourceFacts {
                address: 4096 + offset,
                access: if frozen { Access::ReadOnly } else { Access::ReadWrite },
                nature: NATURES[nature],
                pending: [None, None, Some(Pending::Negate), Some(Pending::Unpack)][pending as usize],
                ..source(&layout, dtype)
            };
            let target = [NUMPY, TORCH, TENSORFLOW, JAX_NARROW][target];
            let wishes = Wishes { copy, writable, ..Wishes::NONE };
            prop_assert!(agrees(&facts, &target));
            let swapped = SourceFacts { order: ByteOrder::Swapped, ..facts.clone() };
            prop_assert!(agrees(&swapped, &target));
            let same = SourceFacts { framework: target.framework, ..facts.clone() };
            prop_assert!(agrees(&same, &target));
            match decide(&facts, &target, &wishes) {
                Ok(plan) => {
                    if copy == Some(false) { prop_assert!(plan.shares()); }
                    if copy == Some(true) { prop_assert!(!plan.shares()); }
                    if plan.shares() {
                        if frozen { prop_assert!(target.holds != Holds::Writable && plan.access == Access::ReadOnly); }
                        prop_assert!(facts.pending.is_none() && facts.nature != Nature::Cached);
                        if target.alignment == 64 { prop_assert_eq!(offset % 64, 0); }
                        if target.strides == Strides::Dense { prop_assert!(layout.is_dense()); }
                    } else {
                        prop_assert!(!plan.reasons().is_empty());
                    }
                    if writable == Some(true) {
                        prop_assert_eq!(plan.access, Access::ReadWrite);
                        if plan.shares() { prop_assert!(!frozen && facts.nature.allows_writing()); }
                    }
                }
                Err(error) => {
                    prop_assert!(error.hint().is_some(), "{}", error);
                    prop_assert!(!error.fact().contains('\n'));
                }
            }
        }
    }
}

//! Tests of the planner of dense tensors.

use super::*;
use crate::device::{Device, DeviceKind};
use crate::dtype::{DType, DTypes};
use crate::error::{ErrorKind, Hint, HintKey};
use crate::hints;
use crate::layout::Layout;
use crate::tensor::{Access, ByteOrder};
use proptest::prelude::*;

const NUMPY: TargetCapabilities = TargetCapabilities {
    framework: "numpy",
    title: "NumPy",
    dtypes: DTypes::ALL,
    repacked: DTypes::NONE,
    host_only: DTypes::NONE,
    own_memory: None,
    keeps_64_bit: true,
    narrow_by_default: false,
    accepts_swapped_bytes: true,
    strides: Strides::Bytes,
    alignment: 1,
    max_rank: 64,
    mutability: TargetMutability::Flagged,
    devices: SupportedDevices::Host,
    default_device: Device::CPU,
    cpu_count: 1,
    default_cpu: 0,
    drops_on_own_threads: false,
};
const TORCH: TargetCapabilities = TargetCapabilities {
    framework: "torch",
    title: "PyTorch",
    dtypes: DTypes::ALL.without(DTypes::of(&[DType::Int4])),
    narrow_by_default: true,
    accepts_swapped_bytes: false,
    strides: Strides::Forward,
    mutability: TargetMutability::Writable,
    devices: SupportedDevices::Both,
    ..NUMPY
};
const CUPY: TargetCapabilities = TargetCapabilities {
    framework: "cupy",
    title: "CuPy",
    strides: Strides::Elements,
    devices: SupportedDevices::Cuda,
    default_device: Device::cuda(1),
    cpu_count: 0,
    ..TORCH
};
const TENSORFLOW: TargetCapabilities = TargetCapabilities {
    framework: "tensorflow",
    title: "TensorFlow",
    strides: Strides::Dense,
    alignment: 64,
    max_rank: 254,
    mutability: TargetMutability::Immutable,
    host_only: DTypes::of(&[DType::Float8E5M2]),
    drops_on_own_threads: true,
    ..TORCH
};
const JAX_NARROW: TargetCapabilities = TargetCapabilities {
    framework: "jax",
    title: "JAX",
    keeps_64_bit: false,
    strides: Strides::Permuted,
    repacked: DTypes::of(&[DType::Int4]),
    host_only: DTypes::of(&[DType::Int4]),
    dtypes: DTypes::ALL,
    ..TENSORFLOW
};

fn source(layout: &Layout, dtype: DType) -> SourceDescription<'_> {
    SourceDescription {
        framework: "somewhere",
        dtype,
        layout,
        device: Device::CPU,
        order: ByteOrder::Native,
        address: 4096,
        alignment: Alignment::Guaranteed,
        access: Access::ReadWrite,
        mutability: SourceMutability::Mutable,
        pending: None,
        through_array: false,
        counts: None,
        drop_lock: false,
    }
}

/// The key of an error's hint.
fn hint_key(error: &crate::Error) -> HintKey {
    match error.hint() {
        Some(&Hint::Key(key, _)) => key,
        other => panic!("{other:?} is not a key"),
    }
}

fn float_layout() -> Layout {
    Layout::dense(4, &[3, 4]).unwrap()
}

fn reasons(source: &SourceDescription<'_>, target: &TargetCapabilities) -> Vec<Reason> {
    decide(source, target, &ConvertOptions::NONE).unwrap().reasons().to_vec()
}

#[test]
fn memory_released_under_a_lock_is_copied_where_it_is_dropped_on_other_threads() {
    let layout = Layout::dense(4, &[2]).unwrap();
    let description =
        SourceDescription { framework: "paddle", drop_lock: true, ..source(&layout, DType::Float32) };
    for target in [NUMPY, TORCH] {
        assert_eq!(decide(&description, &target, &ConvertOptions::NONE).unwrap().route, Route::Share);
        assert!(fast_decision(&description, &target).is_some());
    }
    let plan = decide(&description, &TENSORFLOW, &ConvertOptions::NONE).unwrap();
    assert_eq!(plan.reasons(), [Reason::DropLock]);
    assert_eq!(fast_decision(&description, &TENSORFLOW), None);
    let share_or_fail = ConvertOptions { copy: Some(false), ..ConvertOptions::NONE };
    assert_eq!(
        decide(&description, &TENSORFLOW, &share_or_fail).unwrap_err().kind(),
        ErrorKind::CopyRequired
    );
}

#[test]
fn dense_aligned_writable_memory_is_shared_with_every_target() {
    let layout = float_layout();
    for target in [NUMPY, TORCH, TENSORFLOW, JAX_NARROW] {
        assert_eq!(
            decide(&source(&layout, DType::Float32), &target, &ConvertOptions::NONE).unwrap().route,
            Route::Share
        );
    }
}

#[test]
fn each_target_supports_other_strides() {
    let transposed = Layout::strided(4, &[4, 3], &[4, 16]).unwrap();
    let description = source(&transposed, DType::Float32);
    assert_eq!(reasons(&description, &NUMPY), []);
    assert_eq!(reasons(&description, &TORCH), []);
    assert_eq!(reasons(&description, &JAX_NARROW), []);
    assert_eq!(reasons(&description, &TENSORFLOW), [Reason::NotDense]);
    let reversed = Layout::strided(4, &[4], &[-4]).unwrap();
    let description = source(&reversed, DType::Float32);
    assert_eq!(reasons(&description, &NUMPY), []);
    assert_eq!(reasons(&description, &TORCH), [Reason::NegativeStride]);
    assert_eq!(reasons(&description, &JAX_NARROW), [Reason::NegativeStride]);
    let record = Layout::strided(4, &[4], &[5]).unwrap();
    assert_eq!(reasons(&source(&record, DType::Float32), &TORCH), [Reason::FractionalStride]);
}

#[test]
fn alignment_is_checked_where_it_matters() {
    let layout = float_layout();
    let description = SourceDescription { address: 4096 + 16, ..source(&layout, DType::Float32) };
    assert_eq!(reasons(&description, &TORCH), []);
    assert_eq!(reasons(&description, &TENSORFLOW), [Reason::Unaligned { needs: 64 }]);
    let description = SourceDescription { address: 4097, ..description };
    assert_eq!(reasons(&description, &NUMPY), []);
    assert_eq!(reasons(&description, &TORCH), [Reason::Unaligned { needs: 4 }]);
}

#[test]
fn accidental_alignment_is_not_relied_on() {
    let layout = float_layout();
    for address in [4096, 4096 + 16] {
        let alignment = Alignment::Accidental;
        let description = SourceDescription { address, alignment, ..source(&layout, DType::Float32) };
        for target in [TENSORFLOW, JAX_NARROW] {
            assert_eq!(reasons(&description, &target), [Reason::AccidentalAlignment { needs: 64 }]);
            assert_eq!(fast_decision(&description, &target), Some(FastDecision::Snapshot));
            // The caller may request the share, and gets it if the address is aligned.
            let shared =
                decide(&description, &target, &ConvertOptions { copy: Some(false), ..ConvertOptions::NONE });
            assert_eq!(shared.is_ok_and(|plan| plan.route == Route::Share), address == 4096);
            // Another reason is reported alone.
            let copied =
                decide(&description, &target, &ConvertOptions { copy: Some(true), ..ConvertOptions::NONE })
                    .unwrap();
            assert_eq!(copied.reasons(), [Reason::Requested]);
            let dtype = DTypeRequest::Type(DType::Float16);
            let cast =
                decide(&description, &target, &ConvertOptions { dtype, ..ConvertOptions::NONE }).unwrap();
            assert_eq!(cast.reasons().len(), 1);
        }
        for target in [NUMPY, TORCH] {
            assert_eq!(reasons(&description, &target), []);
        }
        let nothing = Layout::dense(4, &[0, 4]).unwrap();
        assert_eq!(reasons(&SourceDescription { layout: &nothing, ..description }, &TENSORFLOW), []);
    }
}

#[test]
fn read_only_memory_is_never_shared_with_a_writable_target() {
    let layout = float_layout();
    let description = SourceDescription { access: Access::ReadOnly, ..source(&layout, DType::Float32) };
    assert_eq!(reasons(&description, &TORCH), [Reason::ReadOnly]);
    let plan = decide(&description, &NUMPY, &ConvertOptions::NONE).unwrap();
    assert_eq!((plan.route, plan.access), (Route::Share, Access::ReadOnly));
    assert!(decide(&description, &JAX_NARROW, &ConvertOptions::NONE).unwrap().shares());
    let plan = decide(&description, &NUMPY, &ConvertOptions { writable: Some(true), ..ConvertOptions::NONE })
        .unwrap();
    assert_eq!((plan.reasons(), plan.access), (&[Reason::WritableRequested][..], Access::ReadWrite));
}

#[test]
fn immutable_sources_are_read_only_in_numpy_and_noted_elsewhere() {
    let layout = float_layout();
    let description =
        SourceDescription { mutability: SourceMutability::Immutable, ..source(&layout, DType::Float32) };
    assert_eq!(decide(&description, &NUMPY, &ConvertOptions::NONE).unwrap().access, Access::ReadOnly);
    let plan = decide(&description, &TORCH, &ConvertOptions::NONE).unwrap();
    assert!(plan.shares() && plan.notes.contains(&Note::AliasesImmutable));
    let plan = decide(&description, &TORCH, &ConvertOptions { writable: Some(true), ..ConvertOptions::NONE })
        .unwrap();
    assert_eq!(plan.reasons(), [Reason::WritableRequested]);
    let cached = SourceDescription { mutability: SourceMutability::Cached, ..description };
    for target in [NUMPY, TORCH, JAX_NARROW] {
        assert_eq!(reasons(&cached, &target), [Reason::CachedScalar]);
    }
}

#[test]
fn types_of_64_bits_for_a_target_without_them_are_errors() {
    let layout = Layout::dense(8, &[2]).unwrap();
    let description = source(&layout, DType::Int64);
    let error = decide(&description, &JAX_NARROW, &ConvertOptions::NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
    assert_eq!(error.hint(), Some(&Hint::Key(hints::USE_DEFAULT_DTYPE, Some("int32".into()))));
    let plan = decide(
        &description,
        &JAX_NARROW,
        &ConvertOptions { dtype: DTypeRequest::Default, ..ConvertOptions::NONE },
    )
    .unwrap();
    assert_eq!(plan.dtype, DType::Int32);
    let plan = decide(
        &description,
        &TORCH,
        &ConvertOptions { dtype: DTypeRequest::Default, ..ConvertOptions::NONE },
    )
    .unwrap();
    assert_eq!((plan.dtype, plan.route), (DType::Int64, Route::Share));
}

#[test]
fn a_missing_type_is_an_error_with_a_hint() {
    let layout = Layout::dense(1, &[2]).unwrap();
    let error = decide(&source(&layout, DType::Int4), &TORCH, &ConvertOptions::NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
    assert_eq!(hint_key(&error), hints::CAST_TO_SUPPORTED_DTYPE);
    assert_eq!(reasons(&source(&layout, DType::Int4), &JAX_NARROW), [Reason::Repacked]);
}

#[test]
fn the_same_framework_gives_the_object_itself() {
    let layout = float_layout();
    let description = SourceDescription { framework: "torch", ..source(&layout, DType::Float32) };
    let route = |options| decide(&description, &TORCH, &options).unwrap().route;
    assert_eq!(route(ConvertOptions::NONE), Route::Itself);
    assert_eq!(route(ConvertOptions { copy: Some(false), ..ConvertOptions::NONE }), Route::Itself);
    assert!(matches!(route(ConvertOptions { copy: Some(true), ..ConvertOptions::NONE }), Route::Copy(_)));
    assert!(matches!(
        route(ConvertOptions { dtype: DTypeRequest::Type(DType::Float16), ..ConvertOptions::NONE }),
        Route::Copy(_)
    ));
}

#[test]
fn a_framework_keeps_tensors_that_it_would_not_import() {
    let layout = Layout::dense(8, &[2]).unwrap();
    let description = SourceDescription {
        framework: "jax",
        mutability: SourceMutability::Immutable,
        ..source(&layout, DType::Int64)
    };
    assert_eq!(decide(&description, &JAX_NARROW, &ConvertOptions::NONE).unwrap().route, Route::Itself);
    let copied =
        decide(&description, &JAX_NARROW, &ConvertOptions { copy: Some(true), ..ConvertOptions::NONE });
    assert_eq!(copied.unwrap_err().kind(), ErrorKind::UnsupportedDType);
}

#[test]
fn tensors_on_unsupported_devices_may_stay_there() {
    let layout = Layout::dense(4, &[1; 65]).unwrap();
    let device = Device { kind: DeviceKind::Rocm, index: 0 };
    let description = SourceDescription { framework: "torch", device, ..source(&layout, DType::Float32) };
    assert_eq!(decide(&description, &TORCH, &ConvertOptions::NONE).unwrap().route, Route::Itself);
    let on_host = ConvertOptions { device: DeviceRequest::At(Device::CPU), ..ConvertOptions::NONE };
    for options in [on_host, ConvertOptions { copy: Some(true), ..ConvertOptions::NONE }] {
        assert_eq!(decide(&description, &TORCH, &options).unwrap_err().kind(), ErrorKind::UnsupportedDevice);
    }
    let error = decide(&description, &NUMPY, &ConvertOptions::NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
}

#[test]
fn memory_stays_on_devices_that_the_target_supports() {
    let layout = float_layout();
    let host = source(&layout, DType::Float32);
    let gpu = SourceDescription { device: Device::cuda(0), ..host.clone() };
    let pinned =
        SourceDescription { device: Device { kind: DeviceKind::CudaHost, index: 0 }, ..host.clone() };
    let managed =
        SourceDescription { device: Device { kind: DeviceKind::CudaManaged, index: 1 }, ..host.clone() };
    let go = |description: &SourceDescription<'_>, target: &TargetCapabilities| {
        decide(description, target, &ConvertOptions::NONE).unwrap()
    };
    assert_eq!(go(&gpu, &TORCH).route, Route::Share);
    assert_eq!(go(&gpu, &CUPY).route, Route::Share);
    assert_eq!(go(&pinned, &NUMPY).route, Route::Share);
    assert_eq!(go(&pinned, &TORCH).route, Route::Share);
    assert_eq!(go(&managed, &CUPY).route, Route::Share);
    let down = go(&gpu, &NUMPY);
    let moved = Reason::Moved { from: Device::cuda(0), to: Device::CPU, requested: false };
    assert_eq!((down.reasons(), down.device), (&[moved][..], Device::CPU));
    let up = go(&host, &CUPY);
    assert_eq!((up.reasons()[0].kind(), up.device), ("upload", Device::cuda(1)));
    // TensorFlow checks its alignment on a GPU too, and aborts.
    let odd = SourceDescription { address: 4096 + 4, device: Device::cuda(0), ..host.clone() };
    let both = TargetCapabilities { devices: SupportedDevices::Both, ..TENSORFLOW };
    assert_eq!(go(&odd, &both).reasons(), [Reason::Unaligned { needs: 64 }]);
}

#[test]
fn requested_devices_are_used_or_rejected() {
    let layout = float_layout();
    let host = source(&layout, DType::Float32);
    let gpu = SourceDescription { framework: "torch", device: Device::cuda(0), ..host.clone() };
    let at = |device| ConvertOptions { device: DeviceRequest::At(device), ..ConvertOptions::NONE };
    let error = decide(&host, &NUMPY, &at(Device::cuda(0))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    assert!(error.fact().contains("NumPy holds host memory only"), "{}", error.fact());
    assert_eq!(decide(&gpu, &TORCH, &at(Device::cuda(0))).unwrap().route, Route::Itself);
    assert_eq!(decide(&gpu, &TORCH, &at(Device::cuda(1))).unwrap().reasons()[0].kind(), "peer copy");
    assert_eq!(decide(&gpu, &TORCH, &at(Device::CPU)).unwrap().device, Device::CPU);
    let home = ConvertOptions { device: DeviceRequest::Default, ..ConvertOptions::NONE };
    assert_eq!(decide(&gpu, &TORCH, &home).unwrap().device, Device::CPU);
    let never = ConvertOptions { copy: Some(false), ..ConvertOptions::NONE };
    let error = decide(&gpu, &NUMPY, &never).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CopyRequired);
    assert!(error.fact().contains("the source is on cuda:0"), "{}", error.fact());
}

#[test]
fn requested_cpu_devices_are_used_or_rejected() {
    let layout = float_layout();
    let host = source(&layout, DType::Float32);
    let cpu = |index| Device { kind: DeviceKind::Cpu, index };
    let at = |device| ConvertOptions { device: DeviceRequest::At(device), ..ConvertOptions::NONE };
    let jax = TargetCapabilities { cpu_count: 4, ..JAX_NARROW };
    for index in 0..4 {
        let plan = decide(&host, &jax, &at(cpu(index))).unwrap();
        assert_eq!((plan.route, plan.device), (Route::Share, cpu(index)));
        let copied = decide(&host, &jax, &ConvertOptions { copy: Some(true), ..at(cpu(index)) }).unwrap();
        assert_eq!(copied.device, cpu(index));
    }
    let error = decide(&host, &jax, &at(cpu(4))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    assert_eq!(error.fact(), "JAX has 4 CPU devices, cpu:0 to cpu:3, and cpu:4 was requested");
    for target in [NUMPY, TORCH, TENSORFLOW] {
        let error = decide(&host, &target, &at(cpu(1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
        assert!(error.fact().contains("has one CPU device"), "{}", error.fact());
        assert_eq!(hint_key(&error), hints::OMIT_DEVICE_OR_NAME_CPU);
    }
    assert!(decide(&host, &CUPY, &at(cpu(1))).unwrap_err().fact().contains("CuPy holds GPU memory only"));
    // The framework's own tensor stays on its device unless another is requested, also when it is copied.
    let own = SourceDescription {
        framework: "jax",
        device: cpu(1),
        mutability: SourceMutability::Immutable,
        ..host.clone()
    };
    let stays = decide(&own, &jax, &ConvertOptions::NONE).unwrap();
    assert_eq!((stays.route, stays.device), (Route::Itself, cpu(1)));
    assert_eq!(decide(&own, &jax, &at(cpu(1))).unwrap().route, Route::Itself);
    let moved = decide(&own, &jax, &at(cpu(0))).unwrap();
    assert_eq!((moved.route, moved.device), (Route::Share, cpu(0)));
    let copied = decide(&own, &jax, &ConvertOptions { copy: Some(true), ..ConvertOptions::NONE }).unwrap();
    assert_eq!(copied.device, cpu(1));
    // CPU devices of one framework are unrelated to those of another.
    let second = TargetCapabilities { default_cpu: 2, default_device: cpu(2), ..jax };
    for (description, target, device) in [(&own, &TORCH, 0), (&host, &second, 2), (&own, &NUMPY, 0)] {
        let plan = decide(description, target, &ConvertOptions::NONE).unwrap();
        assert_eq!((plan.route, plan.device), (Route::Share, cpu(device)));
        assert_eq!(fast_decision(description, target), None);
    }
    let pinned =
        SourceDescription { device: Device { kind: DeviceKind::CudaHost, index: 0 }, ..host.clone() };
    assert_eq!(decide(&pinned, &jax, &at(cpu(3))).unwrap().device, cpu(3));
    assert_eq!(decide(&pinned, &second, &ConvertOptions::NONE).unwrap().device, cpu(2));
    assert_eq!(decide(&pinned, &jax, &ConvertOptions::NONE).unwrap().device, pinned.device);
    let home = ConvertOptions { device: DeviceRequest::Default, ..ConvertOptions::NONE };
    assert_eq!(decide(&host, &second, &home).unwrap().device, cpu(2));
    let gpu = SourceDescription { device: Device::cuda(0), ..host.clone() };
    let down = decide(
        &gpu,
        &TargetCapabilities { devices: SupportedDevices::Host, ..second },
        &ConvertOptions::NONE,
    )
    .unwrap();
    assert_eq!(down.device, cpu(2));
}

#[test]
fn shards_on_several_devices_are_gathered_on_the_named_device() {
    let layout = float_layout();
    let pending = Some(Pending::Gather);
    let spread = SourceDescription { framework: "jax", pending, ..source(&layout, DType::Float32) };
    assert_eq!(decide(&spread, &JAX_NARROW, &ConvertOptions::NONE).unwrap().route, Route::Itself);
    let named = ConvertOptions { device: DeviceRequest::At(Device::CPU), ..ConvertOptions::NONE };
    assert_eq!(decide(&spread, &JAX_NARROW, &named).unwrap().reasons(), [Reason::Pending(Pending::Gather)]);
}

#[test]
fn a_host_only_type_is_rejected_on_a_gpu() {
    let layout = Layout::dense(1, &[3, 4]).unwrap();
    let here = source(&layout, DType::Float8E5M2);
    let there = SourceDescription { device: Device::cuda(0), ..here };
    assert_eq!(reasons(&here, &TENSORFLOW), []);
    assert_eq!(fast_decision(&there, &TENSORFLOW), None);
    let error = decide(&there, &TENSORFLOW, &ConvertOptions::NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
    assert_eq!(hint_key(&error), hints::USE_CPU_OR_VIEW_AS_BYTES);
    let home = ConvertOptions { device: DeviceRequest::At(Device::CPU), ..ConvertOptions::NONE };
    assert!(decide(&there, &TENSORFLOW, &home).is_ok());
    assert!(decide(&there, &TORCH, &ConvertOptions::NONE).unwrap().shares());
}

#[test]
fn contradicting_options_are_errors() {
    let layout = float_layout();
    let description = source(&layout, DType::Float32);
    for (target, writable) in [(TENSORFLOW, true), (TORCH, false)] {
        let error = decide(
            &description,
            &target,
            &ConvertOptions { writable: Some(writable), ..ConvertOptions::NONE },
        )
        .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn budget_and_rank_are_limits() {
    let layout = float_layout();
    let description = source(&layout, DType::Float32);
    let options = ConvertOptions { copy: Some(true), budget: Some(47), ..ConvertOptions::NONE };
    assert_eq!(decide(&description, &NUMPY, &options).unwrap_err().kind(), ErrorKind::OutOfMemory);
    assert!(decide(&description, &NUMPY, &ConvertOptions { budget: Some(48), ..options }).is_ok());
    assert!(
        decide(&description, &NUMPY, &ConvertOptions { budget: Some(0), ..ConvertOptions::NONE }).is_ok()
    );
    let deep = Layout::dense(4, &[1; 65]).unwrap();
    let error = decide(&source(&deep, DType::Float32), &NUMPY, &ConvertOptions::NONE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedLayout);
}

/// Whether the fast path and [`decide`] agree.
fn agrees(description: &SourceDescription<'_>, target: &TargetCapabilities) -> bool {
    match (fast_decision(description, target), decide(description, target, &ConvertOptions::NONE)) {
        (Some(FastDecision::Share(access)), Ok(plan)) => plan.route == Route::Share && plan.access == access,
        (Some(FastDecision::Snapshot), Ok(plan)) => {
            matches!(plan.reasons(), [Reason::AccidentalAlignment { .. }])
                && plan.dtype == description.dtype
                && description.layout.is_dense()
        }
        (Some(_), Err(_)) => false,
        (None, Ok(plan)) => {
            plan.route != Route::Share
                || description.order == ByteOrder::Swapped
                || description.mutability == SourceMutability::Differentiable
        }
        (None, Err(_)) => true,
    }
}

fn any_description() -> impl Strategy<Value = (Vec<i64>, usize, bool, usize, u8, usize)> {
    (
        proptest::collection::vec(-3i64..4, 0..4),
        0usize..70,
        any::<bool>(),
        0usize..MUTABILITIES.len(),
        0u8..4,
        0usize..DType::COUNT,
    )
}

const MUTABILITIES: [SourceMutability; 6] = [
    SourceMutability::Mutable,
    SourceMutability::Temporary,
    SourceMutability::Immutable,
    SourceMutability::Cached,
    SourceMutability::Snapshot,
    SourceMutability::Differentiable,
];

proptest! {
    /// A plan never makes read-only memory writable, a requested share never copies, and a copy always has a reason.
    #[test]
    fn plans_keep_the_guarantees(
        (strides, offset, read_only, mutability, pending, dtype) in any_description(),
        target in 0usize..4, copy in proptest::option::of(any::<bool>()), writable in proptest::option::of(any::<bool>()),
    ) {
        let dtype = DType::all().nth(dtype).unwrap();
        let shape = vec![2; strides.len()];
        let layout = Layout::strided(dtype.size(), &shape, &strides).unwrap();
        let description = SourceDescription {
            address: 4096 + offset,
            access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
            mutability: MUTABILITIES[mutability],
            pending: [None, None, Some(Pending::Negate), Some(Pending::Unpack)][pending as usize],
            ..source(&layout, dtype)
        };
        let target = [NUMPY, TORCH, TENSORFLOW, JAX_NARROW][target];
        let options = ConvertOptions { copy, writable, ..ConvertOptions::NONE };
        prop_assert!(agrees(&description, &target));
        let swapped = SourceDescription { order: ByteOrder::Swapped, ..description.clone() };
        prop_assert!(agrees(&swapped, &target));
        let same = SourceDescription { framework: target.framework, ..description.clone() };
        prop_assert!(agrees(&same, &target));
        let accidental = SourceDescription { alignment: Alignment::Accidental, ..description.clone() };
        prop_assert!(agrees(&accidental, &target));
        if target.relies_on_alignment() && copy != Some(false) {
            // The address does not matter.
            let elsewhere = SourceDescription { address: 4096, ..accidental.clone() };
            let routes = [&accidental, &elsewhere].map(|description| decide(description, &target, &options).map(|plan| plan.route));
            prop_assert_eq!(routes[0].as_ref().ok(), routes[1].as_ref().ok());
        }
        match decide(&description, &target, &options) {
            Ok(plan) => {
                if copy == Some(false) { prop_assert!(plan.shares()); }
                if copy == Some(true) { prop_assert!(!plan.shares()); }
                if plan.shares() {
                    if read_only { prop_assert!(target.mutability != TargetMutability::Writable && plan.access == Access::ReadOnly); }
                    prop_assert!(description.pending.is_none() && description.mutability != SourceMutability::Cached);
                    if target.alignment == 64 { prop_assert_eq!(offset % 64, 0); }
                    if target.strides == Strides::Dense { prop_assert!(layout.is_dense()); }
                } else {
                    prop_assert!(!plan.reasons().is_empty());
                }
                if writable == Some(true) {
                    prop_assert_eq!(plan.access, Access::ReadWrite);
                    if plan.shares() { prop_assert!(!read_only && description.mutability.allows_writing()); }
                }
            }
            Err(error) => {
                prop_assert!(error.hint().is_some(), "{}", error);
                prop_assert!(!error.fact().contains('\n'));
            }
        }
    }
}

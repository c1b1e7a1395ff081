//! Tests of `ipc` within one process, against the test driver. The tests of `crates/share` cover two processes.
//!
//! `make test-rust` puts the test driver on the library path.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a panic is a failed test")]

mod common;

use common::{GpuMemory, calls, download, driver_counts, fail, gpu, upload};
use std::os::fd::AsFd;
use std::sync::Arc;
use tensorferry_core::error::Hint;
use tensorferry_core::{Access, ByteOrder, DType, ErrorKind, Layout};
use tensorferry_cuda::ipc::*;
use tensorferry_cuda::{DeviceBlock, DeviceSource, Gpu, Stream, SyncPoint, hints};

fn write(to: &impl GpuMemory, bytes: &[u8]) {
    upload(gpu(), bytes, to, Stream::LEGACY).unwrap();
    gpu().wait(SyncPoint::AllStreams).unwrap();
}

fn read(from: &impl GpuMemory, count: usize) -> Vec<u8> {
    download(gpu(), from, count, Stream::LEGACY).unwrap()
}

// One test runs all of them in order: the counts and injected errors belong to the process.
#[test]
fn one_process() {
    gpus_by_uuid();
    export_methods();
    arena_blocks();
    attaching_own_memory();
    events();
    driver_errors();
}

fn gpus_by_uuid() {
    let uuids = [0, 1].map(|index| Gpu::get(index).unwrap().uuid().unwrap());
    assert_ne!(uuids[0], uuids[1]);
    assert_eq!(Gpu::by_uuid(uuids[1]).unwrap().index(), 1);
    let error = Gpu::by_uuid(Uuid([7; 16])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    assert!(error.fact().contains("GPU-07070707-0707-"));
    assert_eq!(error.hint(), Some(&Hint::Key(hints::EXPOSE_PRODUCER_GPU, None)));
}

fn export_methods() {
    let here = [0u8; 8];
    let error = Allocation::of(here.as_ptr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let plain = DeviceBlock::new_exportable(gpu(), 1000, Stream::LEGACY).unwrap();
    let found = Allocation::of(plain.data().wrapping_add(10)).unwrap();
    assert_eq!((found.export_method(), found.bytes(), found.offset()), (ExportMethod::Legacy, 1000, 10));
    assert!(!found.can_be_read_only());
    let ordered = DeviceBlock::new(gpu(), 1000, Stream::LEGACY).unwrap();
    let found = Allocation::of(ordered.data()).unwrap();
    assert_eq!(found.export_method(), ExportMethod::None);
    // SAFETY: `export` needs the allocation for as long as the arena lives, and fails before it makes one.
    let error = unsafe { found.export(Box::new(())) }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CopyRequired);
    assert_eq!(error.hint(), Some(&Hint::Key(hints::PUBLISH_COPY, None)));
    let own = GpuArena::new(gpu(), 5 << 20).unwrap();
    let found = Allocation::of(own.data().wrapping_add(3 << 20)).unwrap();
    assert_eq!(
        (found.export_method(), found.bytes(), found.offset()),
        (ExportMethod::Descriptor, 6 << 20, 3 << 20)
    );
    assert!(found.can_be_read_only());
    // Two exports of one allocation have one id.
    for address in [plain.data(), own.data()] {
        let [first, second] = [address, address.wrapping_add(500)].map(|address| {
            // SAFETY: `plain` and `own` keep both allocations until the end of this function, the arenas live for one pass.
            unsafe { Allocation::of(address).unwrap().export(Box::new(())).unwrap() }
        });
        assert!(first.id() == second.id() && first.data() == second.data() && first.is_own());
        assert_eq!(counts().exports, 2);
    }
    assert_eq!((counts().exports, counts().made), (0, 1));
    let (same, offset) = find(own.data().wrapping_add(77), 10).unwrap();
    assert!(Arc::ptr_eq(&same, &own) && offset == 77);
    assert!(find(own.data(), (6 << 20) + 1).is_none() && find(plain.data(), 1).is_none());
}

fn arena_blocks() {
    let before = driver_counts();
    let first = GpuArenaBlock::new(gpu(), 1000).unwrap();
    let second = GpuArenaBlock::new(gpu(), 1).unwrap();
    assert!(Arc::ptr_eq(first.arena(), second.arena()) && second.offset() == 1024);
    let other = GpuArenaBlock::new(Gpu::get(1).unwrap(), 10).unwrap();
    assert!(other.arena().gpu().index() == 1 && other.offset() == 0);
    let large = GpuArenaBlock::new(gpu(), 9 << 20).unwrap();
    assert_eq!((large.offset(), large.arena().bytes(), counts().made), (0, 10 << 20, 3));
    let address = first.data();
    drop((first, second));
    // An arena is reused from the beginning, unless another process was given it.
    let again = GpuArenaBlock::new(gpu(), 1000).unwrap();
    assert_eq!(again.data(), address);
    again.arena().set_shared();
    drop(again);
    let next = GpuArenaBlock::new(gpu(), 1000).unwrap();
    assert_eq!(next.data(), address.wrapping_add(1024));
    drop((next, other, large));
    release_idle();
    assert_eq!((driver_counts(), counts().made), (before, 0));
}

fn attaching_own_memory() {
    let before = driver_counts();
    let own = GpuArena::new(gpu(), 100).unwrap();
    write(&*own, b"mine");
    let descriptor = own.export_handle().descriptor().unwrap();
    let attach = |id: &ArenaId, bytes, access| {
        GpuArena::attach(gpu(), id, bytes, access, ImportHandle::Descriptor(descriptor))
    };
    let bytes = own.bytes() as u64;
    assert!(Arc::ptr_eq(&attach(own.id(), bytes, Access::ReadWrite).unwrap(), &own));
    let read_only = attach(own.id(), bytes, Access::ReadOnly).unwrap();
    assert!(
        read_only.data() != own.data() && read_only.access() == Access::ReadOnly && counts().imports == 1
    );
    assert_eq!(read(&*read_only, 4), b"mine");
    assert!(Arc::ptr_eq(&attach(own.id(), bytes, Access::ReadOnly).unwrap(), &read_only));
    // Announcements that do not match the memory.
    let fact = |result: tensorferry_core::Result<Arc<GpuArena>>| result.unwrap_err().fact().to_owned();
    assert!(fact(attach(own.id(), bytes + 1, Access::ReadWrite)).contains("under the id"));
    assert!(fact(attach(&[1; 16], bytes * 2, Access::ReadWrite)).contains("cannot be mapped"));
    assert!(
        fact(attach(&[1; 16], bytes - 1, Access::ReadWrite)).contains("not a multiple of the granularity")
    );
    assert!(fact(attach(&[1; 16], 0, Access::ReadWrite)).contains("announced 0 bytes"));
    assert!(fact(attach(&[1; 16], u64::MAX, Access::ReadWrite)).contains("18446744073709551615 bytes"));
    let far = Gpu::get(1).unwrap();
    let handle = ImportHandle::Descriptor(descriptor);
    assert!(
        fact(GpuArena::attach(far, &[1; 16], bytes, Access::ReadWrite, handle)).contains("not on cuda:1")
    );
    let (pipe, _end) = std::io::pipe().unwrap();
    let handle = ImportHandle::Descriptor(pipe.as_fd());
    assert!(
        fact(GpuArena::attach(gpu(), &[1; 16], bytes, Access::ReadWrite, handle))
            .contains("cannot be opened")
    );
    let handle = ImportHandle::Legacy(&[9; 64]);
    assert!(
        fact(GpuArena::attach(gpu(), &[1; 16], bytes, Access::ReadWrite, handle))
            .contains("cannot be opened")
    );
    assert!(
        fact(GpuArena::attach(gpu(), &[1; 16], bytes, Access::ReadOnly, handle))
            .contains("cannot be protected")
    );
    drop((own, read_only));
    assert_eq!((driver_counts(), counts()), (before, GpuArenaCounts::default()));
}

fn events() {
    let before = driver_counts();
    {
        let (work, reader) = (gpu().sync_stream().unwrap(), Stream::LEGACY);
        assert!(ReadyEvent::after(gpu(), &[SyncPoint::Complete]).unwrap().is_none());
        gpu().wait(SyncPoint::AllStreams).unwrap();
        assert!(ReadyEvent::after(gpu(), &[SyncPoint::Stream(work)]).unwrap().is_none());
        let (from, to) =
            (DeviceBlock::new(gpu(), 8, reader).unwrap(), DeviceBlock::new(gpu(), 8, reader).unwrap());
        write(&from, b"new data");
        let layout = Layout::dense(8, &[1]).unwrap();
        let source = DeviceSource {
            data: from.data(),
            dtype: DType::Int64,
            layout: &layout,
            order: ByteOrder::Native,
        };
        let overwrite = || {
            write(&to, b"old data");
            // SAFETY: both blocks have eight bytes, and live until a read has waited for `work`.
            unsafe { gpu().convert(&source, to.data(), DType::Int64, work).unwrap() };
        };
        for points in [
            &[SyncPoint::Stream(work)][..],
            &[SyncPoint::Stream(work), SyncPoint::Stream(reader)],
            &[SyncPoint::AllStreams],
        ] {
            overwrite();
            let event = ReadyEvent::after(gpu(), points).unwrap().unwrap();
            assert_eq!(counts().events, 1);
            // In the process that made it, the handle stands for the event itself.
            let awaited = RemoteEvent::open(gpu(), event.handle()).unwrap();
            assert_eq!(read(&to, 8), b"old data");
            awaited.order(SyncPoint::Stream(reader)).unwrap();
            assert_eq!(read(&to, 8), b"new data");
            assert!(awaited.is_complete().unwrap() && counts().events == 1);
        }
        let error = RemoteEvent::open(gpu(), &[3; 64]).unwrap_err();
        assert!(error.fact().contains("event cannot be opened"));
        // Without interprocess events, the host waits.
        fail(c"cuIpcGetEventHandle", 0, 801);
        overwrite();
        assert!(ReadyEvent::after(gpu(), &[SyncPoint::Stream(work)]).unwrap().is_none());
        assert_eq!(read(&to, 8), b"new data");
    }
    assert_eq!((driver_counts(), counts()), (before, GpuArenaCounts::default()));
}

/// Every driver call that can fail fails once, and nothing leaks.
fn driver_errors() {
    let before = driver_counts();
    for name in [
        c"cuMemGetAllocationGranularity",
        c"cuMemCreate",
        c"cuMemAddressReserve",
        c"cuMemMap",
        c"cuMemSetAccess",
        c"cuMemExportToShareableHandle",
    ] {
        fail(name, 0, 719);
        assert!(GpuArena::new(gpu(), 100).is_err(), "{name:?}");
        assert_eq!((driver_counts(), counts()), (before, GpuArenaCounts::default()), "{name:?}");
    }
    fail(c"cuMemCreate", 0, 2);
    let error = GpuArenaBlock::new(gpu(), 100).unwrap_err();
    assert!(error.kind() == ErrorKind::OutOfMemory && error.fact().contains("bytes on cuda:0"), "{error}");
    let own = GpuArena::new(gpu(), 100).unwrap();
    let with_own = (driver_counts(), counts());
    let descriptor = own.export_handle().descriptor().unwrap();
    for name in [
        c"cuMemImportFromShareableHandle",
        c"cuMemGetAllocationPropertiesFromHandle",
        c"cuMemAddressReserve",
        c"cuMemMap",
        c"cuMemSetAccess",
    ] {
        fail(name, 0, 801);
        let handle = ImportHandle::Descriptor(descriptor);
        let result = GpuArena::attach(gpu(), own.id(), own.bytes() as u64, Access::ReadOnly, handle);
        let error = result.unwrap_err();
        assert!(name != c"cuMemSetAccess" || error.fact().contains("cannot map GPU memory as read-only"));
        assert_eq!((driver_counts(), counts()), with_own, "{name:?}");
    }
    // Without virtual memory management, memory comes from `cuMemAlloc` and is exported by a legacy handle.
    fail(c"cuDeviceGetAttribute", 0, 1);
    let plain = GpuArena::new(gpu(), 100).unwrap();
    assert!(matches!(plain.export_handle(), ExportHandle::Legacy(_)) && !plain.can_be_read_only());
    fail(c"cuDeviceGetAttribute", 0, 1);
    fail(c"cuIpcGetMemHandle", 0, 1);
    assert!(GpuArena::new(gpu(), 100).is_err());
    drop(plain);
    assert_eq!((driver_counts(), counts()), with_own);
    // While a stream is captured, the host cannot wait for the work, and the mapping is leaked.
    fail(c"cuCtxSynchronize", 0, 900);
    drop(own);
    assert_eq!((counts(), driver_counts().0), (GpuArenaCounts::default(), with_own.0.0));
    // Addresses that are still mapped are not given back.
    let own = GpuArena::new(gpu(), 100).unwrap();
    let frees = calls(c"cuMemAddressFree");
    fail(c"cuMemUnmap", 0, 719);
    drop(own);
    assert_eq!(calls(c"cuMemAddressFree"), frees);
}

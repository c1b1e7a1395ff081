//! Memory for other processes, as far as one process alone can see it, against the stand-in driver. What two processes do
//! is tested with crates/share.
//!
//! `make test-rust` puts it where the driver is looked for.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what fails here is a failed test")]

use std::ffi::{CStr, c_int, c_void};
use std::os::fd::AsFd;
use std::sync::Arc;
use tensorferry_core::{Access, ByteOrder, DType, ErrorKind, Layout};
use tensorferry_cuda::ipc::*;
use tensorferry_cuda::{
    DeviceBlock, DeviceSource, Gpu, HostDestination, RingOptions, Stream, SyncPoint, TransferControl,
    TransferPath,
};

/// A function of the driver's that this crate does not call.
fn function(name: &CStr) -> *mut c_void {
    // SAFETY: a library that is loaded, and names that end with a zero byte.
    unsafe {
        let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW);
        let found = libc::dlsym(library, name.as_ptr());
        assert!(!found.is_null(), "not the stand-in driver: run `make test-rust`");
        found
    }
}

/// Makes the call after so many more of a function fail.
fn fail(name: &CStr, after: u64, status: c_int) {
    // SAFETY: the stand-in has this function, of this type.
    unsafe {
        let fail: extern "C" fn(*const i8, u64, c_int) = std::mem::transmute(function(c"testdriver_fail"));
        fail(name.as_ptr(), after, status);
    }
}

fn number(name: &CStr) -> usize {
    // SAFETY: the stand-in's functions that count take nothing.
    unsafe {
        let count: extern "C" fn() -> usize = std::mem::transmute(function(name));
        count()
    }
}

/// All that is open: mappings and such, events, bytes.
fn open() -> (usize, usize, usize) {
    (number(c"testdriver_mappings"), number(c"testdriver_events"), number(c"testdriver_used"))
}

fn gpu() -> &'static Gpu {
    Gpu::get(0).expect("the stand-in driver: run `make test-rust`")
}

const LANES: RingOptions = RingOptions { threads: 2, chunk: 256 << 10, spares: false, batched: false };

fn write(to: *mut u8, bytes: &[u8]) {
    let layout = Layout::dense(1, &[bytes.len() as i64]).unwrap();
    let source =
        DeviceSource { data: bytes.as_ptr(), dtype: DType::UInt8, layout: &layout, order: ByteOrder::Native };
    // SAFETY: memory that is as long.
    unsafe {
        gpu().send(&source, to, DType::UInt8, Stream::LEGACY, LANES, &TransferControl::default()).unwrap();
        gpu().wait(SyncPoint::Everything).unwrap();
    }
}

fn read(from: *const u8, count: usize) -> Vec<u8> {
    let (layout, mut bytes) = (Layout::dense(1, &[count as i64]).unwrap(), vec![0; count]);
    let source = DeviceSource { data: from, dtype: DType::UInt8, layout: &layout, order: ByteOrder::Native };
    let to = HostDestination { data: bytes.as_mut_ptr(), dtype: DType::UInt8, layout: &layout };
    // SAFETY: memory that is as long.
    unsafe {
        gpu()
            .fetch(
                &source,
                &to,
                SyncPoint::Stream(Stream::LEGACY),
                TransferPath::Driver,
                &TransferControl::default(),
            )
            .unwrap();
    }
    bytes
}

// One after the other in one test: counts and faults are the process's.
#[test]
fn one_process() {
    gpus_by_name();
    ways();
    pieces();
    own_memory_comes_back();
    events();
    faults();
}

fn gpus_by_name() {
    let names = [0, 1].map(|index| Gpu::get(index).unwrap().uuid().unwrap());
    assert_ne!(names[0], names[1]);
    assert_eq!(Gpu::by_uuid(names[1]).unwrap().index(), 1);
    let error = Gpu::by_uuid(Uuid([7; 16])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
    assert!(
        error.fact().contains("GPU-07070707-0707-") && error.to_string().contains("CUDA_VISIBLE_DEVICES")
    );
}

fn ways() {
    let here = [0u8; 8];
    let error = Allocation::of(here.as_ptr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let plain = DeviceBlock::plain(gpu(), 1000, Stream::LEGACY).unwrap();
    let found = Allocation::of(plain.data().wrapping_add(10)).unwrap();
    assert_eq!((found.way(), found.bytes(), found.offset()), (ExportMethod::Legacy, 1000, 10));
    assert!(!found.can_be_read_only());
    let ordered = DeviceBlock::new(gpu(), 1000, Stream::LEGACY).unwrap();
    let found = Allocation::of(ordered.data()).unwrap();
    assert_eq!(found.way(), ExportMethod::None);
    // SAFETY: it is refused.
    let error = unsafe { found.export(Box::new(())) }.unwrap_err();
    assert_eq!((error.kind(), error.hint().is_some()), (ErrorKind::CopyRequired, true));
    let own = GpuArena::new(gpu(), 5 << 20).unwrap();
    let found = Allocation::of(own.data().wrapping_add(3 << 20)).unwrap();
    assert_eq!((found.way(), found.bytes(), found.offset()), (ExportMethod::Descriptor, 6 << 20, 3 << 20));
    assert!(found.can_be_read_only());
    // Two exports of one allocation have one name.
    // SAFETY: the blocks live until the end.
    unsafe {
        for address in [plain.data(), own.data()] {
            let first = Allocation::of(address).unwrap().export(Box::new(())).unwrap();
            let second = Allocation::of(address.wrapping_add(500)).unwrap().export(Box::new(())).unwrap();
            assert!(first.id() == second.id() && first.data() == second.data() && first.is_own());
            assert_eq!(counts().exports, 2);
        }
    }
    assert_eq!((counts().exports, counts().made), (0, 1));
    let (same, offset) = find(own.data().wrapping_add(77), 10).unwrap();
    assert!(Arc::ptr_eq(&same, &own) && offset == 77);
    assert!(find(own.data(), (6 << 20) + 1).is_none() && find(plain.data(), 1).is_none());
}

fn pieces() {
    let before = open();
    let first = GpuArenaBlock::new(gpu(), 1000).unwrap();
    let second = GpuArenaBlock::new(gpu(), 1).unwrap();
    assert!(Arc::ptr_eq(first.arena(), second.arena()) && second.offset() == 1024);
    let other = GpuArenaBlock::new(Gpu::get(1).unwrap(), 10).unwrap();
    assert!(other.arena().gpu().index() == 1 && other.offset() == 0);
    let large = GpuArenaBlock::new(gpu(), 9 << 20).unwrap();
    assert_eq!((large.offset(), large.arena().bytes(), counts().made), (0, 10 << 20, 3));
    let address = first.data();
    drop((first, second));
    // Used again from the beginning, but not when others were handed it.
    let again = GpuArenaBlock::new(gpu(), 1000).unwrap();
    assert_eq!(again.data(), address);
    again.arena().show();
    drop(again);
    let next = GpuArenaBlock::new(gpu(), 1000).unwrap();
    assert_eq!(next.data(), address.wrapping_add(1024));
    drop((next, other, large));
    release_idle();
    assert_eq!((open(), counts().made), (before, 0));
}

fn own_memory_comes_back() {
    let before = open();
    let own = GpuArena::new(gpu(), 100).unwrap();
    write(own.data(), b"mine");
    let descriptor = own.door().descriptor().unwrap();
    let attach = |id: &ArenaId, bytes, access| {
        GpuArena::attach(gpu(), id, bytes, access, ImportHandle::Descriptor(descriptor))
    };
    let bytes = own.bytes() as u64;
    assert!(Arc::ptr_eq(&attach(own.id(), bytes, Access::ReadWrite).unwrap(), &own));
    let frozen = attach(own.id(), bytes, Access::ReadOnly).unwrap();
    assert!(frozen.data() != own.data() && frozen.access() == Access::ReadOnly && counts().imports == 1);
    assert_eq!(read(frozen.data(), 4), b"mine");
    assert!(Arc::ptr_eq(&attach(own.id(), bytes, Access::ReadOnly).unwrap(), &frozen));
    // What does not fit.
    let fact = |result: tensorferry_core::Result<Arc<GpuArena>>| result.unwrap_err().fact().to_owned();
    assert!(fact(attach(own.id(), bytes + 1, Access::ReadWrite)).contains("under the name"));
    assert!(fact(attach(&[1; 16], bytes * 2, Access::ReadWrite)).contains("cannot be mapped"));
    assert!(fact(attach(&[1; 16], bytes - 1, Access::ReadWrite)).contains("which cannot be"));
    assert!(fact(attach(&[1; 16], 0, Access::ReadWrite)).contains("of 0 bytes"));
    assert!(fact(attach(&[1; 16], u64::MAX, Access::ReadWrite)).contains("18446744073709551615 bytes"));
    let far = Gpu::get(1).unwrap();
    let entrance = ImportHandle::Descriptor(descriptor);
    assert!(
        fact(GpuArena::attach(far, &[1; 16], bytes, Access::ReadWrite, entrance)).contains("not on cuda:1")
    );
    let (pipe, _end) = std::io::pipe().unwrap();
    let entrance = ImportHandle::Descriptor(pipe.as_fd());
    assert!(
        fact(GpuArena::attach(gpu(), &[1; 16], bytes, Access::ReadWrite, entrance))
            .contains("cannot be opened")
    );
    let entrance = ImportHandle::Legacy(&[9; 64]);
    assert!(
        fact(GpuArena::attach(gpu(), &[1; 16], bytes, Access::ReadWrite, entrance))
            .contains("cannot be opened")
    );
    assert!(
        fact(GpuArena::attach(gpu(), &[1; 16], bytes, Access::ReadOnly, entrance))
            .contains("cannot be protected")
    );
    drop((own, frozen));
    assert_eq!((open(), counts()), (before, GpuArenaCounts::default()));
}

fn events() {
    let before = open();
    // SAFETY: streams that live as long as the process, and blocks that live until they are done.
    unsafe {
        let (work, reader) = (gpu().sync_stream().unwrap(), Stream::LEGACY);
        assert!(ReadyEvent::after(gpu(), &[SyncPoint::Nothing]).unwrap().is_none());
        gpu().wait(SyncPoint::Everything).unwrap();
        assert!(ReadyEvent::after(gpu(), &[SyncPoint::Stream(work)]).unwrap().is_none());
        let (from, to) =
            (DeviceBlock::new(gpu(), 8, reader).unwrap(), DeviceBlock::new(gpu(), 8, reader).unwrap());
        for sides in [
            &[SyncPoint::Stream(work)][..],
            &[SyncPoint::Stream(work), SyncPoint::Stream(reader)],
            &[SyncPoint::Everything],
        ] {
            write(from.data(), b"new data");
            write(to.data(), b"old data");
            let layout = Layout::dense(8, &[1]).unwrap();
            let source = DeviceSource {
                data: from.data(),
                dtype: DType::Int64,
                layout: &layout,
                order: ByteOrder::Native,
            };
            gpu().convert(&source, to.data(), DType::Int64, work).unwrap();
            let event = ReadyEvent::after(gpu(), sides).unwrap().unwrap();
            assert_eq!(counts().events, 1);
            // In the process that made it, it is the event itself.
            let awaited = RemoteEvent::open(gpu(), event.handle()).unwrap();
            assert_eq!(read(to.data(), 8), b"old data");
            awaited.order(SyncPoint::Stream(reader)).unwrap();
            assert_eq!(read(to.data(), 8), b"new data");
            assert!(awaited.is_over().unwrap() && counts().events == 1);
        }
        let error = RemoteEvent::open(gpu(), &[3; 64]).unwrap_err();
        assert!(error.fact().contains("event cannot be opened"));
        // Without events, the host waits.
        fail(c"cuIpcGetEventHandle", 0, 801);
        let layout = Layout::dense(8, &[1]).unwrap();
        let source = DeviceSource {
            data: from.data(),
            dtype: DType::Int64,
            layout: &layout,
            order: ByteOrder::Native,
        };
        write(to.data(), b"old data");
        gpu().convert(&source, to.data(), DType::Int64, work).unwrap();
        assert!(ReadyEvent::after(gpu(), &[SyncPoint::Stream(work)]).unwrap().is_none());
        assert_eq!(read(to.data(), 8), b"new data");
    }
    assert_eq!((open(), counts()), (before, GpuArenaCounts::default()));
}

/// Every call that can be refused is, once, and nothing stays open.
fn faults() {
    let before = open();
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
        assert_eq!((open(), counts()), (before, GpuArenaCounts::default()), "{name:?}");
    }
    fail(c"cuMemCreate", 0, 2);
    let error = GpuArenaBlock::new(gpu(), 100).unwrap_err();
    assert!(error.kind() == ErrorKind::OutOfMemory && error.fact().contains("bytes on cuda:0"), "{error}");
    let own = GpuArena::new(gpu(), 100).unwrap();
    let with_own = (open(), counts());
    let descriptor = own.door().descriptor().unwrap();
    for name in [
        c"cuMemImportFromShareableHandle",
        c"cuMemGetAllocationPropertiesFromHandle",
        c"cuMemAddressReserve",
        c"cuMemMap",
        c"cuMemSetAccess",
    ] {
        fail(name, 0, 801);
        let entrance = ImportHandle::Descriptor(descriptor);
        let result = GpuArena::attach(gpu(), own.id(), own.bytes() as u64, Access::ReadOnly, entrance);
        let error = result.unwrap_err();
        assert!(name != c"cuMemSetAccess" || error.fact().contains("cannot map GPU memory as read-only"));
        assert_eq!((open(), counts()), with_own, "{name:?}");
    }
    // Without memory that has handles of its own, it is plain, and goes the legacy way.
    fail(c"cuDeviceGetAttribute", 0, 1);
    let plain = GpuArena::new(gpu(), 100).unwrap();
    assert!(matches!(plain.door(), ExportHandle::Legacy(_)) && !plain.can_be_read_only());
    fail(c"cuDeviceGetAttribute", 0, 1);
    fail(c"cuIpcGetMemHandle", 0, 1);
    assert!(GpuArena::new(gpu(), 100).is_err());
    drop(plain);
    assert_eq!((open(), counts()), with_own);
    // What cannot be waited for, because a stream is captured, is left alone.
    fail(c"cuCtxSynchronize", 0, 900);
    drop(own);
    assert_eq!((counts(), open().0), (GpuArenaCounts::default(), with_own.0.0));
}

//! GPUs that are not there, producers that lie, and drivers that refuse.

use crate::common::{KINDS, alone, baseline, fact, read, take, tensor};
use crate::driver::{fail, is_stand_in};
use crate::fake_producer::{against, send};
use crate::peer_process::Other;
use std::os::fd::{AsRawFd, RawFd};
use tensorferry_core::{Access, DType, Layout};
use tensorferry_cuda::ipc::GpuArena;
use tensorferry_share::protocol::{
    Delivery, ExportedBy, GpuDescription, MemoryDescription, MemoryLocation, Reply, TensorDescription,
};
use tensorferry_share::{PublishOptions, counts, publish};

const DEVICES: &str = "TENSORFERRY_TESTDRIVER_DEVICES";

#[test]
fn gpus_go_by_their_names() {
    let _alone = alone();
    let before = baseline();
    if !is_stand_in() {
        return;
    }
    for kind in KINDS {
        let publication = publish(&[tensor(kind, b"here")], b"", &PublishOptions::default()).unwrap();
        // The same GPU has another number there.
        let mut turned = Other::start_with(&[(DEVICES, "1,0")]);
        assert_eq!((turned.attach(publication.ticket()), turned.ask("device")), ("here".into(), "1".into()));
        turned.end();
        let mut blind = Other::start_with(&[(DEVICES, "1")]);
        let answer = blind.attach(publication.ticket());
        assert!(answer.starts_with("UnsupportedDevice: the memory is on GPU-a0a0a0a0-"), "{answer}");
        assert!(answer.ends_with("which this process does not see"), "{answer}");
        blind.end();
        drop(publication);
        before.settle();
    }
}

/// A message about one memory, with ten bytes in it.
fn message(bytes: u64, way: ExportedBy, access: Access, event: Option<[u8; 64]>) -> Vec<u8> {
    let uuid = crate::common::gpu().uuid().unwrap().0;
    let layout = Layout::dense(1, &[10]).unwrap();
    let given = Delivery {
        access,
        gpus: vec![GpuDescription { uuid, event }],
        memories: vec![MemoryDescription { bytes, place: MemoryLocation::Gpu { gpu: 0, id: [1; 16], way } }],
        tensors: vec![TensorDescription { memory: 0, offset: 0, dtype: DType::UInt8, layout }],
        structure: vec![],
    };
    Reply::Delivery(given).write().unwrap()
}

#[test]
fn producers_that_lie_about_gpus() {
    let _alone = alone();
    let before = baseline();
    let arena = GpuArena::new(crate::common::gpu(), 100).unwrap();
    let bytes = arena.bytes() as u64;
    let good = arena.door().descriptor().unwrap().as_raw_fd();
    let null = std::fs::File::open("/dev/null").unwrap();
    let (pipe, _end) = std::io::pipe().unwrap();
    let file = tempfile();
    let told = |whole: Vec<u8>, descriptors: &[RawFd]| against(|stream| send(&stream, &whole, descriptors));
    let rw = Access::ReadWrite;
    let plain = |bytes| message(bytes, ExportedBy::Descriptor, rw, None);
    // The right one, under another name.
    let attached = told(plain(bytes), &[good]).unwrap();
    assert_eq!(counts().gpu.imports, 1);
    drop(attached);
    assert!(fact(told(plain(bytes), &[])).contains("announced 1 memories with descriptors and sent 0"));
    assert!(fact(told(plain(bytes), &[good, good])).contains("and sent 2 descriptors"));
    for wrong in [null.as_raw_fd(), pipe.as_raw_fd(), file.as_raw_fd()] {
        assert!(fact(told(plain(bytes), &[wrong])).contains("cannot be opened"));
    }
    assert!(fact(told(plain(bytes * 2), &[good])).contains("cannot be mapped"));
    assert!(fact(told(plain(bytes + 1), &[good])).contains("which cannot be"));
    let error = told(plain(1 << 50), &[good]).unwrap_err();
    println!("memory of a petabyte: {error}");
    for junk in [[0; 64], [0xff; 64]] {
        let legacy = message(bytes, ExportedBy::Legacy(junk), rw, None);
        assert!(fact(told(legacy.clone(), &[])).contains("cannot be opened"));
        assert!(fact(told(legacy, &[good])).contains("announced 0 memories with descriptors and sent 1"));
        let event = message(bytes, ExportedBy::Descriptor, rw, Some(junk));
        assert!(fact(told(event, &[good])).contains("event cannot be opened"));
    }
    drop((arena, null, pipe, _end, file));
    before.settle();
}

/// A file that is no memory of a GPU's.
fn tempfile() -> std::os::fd::OwnedFd {
    // SAFETY: makes a descriptor, which is nobody else's.
    unsafe {
        let made = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(made, 4 << 20), 0);
        std::os::fd::FromRawFd::from_raw_fd(made)
    }
}

/// A legacy handle that names less than is announced.
#[test]
fn memory_that_is_shorter_than_announced() {
    let _alone = alone();
    let before = baseline();
    if !is_stand_in() {
        return;
    }
    let mut other = Other::start();
    let ticket = other.publish("publish read-write plain short").remove(0);
    let attached = take(&ticket).unwrap();
    let tensorferry_share::SharedMemory::Gpu(arena) = attached.tensors[0].memory() else {
        panic!("of a GPU")
    };
    let tensorferry_cuda::ipc::ExportHandle::Legacy(handle) = arena.door() else { panic!("legacy") };
    let long = message(arena.bytes() as u64 + 1, ExportedBy::Legacy(*handle), Access::ReadWrite, None);
    assert!(fact(against(|stream| send(&stream, &long, &[]))).contains("bytes and sent memory of"));
    drop(attached);
    other.end();
    before.settle();
}

#[test]
fn refused_calls_leave_nothing_open() {
    let _alone = alone();
    let mut other = Other::start();
    let before = baseline();
    if !is_stand_in() {
        return;
    }
    let calls: [(&str, &[&std::ffi::CStr]); 2] = [
        (
            "own",
            &[
                c"cuMemGetAllocationGranularity",
                c"cuMemImportFromShareableHandle",
                c"cuMemGetAllocationPropertiesFromHandle",
                c"cuMemAddressReserve",
                c"cuMemMap",
                c"cuMemSetAccess",
            ],
        ),
        ("plain", &[c"cuIpcOpenMemHandle_v2", c"cuMemGetAddressRange_v2"]),
    ];
    for (kind, names) in calls {
        let ticket = other.publish(&format!("publish read-write {kind} safe")).remove(0);
        for name in names {
            fail(name, 0, 719);
            assert!(take(&ticket).is_err(), "{name:?}");
            before.settle();
        }
        let attached = take(&ticket).unwrap();
        assert_eq!(read(&attached.tensors[0]).unwrap(), b"safe");
        drop(attached);
        before.settle();
    }
    let ticket = other.publish("late 0 old new").remove(0);
    fail(c"cuIpcOpenEventHandle", 0, 719);
    assert!(fact(take(&ticket)).contains("event cannot be opened"));
    before.settle();
    // What cannot be closed is left, and the lease is over all the same.
    for (kind, name) in [("plain", c"cuIpcCloseMemHandle"), ("own", c"cuMemUnmap")] {
        let ticket = other.publish(&format!("publish read-write {kind} safe")).remove(0);
        let attached = take(&ticket).unwrap();
        fail(name, 0, 719);
        drop(attached);
        assert_eq!((counts().held, counts().gpu.imports), (0, 0));
    }
    other.end();
}

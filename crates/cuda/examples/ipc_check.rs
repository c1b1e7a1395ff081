//! Prints how GPU memory can be exported on this machine, with times. Run it on a new GPU or driver before the tests.
//!
//! It checks nothing. The tests in `crates/share/tests/gpus` cover two processes, and run on a GPU as well.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a program that prints its results")]

use std::time::Instant;
use tensorferry_core::Access;
use tensorferry_cuda::ipc::{
    Allocation, ExportHandle, GpuArena, GpuArenaBlock, ImportHandle, ReadyEvent, counts, release_idle,
};
use tensorferry_cuda::{DeviceBlock, Gpu, Stream, SyncPoint};

fn timed<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = call();
    println!("{what}: {:.1} us", begin.elapsed().as_secs_f64() * 1e6);
    result
}

fn main() {
    let gpu = Gpu::get(0).unwrap();
    println!("cuda:0 is {}", gpu.uuid().unwrap());
    println!("found by UUID: {:?}", Gpu::by_uuid(gpu.uuid().unwrap()));
    let plain = DeviceBlock::new_exportable(gpu, 5 << 20, Stream::LEGACY).unwrap();
    let ordered = DeviceBlock::new(gpu, 5 << 20, Stream::LEGACY).unwrap();
    let small = GpuArenaBlock::new(gpu, 1000).unwrap();
    for (what, data) in
        [("cuMemAlloc", plain.data()), ("cuMemAllocAsync", ordered.data()), ("arena block", small.data())]
    {
        let found = timed("queried", || Allocation::of(data.wrapping_add(100)).unwrap());
        println!("{what}: {:?}, {} bytes, offset {}", found.export_method(), found.bytes(), found.offset());
        // SAFETY: `plain`, `ordered` and `small` keep the allocations until after this loop, in which the arena is dropped.
        match timed("exported", || unsafe { found.export(Box::new(())) }) {
            Ok(arena) => println!("  exported: {arena:?}"),
            Err(error) => println!("  not exported: {error}"),
        }
    }
    for bytes in [2 << 20, 64 << 20, 512 << 20] {
        let arena = timed(&format!("{bytes} bytes: made"), || GpuArena::new(gpu, bytes).unwrap());
        let ExportHandle::Descriptor(descriptor) = arena.export_handle() else {
            println!("  not exported by a file descriptor: {arena:?}");
            continue;
        };
        for (what, id, access) in
            [("read-only", arena.id(), Access::ReadOnly), ("under another id", &[1; 16], Access::ReadWrite)]
        {
            let handle = ImportHandle::Descriptor(std::os::fd::AsFd::as_fd(descriptor));
            let opened = timed(&format!("  opened {what} in this process"), || {
                GpuArena::attach(gpu, id, bytes as u64, access, handle)
            });
            match opened {
                Ok(opened) => timed("  closed", || drop(opened)),
                Err(error) => println!("  refused: {error}"),
            }
        }
        timed("  released", || drop(arena));
    }
    let events: Vec<_> = (0..1000)
        .map(|_| ReadyEvent::after(gpu, &[SyncPoint::AllStreams]).unwrap())
        .take_while(Option::is_some)
        .collect();
    println!("{} of 1000 interprocess events were created", events.len());
    drop(events);
    drop((small, plain, ordered));
    release_idle();
    println!("still open: {:?}", counts());
}

//! What memory for other processes is like on this machine: run it on a new GPU or driver before the tests.
//!
//! It prints what it finds, with times; nothing is promised by it. `crates/share/tests/gpus` has what two processes do, and
//! runs on a GPU as well.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a check for people")]

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
    println!("found by that name: {:?}", Gpu::by_uuid(gpu.uuid().unwrap()));
    let plain = DeviceBlock::plain(gpu, 5 << 20, Stream::LEGACY).unwrap();
    let ordered = DeviceBlock::new(gpu, 5 << 20, Stream::LEGACY).unwrap();
    let small = GpuArenaBlock::new(gpu, 1000).unwrap();
    for (what, data) in
        [("cuMemAlloc", plain.data()), ("cuMemAllocAsync", ordered.data()), ("ours", small.data())]
    {
        let found = timed("asking", || Allocation::of(data.wrapping_add(100)).unwrap());
        println!("{what}: {:?}, {} bytes, offset {}", found.way(), found.bytes(), found.offset());
        // SAFETY: the memory lives until the end.
        match timed("exporting", || unsafe { found.export(Box::new(())) }) {
            Ok(arena) => println!("  exported: {arena:?}"),
            Err(error) => println!("  not exported: {error}"),
        }
    }
    for bytes in [2 << 20, 64 << 20, 512 << 20] {
        let arena = timed(&format!("{bytes} bytes: made"), || GpuArena::new(gpu, bytes).unwrap());
        let ExportHandle::Descriptor(descriptor) = arena.door() else {
            println!("  it has no handle of its own: {arena:?}");
            continue;
        };
        for (what, id, access) in
            [("read-only", arena.id(), Access::ReadOnly), ("under another name", &[1; 16], Access::ReadWrite)]
        {
            let entrance = ImportHandle::Descriptor(std::os::fd::AsFd::as_fd(descriptor));
            let opened = timed(&format!("  opened {what} in this process"), || {
                GpuArena::attach(gpu, id, bytes as u64, access, entrance)
            });
            match opened {
                Ok(opened) => timed("  closed", || drop(opened)),
                Err(error) => println!("  refused: {error}"),
            }
        }
        timed("  let go", || drop(arena));
    }
    // SAFETY: no stream is named but the default one.
    let events: Vec<_> = (0..1000)
        .map(|_| unsafe { ReadyEvent::after(gpu, &[SyncPoint::Everything]).unwrap() })
        .take_while(Option::is_some)
        .collect();
    println!("{} of 1000 events were had", events.len());
    drop(events);
    drop((small, plain, ordered));
    release_idle();
    println!("left: {:?}", counts());
}

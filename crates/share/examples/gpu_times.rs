//! How long it takes to hand GPU memory to another process: publishing, attaching for the first time, attaching again while
//! the allocation is open, and letting go. For people, on a machine with a GPU; it checks nothing.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

use std::process::Command;
use std::time::{Duration, Instant};
use tensorferry_core::{DType, Layout};
use tensorferry_cuda::ipc::{Allocation, GpuArena};
use tensorferry_cuda::{DeviceBlock, Gpu, Stream, SyncPoint};
use tensorferry_share::{Attached, PublishOptions, PublishedTensor, Ticket, attach, publish_after};

const ROUNDS: usize = 200;

/// The median in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let result = call();
    (result, begin.elapsed())
}

fn arrive(ticket: &Ticket) -> Attached {
    let attached = attach(ticket, Duration::from_secs(10)).unwrap();
    // SAFETY: the default stream.
    unsafe { attached.ready[0].order(SyncPoint::Stream(Stream::LEGACY)).unwrap() };
    attached
}

fn consume(text: &str) {
    // The context is there before, as in a program that uses the GPU.
    Gpu::get(0).unwrap().memory().unwrap();
    let ticket = Ticket::from_text(text).unwrap();
    let (first, opening) = timed(|| arrive(&ticket));
    let mut again = Vec::new();
    for _ in 0..ROUNDS {
        let (attached, time) = timed(|| arrive(&ticket));
        again.push(time);
        drop(attached);
    }
    let ((), closing) = timed(|| drop(first));
    let fresh: Vec<Duration> = (0..ROUNDS).map(|_| timed(|| arrive(&ticket)).1).collect();
    println!(
        "  first {:.0} us, again {:.0} us, closing {:.0} us, opened anew {:.0} us",
        opening.as_secs_f64() * 1e6,
        median(again),
        closing.as_secs_f64() * 1e6,
        median(fresh)
    );
}

fn main() {
    if let Some(text) = std::env::args().nth(1) {
        return consume(&text);
    }
    let gpu = Gpu::get(0).unwrap();
    for bytes in [2usize << 20, 256 << 20, 4 << 30] {
        for kind in ["own", "plain"] {
            if gpu.memory().unwrap().0 < bytes * 2 {
                continue;
            }
            let (arena, made) = timed(|| match kind {
                "own" => GpuArena::new(gpu, bytes).unwrap(),
                _ => {
                    let block = DeviceBlock::plain(gpu, bytes, Stream::LEGACY).unwrap();
                    // SAFETY: the block is the owner.
                    unsafe { Allocation::of(block.data()).unwrap().export(Box::new(block)).unwrap() }
                }
            });
            let layout = Layout::dense(1, &[bytes as i64]).unwrap();
            let tensors = [PublishedTensor { memory: arena.into(), offset: 0, dtype: DType::UInt8, layout }];
            let publish = || {
                let ready = [(gpu, SyncPoint::Stream(Stream::LEGACY))];
                // SAFETY: the default stream.
                unsafe { publish_after(&tensors, b"", &PublishOptions::default(), &ready) }.unwrap()
            };
            let publication = publish();
            let times: Vec<Duration> = (0..ROUNDS).map(|_| timed(publish).1).collect();
            println!(
                "{kind}, {} MiB: made and exported {:.0} us, published {:.0} us",
                bytes >> 20,
                made.as_secs_f64() * 1e6,
                median(times)
            );
            let text = publication.ticket().to_text();
            let program = std::env::current_exe().unwrap();
            assert!(Command::new(program).arg(text).status().unwrap().success());
        }
    }
}

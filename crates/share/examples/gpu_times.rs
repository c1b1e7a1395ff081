//! Measures sharing of GPU memory: publishing, the first attach, further attaches while the allocation is open, and
//! releasing. It needs a GPU and checks nothing.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people")]

#[expect(dead_code, reason = "some calls are for tests")]
#[path = "../tests/gpus/driver.rs"]
mod driver;

use driver::Exportable;
use std::process::Command;
use std::time::{Duration, Instant};
use tensorferry_core::{DType, Layout};
use tensorferry_cuda::ipc::GpuArena;
use tensorferry_cuda::{DeviceBlock, Gpu, Stream};
use tensorferry_share::{Attached, PublishedTensor, Ticket, attach};

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

fn attach_ready(ticket: &Ticket) -> Attached {
    let attached = attach(ticket, Duration::from_secs(10)).unwrap();
    driver::order_reads(&attached.ready[0]).unwrap();
    attached
}

fn consume(text: &str) {
    // Creates the context first, as a program that uses the GPU does.
    Gpu::get(0).unwrap().memory().unwrap();
    let ticket = Ticket::from_text(text).unwrap();
    let (first, opening) = timed(|| attach_ready(&ticket));
    let mut again = Vec::new();
    for _ in 0..ROUNDS {
        let (attached, time) = timed(|| attach_ready(&ticket));
        again.push(time);
        drop(attached);
    }
    let ((), closing) = timed(|| drop(first));
    let fresh: Vec<Duration> = (0..ROUNDS).map(|_| timed(|| attach_ready(&ticket)).1).collect();
    println!(
        "  first {:.0} us, again {:.0} us, release {:.0} us, reopened {:.0} us",
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
        for kind in ["own", "legacy"] {
            if gpu.memory().unwrap().0 < bytes * 2 {
                continue;
            }
            let (arena, creation) = timed(|| match kind {
                "own" => GpuArena::new(gpu, bytes).unwrap(),
                _ => {
                    let block = DeviceBlock::new_exportable(gpu, bytes, Stream::LEGACY).unwrap();
                    driver::export(Exportable::Block(block.into())).unwrap()
                }
            });
            let layout = Layout::dense(1, &[bytes as i64]).unwrap();
            let tensors = [PublishedTensor { memory: arena.into(), offset: 0, dtype: DType::UInt8, layout }];
            let publish = || driver::publish_after_stream(&tensors, gpu, Stream::LEGACY).unwrap();
            let publication = publish();
            let times: Vec<Duration> = (0..ROUNDS).map(|_| timed(publish).1).collect();
            println!(
                "{kind}, {} MiB: created and exported {:.0} us, published {:.0} us",
                bytes >> 20,
                creation.as_secs_f64() * 1e6,
                median(times)
            );
            let text = publication.ticket().to_text();
            let program = std::env::current_exe().unwrap();
            assert!(Command::new(program).arg(text).status().unwrap().success());
        }
    }
}

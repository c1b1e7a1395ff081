//! Helpers of the tests.

use crate::descriptors::descriptor_count;
use crate::raw_calls::{read_bytes, write_bytes};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{DType, Layout};
use tensorferry_share::{
    Arena, ArenaBlock, Attached, AttachedTensor, Publication, PublishOptions, PublishedTensor, ShareCounts,
    SharedMemory, Ticket, attach, counts, publish, release_idle,
};

/// Runs tests one at a time, because the counts are global to the process.
pub(crate) fn serialize_tests() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tensor of bytes in shared memory.
pub(crate) fn tensor(bytes: &[u8]) -> PublishedTensor {
    let block = ArenaBlock::new(bytes.len()).unwrap();
    write_bytes(block.arena(), block.offset(), bytes);
    tensor_in(&block, bytes.len())
}

pub(crate) fn tensor_in(block: &ArenaBlock, bytes: usize) -> PublishedTensor {
    let layout = Layout::dense(1, &[bytes as i64]).unwrap();
    PublishedTensor {
        memory: block.arena().clone().into(),
        offset: block.offset(),
        dtype: DType::UInt8,
        layout,
    }
}

/// The arena of an attached tensor, and the offset of the tensor in it.
pub(crate) fn arena_of(tensor: &AttachedTensor) -> (&Arena, usize) {
    let SharedMemory::Host(arena) = tensor.memory() else { panic!("the tensor is on a GPU") };
    (arena, tensor.data() as usize - arena.data() as usize)
}

/// The bytes of a dense tensor.
pub(crate) fn read(tensor: &AttachedTensor) -> Vec<u8> {
    assert!(tensor.layout().is_dense());
    let (arena, offset) = arena_of(tensor);
    read_bytes(arena, offset, tensor.layout().bytes())
}

pub(crate) fn publish_bytes(bytes: &[u8], options: PublishOptions) -> Publication {
    publish(&[tensor(bytes)], b"", &options).unwrap()
}

/// Only a hang takes longer.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) fn attach_ticket(ticket: &Ticket) -> tensorferry_core::Result<Attached> {
    attach(ticket, HANG_TIMEOUT)
}

/// Repeats an attempt until one takes less than this. Load on the machine only adds to a time, so one fast attempt is
/// enough.
pub(crate) fn retry_within<T>(limit: Duration, mut attempt: impl FnMut() -> T) -> T {
    for _ in 0..50 {
        let begin = Instant::now();
        let result = attempt();
        if begin.elapsed() < limit {
            return result;
        }
    }
    panic!("no attempt took less than {limit:?}");
}

/// Publishes bytes with a timeout that is long enough for `before`, which returns `None` if it was too late.
pub(crate) fn publish_briefly<T>(
    bytes: &[u8],
    mut before: impl FnMut(&Publication) -> Option<T>,
) -> (Publication, T) {
    let mut timeout = Duration::from_millis(50);
    loop {
        let publication =
            publish_bytes(bytes, PublishOptions { timeout: Some(timeout), ..PublishOptions::default() });
        if let Some(result) = before(&publication) {
            return (publication, result);
        }
        timeout *= 3;
    }
}

/// Waits for a condition.
pub(crate) fn wait_until(what: &str, mut is_met: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_met() {
        assert!(begin.elapsed() < HANG_TIMEOUT, "{what}: {:?}", counts());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Sets the descriptor limit of this process, as far as it may, and returns it.
pub(crate) fn set_descriptor_limit(limit: u64) -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum.map_or(limit, |maximum| limit.min(maximum));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum }).unwrap();
    current
}

/// The counts when nothing is shared and the server is running.
pub(crate) struct Baseline(ShareCounts, usize);

pub(crate) fn record_baseline() -> Baseline {
    drop(publish_bytes(b"x", PublishOptions::default()));
    wait_until("nothing is shared", || {
        release_idle();
        let now = counts();
        (now.publications, now.granted_leases, now.held_leases, now.arenas) == (0, 0, 0, 0)
            && now.descriptors == 4
    });
    Baseline(counts(), descriptor_count())
}

impl Baseline {
    /// Waits until the counts are as before.
    pub(crate) fn wait_until_restored(&self) {
        wait_until("everything is released", || {
            release_idle();
            counts() == self.0 && descriptor_count() == self.1
        });
    }
}

/// The fact of an error.
#[track_caller]
pub(crate) fn fact<T>(result: tensorferry_core::Result<T>) -> String {
    match result {
        Ok(_) => panic!("the call succeeded"),
        Err(error) => {
            assert!(!error.fact().contains('\n'));
            error.fact().to_owned()
        }
    }
}

pub(crate) fn same_memory(left: &AttachedTensor, right: &AttachedTensor) -> bool {
    left.memory().is_same(right.memory())
}

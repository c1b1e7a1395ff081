//! What the tests share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tensorferry_core::{DType, Layout};
use tensorferry_share::{
    ArenaBlock, Attached, AttachedTensor, Publication, PublishOptions, PublishedTensor, ShareCounts, Ticket,
    attach, counts, publish, release_idle,
};

/// Counts are of the process, so that tests which look at them go one by one.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A tensor of bytes in shared memory.
pub(crate) fn tensor(bytes: &[u8]) -> PublishedTensor {
    let piece = ArenaBlock::new(bytes.len()).unwrap();
    // SAFETY: the piece is ours alone, and as long.
    unsafe { piece.data().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    placed(&piece, bytes.len())
}

pub(crate) fn placed(piece: &ArenaBlock, bytes: usize) -> PublishedTensor {
    let layout = Layout::dense(1, &[bytes as i64]).unwrap();
    PublishedTensor {
        memory: piece.arena().clone().into(),
        offset: piece.offset(),
        dtype: DType::UInt8,
        layout,
    }
}

/// The bytes of a tensor of bytes.
pub(crate) fn read(tensor: &AttachedTensor) -> Vec<u8> {
    assert!(tensor.dtype() == DType::UInt8 && tensor.layout().is_dense());
    // SAFETY: the tensor keeps its memory mapped, and the tests write it at other times.
    (0..tensor.layout().bytes()).map(|at| unsafe { tensor.data().add(at).read_volatile() }).collect()
}

pub(crate) fn publish_bytes(bytes: &[u8], options: PublishOptions) -> Publication {
    publish(&[tensor(bytes)], b"", &options).unwrap()
}

/// How long a test waits for what must happen; only a hang takes longer.
pub(crate) const HANG: Duration = Duration::from_secs(300);

pub(crate) fn take(ticket: &Ticket) -> tensorferry_core::Result<Attached> {
    attach(ticket, HANG)
}

/// Repeats an attempt until one takes less than this. Other load on the machine only adds to a time: one attempt of many
/// has to be quick.
pub(crate) fn within<T>(limit: Duration, mut attempt: impl FnMut() -> T) -> T {
    for _ in 0..50 {
        let begin = Instant::now();
        let result = attempt();
        if begin.elapsed() < limit {
            return result;
        }
    }
    panic!("no attempt took less than {limit:?}");
}

/// Publishes bytes with a time that is long enough for `before`, which says whether it came in time.
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

/// Waits until something is so, which it is to become soon.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < HANG, "{what}: {:?}", counts());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Lets this process have so many descriptors, or as many of them as it may, and says how many that is.
pub(crate) fn limit(most: u64) -> u64 {
    // SAFETY: plain numbers, for which zeros are values.
    let mut now: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: the struct lives through the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now), 0);
        now.rlim_cur = most.min(now.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now), 0);
    }
    now.rlim_cur
}

/// What there is when nothing is shared, with the server running.
pub(crate) struct Baseline(ShareCounts, usize);

pub(crate) fn baseline() -> Baseline {
    drop(publish_bytes(b"x", PublishOptions::default()));
    until("a quiet beginning", || {
        release_idle();
        let now = counts();
        (now.publications, now.given, now.held, now.arenas) == (0, 0, 0, 0) && now.descriptors == 4
    });
    Baseline(counts(), descriptors())
}

impl Baseline {
    /// Waits until everything is as it was.
    pub(crate) fn settle(&self) {
        until("everything let go", || {
            release_idle();
            counts() == self.0 && descriptors() == self.1
        });
    }
}

/// A fact in an error.
#[track_caller]
pub(crate) fn fact<T>(result: tensorferry_core::Result<T>) -> String {
    match result {
        Ok(_) => panic!("it should have been refused"),
        Err(error) => {
            assert!(!error.fact().contains('\n'));
            error.fact().to_owned()
        }
    }
}

pub(crate) fn same_memory(left: &AttachedTensor, right: &AttachedTensor) -> bool {
    left.memory().is_same(right.memory())
}

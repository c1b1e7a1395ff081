//! When there are many consumers, or few descriptors.

use crate::common::{alone, baseline, read, take};
use crate::other::Other;
use std::time::{Duration, Instant};
use tensorferry_core::ErrorKind;

#[test]
fn a_producer_without_descriptors_says_so_at_once() {
    let _alone = alone();
    let before = baseline();
    let mut other = Other::start();
    let ticket = other.publish("publish short");
    let held = take(&ticket).unwrap();
    other.ask("limit 64");
    for _ in 0..3 {
        assert_ne!(other.ask("starve"), "0");
        let begin = Instant::now();
        // More than one, so that what was kept in reserve is seen to come back.
        for _ in 0..5 {
            let error = take(&ticket).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TicketRefused, "{error}");
            assert!(error.fact().contains("no descriptor left of the 64 that it may have"), "{error}");
            assert!(error.hint().unwrap().contains("ulimit -n"), "{error}");
        }
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        // Whoever had it keeps it, and nothing was used up.
        assert_eq!((read(&held.tensors[0]), other.ask("leases")), (b"short".to_vec(), "1".into()));
        other.ask("feed");
        assert_eq!(read(&take(&ticket).unwrap().tensors[0]), b"short");
    }
    drop(held);
    other.end();
    before.settle();
}

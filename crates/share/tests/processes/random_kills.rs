//! Producers and consumers that are killed at random times leave no leases, memory or directories behind.

use crate::common::{attach_ticket, publish_bytes, read, record_baseline, serialize_tests};
use crate::peer_process::{PeerProcess, Random};
use std::thread;
use std::time::Duration;
use tensorferry_share::PublishOptions;

const ROUNDS: u64 = 200;

impl Random {
    fn pause(&mut self) {
        thread::sleep(Duration::from_micros(self.below(4000)));
    }
}

#[test]
fn nothing_is_leaked() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let ours = publish_bytes(b"ours", PublishOptions::default());
    let mut dirs = Vec::new();
    for _ in 0..ROUNDS {
        let (mut producer, mut consumer) = (PeerProcess::start(), PeerProcess::start());
        let ticket = producer.publish("publish theirs");
        dirs.push(ticket.path().parent().unwrap().to_owned());
        consumer.send_line(&format!("attach {}", ticket.to_text()));
        consumer.send_line(&format!("attach {}", ours.ticket().to_text()));
        consumer.send_line("republish read-write");
        random.pause();
        // While one of them is killed, this process attaches, and gets the tensor or an error.
        let killer = match random.below(3) {
            0 => thread::spawn(move || (producer.kill(), consumer.finish()).0),
            1 => thread::spawn(move || (consumer.kill(), producer.finish()).0),
            _ => thread::spawn(move || (consumer.kill(), producer.kill()).0),
        };
        let attached = attach_ticket(&ticket);
        killer.join().unwrap();
        match attached {
            Ok(attached) => assert_eq!(read(&attached.tensors[0]), b"theirs"),
            Err(error) => assert!(error.hint().is_some(), "{error}"),
        }
    }
    drop(ours);
    before.wait_until_restored();
    let mut last = PeerProcess::start();
    last.publish("publish x");
    last.finish();
    assert!(dirs.iter().all(|dir| !dir.exists()));
}

//! Producers and consumers killed at random moments; then nothing is lost.

use crate::common::{alone, baseline, publish_bytes, read, take};
use crate::peer_process::{Other, Random};
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
fn nothing_is_lost() {
    let _alone = alone();
    let before = baseline();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let ours = publish_bytes(b"ours", PublishOptions::default());
    let mut folders = Vec::new();
    for _ in 0..ROUNDS {
        let (mut producer, mut consumer) = (Other::start(), Other::start());
        let ticket = producer.publish("publish theirs");
        folders.push(ticket.path().parent().unwrap().to_owned());
        consumer.say(&format!("attach {}", ticket.to_text()));
        consumer.say(&format!("attach {}", ours.ticket().to_text()));
        consumer.say("again read-write");
        random.pause();
        // While one of them is killed, we attach as well, and get it or are told why not.
        let killer = match random.below(3) {
            0 => thread::spawn(move || (producer.kill(), consumer.end()).0),
            1 => thread::spawn(move || (consumer.kill(), producer.end()).0),
            _ => thread::spawn(move || (consumer.kill(), producer.kill()).0),
        };
        let attached = take(&ticket);
        killer.join().unwrap();
        match attached {
            Ok(attached) => assert_eq!(read(&attached.tensors[0]), b"theirs"),
            Err(error) => assert!(error.hint().is_some(), "{error}"),
        }
    }
    drop(ours);
    before.settle();
    let mut last = Other::start();
    last.publish("publish x");
    last.end();
    assert!(folders.iter().all(|folder| !folder.exists()));
}

//! Arbitrary bytes as data from another process: the reply to a ticket, the tree in it, and a ticket as bytes and text.
#![no_main]

use tensorferry_share::{Ticket, TreeStructure};
use tensorferry_share::wire::{HEADER_BYTES, Reply};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(reply) = Reply::read(bytes) {
        let again = reply.write().expect("what was read can be written");
        assert_eq!(Reply::read(&again[HEADER_BYTES..]).expect("and read again"), reply);
    }
    if let Ok(structure) = TreeStructure::read(bytes, 3) {
        assert_eq!(structure.write().expect("what was read can be written"), bytes);
    }
    let text = std::str::from_utf8(bytes).ok().and_then(|text| Ticket::from_text(text).ok());
    for ticket in text.into_iter().chain(Ticket::from_bytes(bytes)) {
        assert_eq!(Ticket::from_bytes(&ticket.to_bytes()).expect("it reads back"), ticket);
        assert_eq!(Ticket::from_text(&ticket.to_text()).expect("it reads back"), ticket);
    }
});

//! Any bytes as what another process sends: the answer to a ticket, the tree in it, and a ticket as bytes and as text.
#![no_main]

use tensorferry_share::{Structure, Ticket};
use tensorferry_share::wire::{HEAD, Reply};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(reply) = Reply::read(bytes) {
        let again = reply.write().expect("what was read can be written");
        assert_eq!(Reply::read(&again[HEAD..]).expect("and read again"), reply);
    }
    if let Ok(structure) = Structure::read(bytes, 3) {
        assert_eq!(structure.write().expect("what was read can be written"), bytes);
    }
    let text = std::str::from_utf8(bytes).ok().and_then(|text| Ticket::from_text(text).ok());
    for ticket in text.into_iter().chain(Ticket::from_bytes(bytes)) {
        assert_eq!(Ticket::from_bytes(&ticket.to_bytes()).expect("it reads back"), ticket);
        assert_eq!(Ticket::from_text(&ticket.to_text()).expect("it reads back"), ticket);
    }
});

//! Tickets: which consumers may attach, how often and until when.

use crate::common::{
    attach_ticket, fact, publish_briefly, publish_bytes, read, record_baseline, serialize_tests, wait_until,
};
use crate::peer_process::PeerProcess;
use tensorferry_core::ErrorKind;
use tensorferry_share::{PublishOptions, Ticket, counts};

#[test]
fn a_ticket_for_one_consumer() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"single", PublishOptions { once: true, ..PublishOptions::default() });
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert_eq!(read(&attached.tensors[0]), b"single");
    let error = attach_ticket(publication.ticket()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.fact().contains("was used"), "{error}");
    assert_eq!((publication.leases(), counts().publications), (1, 0));
    drop(attached);
    // The lease releases the memory, although the publication still exists.
    tensorferry_share::release_idle();
    wait_until("the memory is released", || {
        tensorferry_share::release_idle();
        counts().arenas == 0
    });
    assert!(fact(attach_ticket(publication.ticket())).contains("was used"));
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn a_ticket_with_a_timeout() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let (publication, attached) =
        publish_briefly(b"brief", |publication| match attach_ticket(publication.ticket()) {
            Ok(attached) => Some(attached),
            Err(error) => (!error.fact().contains("has expired")).then(|| panic!("{error}")),
        });
    wait_until("the ticket has expired", || counts().publications == 0);
    assert!(fact(attach_ticket(publication.ticket())).contains("has expired"));
    assert_eq!((publication.leases(), read(&attached.tensors[0])), (1, b"brief".to_vec()));
    drop(attached);
    wait_until("the memory is released", || {
        tensorferry_share::release_idle();
        counts().arenas == 0
    });
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn expected_consumers_outlive_the_publication() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"sent", PublishOptions::default());
    let ticket = publication.ticket().clone();
    publication.expect_consumer();
    publication.expect_consumer();
    drop(publication);
    for _ in 0..2 {
        assert_eq!(read(&attach_ticket(&ticket).unwrap().tensors[0]), b"sent");
    }
    assert!(fact(attach_ticket(&ticket)).contains("was withdrawn"));
    // An expected consumer that has attached keeps nothing.
    let publication = publish_bytes(b"kept", PublishOptions::default());
    publication.expect_consumer();
    let ticket = publication.ticket().clone();
    assert_eq!(read(&attach_ticket(&ticket).unwrap().tensors[0]), b"kept");
    drop(publication);
    assert!(fact(attach_ticket(&ticket)).contains("was withdrawn"));
    // Nor is a ticket kept that has expired, was used or was withdrawn.
    let (publication, ticket) = publish_briefly(b"late", |publication| {
        publication.expect_consumer();
        (counts().publications == 1).then(|| publication.ticket().clone())
    });
    drop(publication);
    wait_until("the ticket has expired", || counts().publications == 0);
    assert!(fact(attach_ticket(&ticket)).contains("was withdrawn"));
    let publication = publish_bytes(b"once", PublishOptions { once: true, ..PublishOptions::default() });
    publication.expect_consumer();
    publication.expect_consumer();
    let ticket = publication.ticket().clone();
    drop(publication);
    drop(attach_ticket(&ticket).unwrap());
    assert!(fact(attach_ticket(&ticket)).contains("was withdrawn"));
    let publication = publish_bytes(b"back", PublishOptions::default());
    publication.expect_consumer();
    publication.withdraw();
    assert!(fact(attach_ticket(publication.ticket())).contains("was withdrawn"));
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn a_ticket_whose_delivery_failed_is_valid_for_another_consumer() {
    let _serial = serialize_tests();
    // More than a socket buffers, so that the reply is not sent completely.
    let large = vec![7; 8 << 20];
    let options = PublishOptions { once: true, ..PublishOptions::default() };
    let publication = tensorferry_share::publish(&[], &large, &options).unwrap();
    let mut stream = std::os::unix::net::UnixStream::connect(publication.ticket().path()).unwrap();
    std::io::Write::write_all(
        &mut stream,
        &crate::malicious_consumers::encoded_request(publication.ticket()),
    )
    .unwrap();
    wait_until("the reply is being sent", || publication.leases() == 1);
    assert!(fact(attach_ticket(publication.ticket())).contains("was used"));
    drop(stream);
    wait_until("the delivery has failed", || publication.leases() == 0);
    assert_eq!(publication.deliveries(), 0);
    assert!(attach_ticket(publication.ticket()).unwrap().structure == large);
    assert_eq!(publication.deliveries(), 1);
    assert!(fact(attach_ticket(publication.ticket())).contains("was used"));
}

#[test]
fn an_invalid_secret_learns_nothing() {
    let _serial = serialize_tests();
    let publication = publish_bytes(b"x", PublishOptions { once: true, ..PublishOptions::default() });
    drop(attach_ticket(publication.ticket()).unwrap());
    let mut bytes = publication.ticket().to_bytes();
    bytes[29] ^= 1;
    assert!(fact(attach_ticket(&Ticket::from_bytes(&bytes).unwrap())).contains("never issued"));
    assert!(fact(attach_ticket(publication.ticket())).contains("was used"));
}

#[test]
fn a_withdrawn_ticket() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"gone", PublishOptions::default());
    let ticket = publication.ticket().clone();
    let attached = attach_ticket(&ticket).unwrap();
    publication.withdraw();
    publication.withdraw();
    assert!(fact(attach_ticket(&ticket)).contains("was withdrawn"));
    assert_eq!((publication.leases(), read(&attached.tensors[0])), (1, b"gone".to_vec()));
    drop(publication);
    assert!(fact(attach_ticket(&ticket)).contains("was withdrawn"));
    assert_eq!(counts().granted_leases, 1);
    drop(attached);
    before.wait_until_restored();
}

#[test]
fn an_invalid_secret_does_not_use_the_ticket() {
    let _serial = serialize_tests();
    let publication = publish_bytes(b"secret", PublishOptions { once: true, ..PublishOptions::default() });
    let ticket = publication.ticket();
    let guessed =
        Ticket::new(ticket.path().into(), *ticket.id(), [7; 16], ticket.process(), ticket.start()).unwrap();
    assert!(fact(attach_ticket(&guessed)).contains("never issued"));
    assert_eq!(read(&attach_ticket(ticket).unwrap().tensors[0]), b"secret");
}

#[test]
fn a_reused_process_id() {
    let _serial = serialize_tests();
    let publication = publish_bytes(b"now", PublishOptions::default());
    let ticket = publication.ticket();
    let mut bytes = ticket.to_bytes();
    bytes[5] ^= 1;
    assert!(
        fact(attach_ticket(&Ticket::from_bytes(&bytes).unwrap()))
            .contains("is stale: that process has ended")
    );
    // A running process with that id, which does not own the socket.
    let peer = PeerProcess::start();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", peer.id())).unwrap();
    let start = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let secret: [u8; 16] = ticket.to_bytes()[29..45].try_into().unwrap();
    let moved = Ticket::new(ticket.path().into(), *ticket.id(), secret, peer.id(), start).unwrap();
    assert!(fact(attach_ticket(&moved)).contains("belongs to process"));
    peer.finish();
}

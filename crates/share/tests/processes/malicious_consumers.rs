//! Consumers that send garbage, send nothing, send too much or do not read.

use crate::common::{
    HANG_TIMEOUT, attach_ticket, publish_bytes, read, record_baseline, retry_within, serialize_tests,
    wait_until,
};
use crate::fake_producer::send;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::protocol::{AttachRequest, HEADER_BYTES, REQUEST_BYTES, RejectReason, Reply};
use tensorferry_share::{Arena, PublishOptions, PublishedTensor, Ticket, counts, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

/// The encoded request of a consumer with this ticket.
pub(crate) fn encoded_request(ticket: &Ticket) -> Vec<u8> {
    let secret = ticket.to_bytes()[29..45].try_into().unwrap();
    AttachRequest { id: *ticket.id(), secret }.write()
}

/// Sends bytes to the producer. Returns the reason of its rejection, or `None` if it only closes the connection.
fn send_and_receive(ticket: &Ticket, bytes: &[u8]) -> Option<RejectReason> {
    let mut stream = UnixStream::connect(ticket.path()).unwrap();
    stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
    // The producer may close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    match Reply::read(bytes.get(HEADER_BYTES..)?).unwrap() {
        Reply::Rejection { reason, .. } => Some(reason),
        Reply::Delivery(_) => panic!("the producer delivered"),
    }
}

#[test]
fn malformed_requests() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"safe", PublishOptions::default());
    let ticket = publication.ticket();
    let good = encoded_request(ticket);
    for index in 0..HEADER_BYTES {
        let mut invalid = good.clone();
        invalid[index] ^= 0x40;
        assert_eq!(send_and_receive(ticket, &invalid), Some(RejectReason::Malformed), "{index}");
    }
    for index in HEADER_BYTES..REQUEST_BYTES {
        let mut invalid = good.clone();
        invalid[index] ^= 1;
        assert_eq!(send_and_receive(ticket, &invalid), Some(RejectReason::Unknown), "{index}");
    }
    // Too long: the producer rejects it, or closes the connection because it does not read the rest.
    assert!(matches!(send_and_receive(ticket, &vec![0xff; 100_000]), None | Some(RejectReason::Malformed)));
    // Truncated at every length, by consumers that disconnect.
    for length in 0..REQUEST_BYTES {
        UnixStream::connect(ticket.path()).unwrap().write_all(&good[..length]).unwrap();
    }
    assert_eq!(read(&attach_ticket(ticket).unwrap().tensors[0]), b"safe");
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn a_request_in_single_bytes_and_a_replay() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"slow", PublishOptions { once: true, ..PublishOptions::default() });
    let good = encoded_request(publication.ticket());
    let mut stream = UnixStream::connect(publication.ticket().path()).unwrap();
    for byte in &good {
        stream.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_micros(200));
    }
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    // The producer ignores everything after the request.
    stream.write_all(&good).unwrap();
    assert_eq!(publication.leases(), 1);
    assert_eq!(send_and_receive(publication.ticket(), &good), Some(RejectReason::Used));
    drop(stream);
    wait_until("the lease has ended", || publication.leases() == 0);
    drop(publication);
    before.wait_until_restored();
}

#[test]
fn consumers_that_send_nothing() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"prompt", PublishOptions::default());
    let silent: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(publication.ticket().path()).unwrap()).collect();
    let prompt = retry_within(Duration::from_secs(2), || attach_ticket(publication.ticket()).unwrap());
    assert_eq!(read(&prompt.tensors[0]), b"prompt");
    drop(prompt);
    // The oldest are disconnected.
    wait_until("some are disconnected", || counts().descriptors < 80);
    assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
    drop((silent, publication));
    before.wait_until_restored();
}

#[test]
fn consumers_that_do_not_read() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let tensors = [crate::common::tensor(b"big")];
    let publication = publish(&tensors, &vec![1; 8 << 20], &PublishOptions::default()).unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = UnixStream::connect(publication.ticket().path()).unwrap();
        stream.write_all(&encoded_request(publication.ticket())).unwrap();
        streams.push(stream);
    }
    wait_until("all have sent a request", || publication.leases() == 20);
    assert_eq!(attach_ticket(publication.ticket()).unwrap().structure.len(), 8 << 20);
    drop(streams);
    wait_until("all leases have ended", || publication.leases() == 0);
    drop((tensors, publication));
    before.wait_until_restored();
}

#[test]
fn consumers_that_send_descriptors() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let publication = publish_bytes(b"kept", PublishOptions::default());
    let (reader, writer) = std::io::pipe().unwrap();
    let stream = UnixStream::connect(publication.ticket().path()).unwrap();
    send(&stream, &encoded_request(publication.ticket()), &[writer.as_raw_fd(); 10]);
    wait_until("it has a lease", || publication.leases() == 1);
    drop(writer);
    // The pipe ends only if the producer has kept no descriptor.
    assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
    drop((stream, publication, reader));
    before.wait_until_restored();
}

#[test]
fn another_user_is_rejected() {
    let _serial = serialize_tests();
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let before = record_baseline();
    let publication = publish_bytes(b"mine", PublishOptions::default());
    let ticket = publication.ticket();
    let fork = |then: &dyn Fn() -> bool| {
        // SAFETY: the child uses only what works after a fork, and exits without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: affects only the child, which exits.
            unsafe {
                let changed = libc::setresuid(65534, 65534, 65534) == 0;
                libc::_exit(i32::from(!(changed && then())));
            }
        }
        let mut status = 0;
        // SAFETY: the process is a child of this one, and the status lives until the call returns.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status
    };
    // The directory is not accessible.
    assert_eq!(
        fork(&|| attach_ticket(ticket).is_err_and(|error| error.kind() == ErrorKind::TicketRejected)),
        0
    );
    // With an accessible directory, the producer disconnects it without a reply, and it does not trust the producer.
    let dir = ticket.path().parent().unwrap();
    for path in [dir, ticket.path()] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let good = encoded_request(ticket);
    let disconnected = fork(&|| {
        let Ok(mut stream) = UnixStream::connect(ticket.path()) else { return false };
        let _ = stream.write_all(&good);
        !matches!(stream.read(&mut [0; 8]), Ok(1..))
    });
    assert_eq!((disconnected, publication.leases()), (0, 0));
    assert_eq!(fork(&|| attach_ticket(ticket).is_err_and(|error| error.fact().contains("another user"))), 0);
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    drop(publication);
    before.wait_until_restored();
}

/// The first descriptor of the reply to a request.
fn receive_descriptor(ticket: &Ticket) -> OwnedFd {
    let mut stream = UnixStream::connect(ticket.path()).unwrap();
    stream.write_all(&encoded_request(ticket)).unwrap();
    let (mut control, mut bytes) = ([0u64; 64], [0u8; 64]);
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the header points to buffers that live until the calls return; the descriptor is new and ours.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        (header.msg_iov, header.msg_iovlen) = (&raw mut vector, 1);
        (header.msg_control, header.msg_controllen) =
            (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        assert!(libc::recvmsg(stream.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) > 0);
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        assert!(!message.is_null() && (*message).cmsg_type == libc::SCM_RIGHTS);
        OwnedFd::from_raw_fd(libc::CMSG_DATA(message).cast::<RawFd>().read_unaligned())
    }
}

#[test]
fn read_only_descriptors_cannot_be_mapped_as_writable() {
    let _serial = serialize_tests();
    let before = record_baseline();
    for (access, may_write) in [(Access::ReadOnly, false), (Access::ReadWrite, true)] {
        let publication = publish_bytes(b"fixed", PublishOptions { access, ..PublishOptions::default() });
        let descriptor = receive_descriptor(publication.ticket());
        let map = |protection| {
            // SAFETY: the new mapping affects no existing one, and is removed at once.
            unsafe {
                let fd = descriptor.as_raw_fd();
                let address = libc::mmap(std::ptr::null_mut(), 4096, protection, libc::MAP_SHARED, fd, 0);
                let errno = std::io::Error::last_os_error().raw_os_error();
                if address == libc::MAP_FAILED { errno } else { Some(libc::munmap(address, 4096)) }
            }
        };
        assert_eq!(map(libc::PROT_READ), Some(0));
        let writing = map(libc::PROT_READ | libc::PROT_WRITE);
        assert_eq!(writing, Some(if may_write { 0 } else { libc::EACCES }));
        // SAFETY: one byte of memory that lives until the call returns.
        let written = unsafe { libc::pwrite(descriptor.as_raw_fd(), b"x".as_ptr().cast(), 1, 0) };
        assert_eq!(written == 1, may_write);
    }
    before.wait_until_restored();
}

#[test]
fn a_consumer_without_descriptors_gets_an_error() {
    let _serial = serialize_tests();
    let before = record_baseline();
    let arenas: Vec<_> = (0..20).map(|_| Arena::new(4096).unwrap()).collect();
    let layout = Layout::dense(1, &[1]).unwrap();
    let tensors: Vec<PublishedTensor> = arenas
        .iter()
        .map(|arena| PublishedTensor {
            memory: arena.clone().into(),
            offset: 0,
            dtype: DType::UInt8,
            layout: layout.clone(),
        })
        .collect();
    let publication = publish(&tensors, b"", &READ_ONLY).unwrap();
    // SAFETY: the child uses only what works after a fork, and exits without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: affects only the child, which exits.
        unsafe {
            let next = libc::dup(0) as u64;
            let limit = libc::rlimit { rlim_cur: next + 5, rlim_max: next + 5 };
            libc::close(next as i32);
            let limited = libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0;
            let is_reported =
                attach_ticket(publication.ticket()).is_err_and(|error| error.errno() == Some(libc::EMFILE));
            // The received descriptors were closed.
            let closed = libc::dup(0) as u64 == next;
            libc::_exit(i32::from(!(limited && is_reported && closed)));
        }
    }
    let mut status = 0;
    // SAFETY: the process is a child of this one, and the status lives until the call returns.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    wait_until("the lease has ended", || publication.leases() == 0);
    drop((publication, tensors, arenas));
    before.wait_until_restored();
}

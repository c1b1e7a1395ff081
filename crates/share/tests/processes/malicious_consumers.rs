//! Peers that lie, say nothing, or say too much.

use crate::common::{HANG, alone, baseline, fact, publish_bytes, read, take, until, within};
use crate::fake_producer::{against, against_for, send};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::protocol::{
    Delivery, HEADER_BYTES, MemoryDescription, REQUEST_BYTES, RejectReason, Reply, Request, TensorDescription,
};
use tensorferry_share::{Arena, PublishOptions, PublishedTensor, Ticket, counts, publish};

const READ_ONLY: PublishOptions = PublishOptions { once: false, timeout: None, access: Access::ReadOnly };

/// What a consumer with this ticket says.
pub(crate) fn request(ticket: &Ticket) -> Vec<u8> {
    let secret = ticket.to_bytes()[29..45].try_into().unwrap();
    Request { id: *ticket.id(), secret }.write()
}

/// What the producer answers to some bytes: a refusal's reason, or `None` where it just hangs up.
fn answer(ticket: &Ticket, bytes: &[u8]) -> Option<RejectReason> {
    let mut stream = UnixStream::connect(ticket.path()).unwrap();
    stream.set_read_timeout(Some(HANG)).unwrap();
    // It may hang up before it has heard all.
    let _ = stream.write_all(bytes);
    let mut message = Vec::new();
    let _ = stream.read_to_end(&mut message);
    match Reply::read(message.get(HEADER_BYTES..)?).unwrap() {
        Reply::Refusal { reason, .. } => Some(reason),
        Reply::Delivery(_) => panic!("it was let in"),
    }
}

#[test]
fn requests_that_are_nonsense() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"safe", PublishOptions::default());
    let ticket = publication.ticket();
    let good = request(ticket);
    for index in 0..HEADER_BYTES {
        let mut bad = good.clone();
        bad[index] ^= 0x40;
        assert_eq!(answer(ticket, &bad), Some(RejectReason::Malformed), "{index}");
    }
    for index in HEADER_BYTES..REQUEST_BYTES {
        let mut bad = good.clone();
        bad[index] ^= 1;
        assert_eq!(answer(ticket, &bad), Some(RejectReason::Unknown), "{index}");
    }
    // Oversized: it is refused, or hung up on because nobody reads the rest.
    assert!(matches!(answer(ticket, &vec![0xff; 100_000]), None | Some(RejectReason::Malformed)));
    // Cut off anywhere, and then gone.
    for length in 0..REQUEST_BYTES {
        UnixStream::connect(ticket.path()).unwrap().write_all(&good[..length]).unwrap();
    }
    assert_eq!(read(&take(ticket).unwrap().tensors[0]), b"safe");
    drop(publication);
    before.settle();
}

#[test]
fn a_request_in_single_bytes_and_a_replay() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"slow", PublishOptions { once: true, ..PublishOptions::default() });
    let good = request(publication.ticket());
    let mut stream = UnixStream::connect(publication.ticket().path()).unwrap();
    for byte in &good {
        stream.write_all(&[*byte]).unwrap();
        thread::sleep(Duration::from_micros(200));
    }
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head).unwrap();
    // Whatever it says now is not heard.
    stream.write_all(&good).unwrap();
    assert_eq!(publication.leases(), 1);
    assert_eq!(answer(publication.ticket(), &good), Some(RejectReason::Used));
    drop(stream);
    until("the lease is over", || publication.leases() == 0);
    drop(publication);
    before.settle();
}

#[test]
fn consumers_that_say_nothing() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"prompt", PublishOptions::default());
    let silent: Vec<UnixStream> =
        (0..200).map(|_| UnixStream::connect(publication.ticket().path()).unwrap()).collect();
    let prompt = within(Duration::from_secs(2), || take(publication.ticket()).unwrap());
    assert_eq!(read(&prompt.tensors[0]), b"prompt");
    drop(prompt);
    // The oldest were sent away.
    until("some are sent away", || counts().descriptors < 80);
    assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
    drop((silent, publication));
    before.settle();
}

#[test]
fn consumers_that_do_not_read() {
    let _alone = alone();
    let before = baseline();
    let tensors = [crate::common::tensor(b"big")];
    let publication = publish(&tensors, &vec![1; 8 << 20], &PublishOptions::default()).unwrap();
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = UnixStream::connect(publication.ticket().path()).unwrap();
        stream.write_all(&request(publication.ticket())).unwrap();
        streams.push(stream);
    }
    until("all have asked", || publication.leases() == 20);
    assert_eq!(take(publication.ticket()).unwrap().structure.len(), 8 << 20);
    drop(streams);
    until("all are gone", || publication.leases() == 0);
    drop((tensors, publication));
    before.settle();
}

#[test]
fn consumers_that_send_descriptors() {
    let _alone = alone();
    let before = baseline();
    let publication = publish_bytes(b"kept", PublishOptions::default());
    let (reader, writer) = std::io::pipe().unwrap();
    let stream = UnixStream::connect(publication.ticket().path()).unwrap();
    send(&stream, &request(publication.ticket()), &[writer.as_raw_fd(); 10]);
    until("it is let in", || publication.leases() == 1);
    drop(writer);
    // The end of the pipe comes only if the producer has kept no descriptor.
    assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
    drop((stream, publication, reader));
    before.settle();
}

#[test]
fn another_user_is_not_let_in() {
    let _alone = alone();
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    let before = baseline();
    let publication = publish_bytes(b"mine", PublishOptions::default());
    let ticket = publication.ticket();
    let fork = |then: &dyn Fn() -> bool| {
        // SAFETY: the child does what is made for forks, and leaves without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: changes the child alone, and ends it.
            unsafe {
                let changed = libc::setresuid(65534, 65534, 65534) == 0;
                libc::_exit(i32::from(!(changed && then())));
            }
        }
        let mut status = 0;
        // SAFETY: the child is ours, and the number lives through the call.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        status
    };
    // The folder keeps it out.
    assert_eq!(fork(&|| take(ticket).is_err_and(|error| error.kind() == ErrorKind::TicketRejected)), 0);
    // And were the folder open, the producer hangs up on it without a word, and it would not believe the producer.
    let folder = ticket.path().parent().unwrap();
    for path in [folder, ticket.path()] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let good = request(ticket);
    let hung_up = fork(&|| {
        let Ok(mut stream) = UnixStream::connect(ticket.path()) else { return false };
        let _ = stream.write_all(&good);
        !matches!(stream.read(&mut [0; 8]), Ok(1..))
    });
    assert_eq!((hung_up, publication.leases()), (0, 0));
    assert_eq!(fork(&|| take(ticket).is_err_and(|error| error.fact().contains("another user"))), 0);
    std::fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    drop(publication);
    before.settle();
}

/// The first descriptor that comes with the answer to a request.
fn received(ticket: &Ticket) -> OwnedFd {
    let mut stream = UnixStream::connect(ticket.path()).unwrap();
    stream.write_all(&request(ticket)).unwrap();
    let (mut control, mut bytes) = ([0u64; 64], [0u8; 64]);
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the header points to buffers that live through the calls; the descriptor is new and ours.
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
fn what_is_sent_for_reading_cannot_be_mapped_for_writing() {
    let _alone = alone();
    let before = baseline();
    for (access, may_write) in [(Access::ReadOnly, false), (Access::ReadWrite, true)] {
        let publication = publish_bytes(b"frozen", PublishOptions { access, ..PublishOptions::default() });
        let descriptor = received(publication.ticket());
        let map = |protection| {
            // SAFETY: a new mapping touches nothing that exists, and is gone again at once.
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
        // SAFETY: one byte of memory that lives through the call.
        let written = unsafe { libc::pwrite(descriptor.as_raw_fd(), b"x".as_ptr().cast(), 1, 0) };
        assert_eq!(written == 1, may_write);
    }
    before.settle();
}

#[test]
fn a_consumer_without_descriptors_is_told() {
    let _alone = alone();
    let before = baseline();
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
    // SAFETY: the child does what is made for forks, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: changes the child alone, and ends it.
        unsafe {
            let next = libc::dup(0) as u64;
            let limit = libc::rlimit { rlim_cur: next + 5, rlim_max: next + 5 };
            libc::close(next as i32);
            let limited = libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0;
            let told = take(publication.ticket()).is_err_and(|error| error.errno() == Some(libc::EMFILE));
            // What had come was closed again.
            let closed = libc::dup(0) as u64 == next;
            libc::_exit(i32::from(!(limited && told && closed)));
        }
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the number lives through the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    until("the lease is over", || publication.leases() == 0);
    drop((publication, tensors, arenas));
    before.settle();
}

// Producers that are not what they seem.

fn message(memories: &[u64], access: Access) -> Vec<u8> {
    let layout = Layout::dense(1, &[10]).unwrap();
    let tensors = vec![TensorDescription { memory: 0, offset: 0, dtype: DType::UInt8, layout }];
    let memories = memories.iter().map(|&bytes| MemoryDescription::host(bytes)).collect();
    let given = Delivery { access, gpus: vec![], memories, tensors, structure: vec![] };
    Reply::Delivery(given).write().unwrap()
}

fn memory(bytes: i64, seals: i32) -> OwnedFd {
    // SAFETY: makes a descriptor, which is nobody else's, and changes it alone.
    unsafe {
        let made = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
        assert!(libc::ftruncate(made, bytes) == 0 && libc::fcntl(made, libc::F_ADD_SEALS, seals) == 0);
        OwnedFd::from_raw_fd(made)
    }
}

const SEALS: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

#[test]
fn replies_that_are_nonsense() {
    let _alone = alone();
    let before = baseline();
    let whole = message(&[4096], Access::ReadOnly);
    assert!(fact(against(drop)).contains("closed the connection"));
    assert!(fact(against(|stream| send(&stream, &[0x55; 4096], &[]))).contains("does not speak"));
    for length in [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 1, whole.len() - 1] {
        let cut = &whole[..length];
        assert!(fact(against(move |stream| send(&stream, cut, &[]))).contains("closed the connection"));
    }
    let mut huge = whole.clone();
    huge[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(fact(against(|stream| send(&stream, &huge, &[]))).contains("body of 4294967295 bytes"));
    huge[8..12].copy_from_slice(&(200u32 << 20).to_le_bytes());
    assert!(fact(against(|stream| send(&stream, &huge, &[]))).contains("closed the connection"));
    // The connection stays open, and nothing comes.
    let (keep, kept) = std::sync::mpsc::channel();
    let silent = against_for(Duration::from_millis(100), move |stream| keep.send(stream).unwrap());
    assert_eq!(silent.unwrap_err().kind(), ErrorKind::TimedOut);
    drop(kept);
    let refusal = Reply::Refusal { reason: RejectReason::Failed, text: "a\nb".repeat(100) }.write().unwrap();
    assert!(fact(against(|stream| send(&stream, &refusal, &[]))).contains("was refused: \"a\\nba"));
    before.settle();
}

#[test]
fn descriptors_that_are_not_as_announced() {
    let _alone = alone();
    let before = baseline();
    let good = memory(4096, SEALS);
    let (pipe, end) = std::io::pipe().unwrap();
    let reply = |descriptors: &[&dyn AsRawFd]| {
        let raw: Vec<RawFd> = descriptors.iter().map(|one| one.as_raw_fd()).collect();
        against(move |stream| send(&stream, &message(&[4096], Access::ReadWrite), &raw))
    };
    drop(reply(&[&good]).unwrap());
    assert!(fact(reply(&[])).contains("announced 1 memories with descriptors and sent 0 descriptors"));
    assert!(fact(reply(&[&good, &pipe, &good])).contains("announced 1 memories with descriptors and sent 3"));
    assert!(fact(reply(&[&pipe])).contains("no shared memory"));
    assert!(fact(reply(&[&memory(4096, 0)])).contains("shortened underneath"));
    assert!(fact(reply(&[&memory(4096, libc::F_SEAL_GROW)])).contains("shortened underneath"));
    assert!(fact(reply(&[&memory(4095, SEALS)])).contains("announced 4096 bytes and sent memory of 4095"));
    let frozen = std::fs::File::open(format!("/proc/self/fd/{}", good.as_raw_fd())).unwrap();
    assert!(fact(reply(&[&frozen])).contains("may not be accessed as it says"));
    let sealed = memory(4096, SEALS | libc::F_SEAL_WRITE);
    assert!(fact(reply(&[&sealed])).contains("cannot be mapped"));
    // In several lots, one more than announced in the last.
    let lots = against(|stream| {
        let whole = message(&[4096, 4096], Access::ReadOnly);
        for (index, byte) in whole.iter().enumerate() {
            let lot: &[RawFd] = if index % 10 == 0 { &[good.as_raw_fd()] } else { &[] };
            send(&stream, &[*byte], lot);
        }
    });
    assert!(fact(lots).contains("announced 2 memories with descriptors and sent"));
    drop((good, pipe, end, frozen, sealed));
    before.settle();
}

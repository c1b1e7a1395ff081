//! What the other processes do.

use crate::common::{placed, publish_bytes, read, take};
use crate::peer_process::{self, Other};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tensorferry_core::Access;
use tensorferry_share::{
    ArenaBlock, AttachedTensor, Publication, PublishOptions, PublishedTensor, Ticket, publish,
};

impl Other {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn publish(&mut self, line: &str) -> Ticket {
        Ticket::from_text(&self.ask(line)).unwrap()
    }
}

#[derive(Default)]
struct Role {
    publications: Vec<Publication>,
    tensors: Vec<AttachedTensor>,
    files: Vec<File>,
}

/// Plays a role, if this process has one, and ends.
pub(crate) fn play() {
    let mut role = Role::default();
    peer_process::play(|words| role.follow(words));
}

impl Role {
    fn follow(&mut self, words: &[&str]) -> String {
        match words {
            ["publish", text, rest @ ..] => {
                let mut options = PublishOptions::default();
                for word in rest {
                    match *word {
                        "once" => options.once = true,
                        "read-only" => options.access = Access::ReadOnly,
                        number => options.timeout = Some(Duration::from_millis(number.parse().unwrap())),
                    }
                }
                self.keep(publish_bytes(text.as_bytes(), options))
            }
            ["attach", text] => match take(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => {
                    self.tensors.extend(attached.tensors);
                    self.words()
                }
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["read"] => self.words(),
            ["write", letter] => {
                // SAFETY: memory that was handed over for writing, while the other side waits.
                self.tensors
                    .iter()
                    .for_each(|one| unsafe { one.data().write_volatile(letter.as_bytes()[0]) });
                "ok".into()
            }
            ["again", access] => {
                let tensors: Vec<PublishedTensor> = self.tensors.iter().map(outgoing).collect();
                let access = if *access == "read-only" { Access::ReadOnly } else { Access::ReadWrite };
                match publish(&tensors, b"again", &PublishOptions { access, ..PublishOptions::default() }) {
                    Ok(publication) => self.keep(publication),
                    Err(error) => error.fact().to_owned(),
                }
            }
            ["leases"] => self.publications.last().unwrap().leases().to_string(),
            ["leases-of", index] => self.publications[index.parse::<usize>().unwrap()].leases().to_string(),
            ["withdraw"] => {
                self.publications.last().unwrap().withdraw();
                "ok".into()
            }
            ["drop"] => {
                self.tensors.clear();
                "ok".into()
            }
            ["publish-large", count] => {
                // From so many bytes on each has memory of its own, which takes no room before it is touched.
                let large = |_| placed(&ArenaBlock::new(16 << 20).unwrap(), 16 << 20);
                let tensors: Vec<PublishedTensor> = (0..count.parse().unwrap()).map(large).collect();
                self.keep(publish(&tensors, b"large", &PublishOptions::default()).unwrap())
            }
            ["idle", count, text] => {
                let ticket = Ticket::from_text(text).unwrap();
                for _ in 0..count.parse().unwrap() {
                    let mut stream = UnixStream::connect(ticket.path()).unwrap();
                    stream.write_all(&crate::malicious_consumers::request(&ticket)).unwrap();
                    self.files.push(File::from(OwnedFd::from(stream)));
                }
                "ok".into()
            }
            ["nobody"] => {
                become_nobody();
                "ok".into()
            }
            ["count", text] => match take(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => attached.tensors.len().to_string(),
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["limit", most] => crate::common::limit(most.parse().unwrap()).to_string(),
            ["descriptors"] => crate::common::descriptors().to_string(),
            ["starve"] => {
                self.files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                self.files.len().to_string()
            }
            ["feed"] => {
                self.files.clear();
                "ok".into()
            }
            ["fork"] => {
                // SAFETY: the child ends in good order, with all that is done then, and the parent waits for it.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::exit(0);
                    }
                    let mut status = -1;
                    libc::waitpid(child, &raw mut status, 0);
                    status.to_string()
                }
            }
            _ => panic!("unknown words"),
        }
    }

    fn keep(&mut self, publication: Publication) -> String {
        let text = publication.ticket().to_text();
        self.publications.push(publication);
        text
    }

    fn words(&self) -> String {
        self.tensors.iter().map(|one| String::from_utf8(read(one)).unwrap()).collect::<Vec<_>>().join(",")
    }
}

/// Has this process go on as an ordinary user, if it is the system's: some limits are not for the system.
fn become_nobody() {
    const NOBODY: u32 = 65534;
    // SAFETY: numbers alone. The C library sees to all threads.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(0, std::ptr::null()), 0);
            assert_eq!((libc::setgid(NOBODY), libc::setuid(NOBODY)), (0, 0));
            // What has changed its user may not look at itself in /proc any more, unless it says so.
            assert_eq!(libc::prctl(libc::PR_SET_DUMPABLE, 1), 0);
        }
    }
}

/// A tensor that was attached, to be published again.
pub(crate) fn outgoing(tensor: &AttachedTensor) -> PublishedTensor {
    let (memory, offset) = tensorferry_share::find(tensor.data(), tensor.layout().bytes()).unwrap();
    PublishedTensor { memory: memory.into(), offset, dtype: tensor.dtype(), layout: tensor.layout().clone() }
}

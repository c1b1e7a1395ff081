//! The commands that a peer process executes.

use crate::common::{arena_of, attach_ticket, publish_bytes, read, tensor_in};
use crate::malicious_consumers::receive_descriptor;
use crate::peer_process::{self, PeerProcess};
use crate::raw_calls::{ChildEnd, drop_privileges, fork, read_bytes, wait, write_bytes};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tensorferry_core::Access;
use tensorferry_share::{
    ArenaBlock, AttachedTensor, Publication, PublishOptions, PublishedTensor, Ticket, publish,
};

impl PeerProcess {
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn publish(&mut self, line: &str) -> Ticket {
        Ticket::from_text(&self.request(line)).unwrap()
    }
}

#[derive(Default)]
struct Peer {
    publications: Vec<Publication>,
    tensors: Vec<AttachedTensor>,
    files: Vec<File>,
    retained_mapping: Option<MmapRaw>,
    retained_descriptor: Option<OwnedFd>,
}

/// Executes commands and exits, if this process is a peer.
pub(crate) fn run_commands() {
    let mut peer = Peer::default();
    peer_process::run_commands(|words| peer.execute(words));
}

impl Peer {
    fn execute(&mut self, words: &[&str]) -> String {
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
                self.add(publish_bytes(text.as_bytes(), options))
            }
            ["attach", text] => match attach_ticket(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => {
                    self.tensors.extend(attached.tensors);
                    self.contents()
                }
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["read"] => self.contents(),
            ["write", letter] => {
                for tensor in &self.tensors {
                    let (arena, offset) = arena_of(tensor);
                    write_bytes(arena, offset, &letter.as_bytes()[..1]);
                }
                "ok".into()
            }
            ["republish", access] => {
                let tensors: Vec<PublishedTensor> = self.tensors.iter().map(republished).collect();
                let access = if *access == "read-only" { Access::ReadOnly } else { Access::ReadWrite };
                match publish(
                    &tensors,
                    b"republished",
                    &PublishOptions { access, ..PublishOptions::default() },
                ) {
                    Ok(publication) => self.add(publication),
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
            ["attach-large", text] => {
                let attached = attach_ticket(&Ticket::from_text(text).unwrap()).unwrap();
                let ends = attached.tensors.iter().flat_map(|tensor| {
                    let (arena, offset) = arena_of(tensor);
                    let last = offset + tensor.layout().bytes() - 1;
                    [read_bytes(arena, offset, 1), read_bytes(arena, last, 1)].concat()
                });
                let ends = String::from_utf8(ends.collect()).unwrap();
                self.tensors.extend(attached.tensors);
                ends
            }
            // As a consumer that closes the connection, and does not use this crate.
            ["keep-mapping", text] => {
                let descriptor = receive_descriptor(&Ticket::from_text(text).unwrap());
                self.retained_mapping = Some(MmapOptions::new().map_raw_read_only(&descriptor).unwrap());
                self.read_retained()
            }
            ["keep-descriptor", text] => {
                self.retained_descriptor = Some(receive_descriptor(&Ticket::from_text(text).unwrap()));
                self.read_retained()
            }
            ["read-kept"] => self.read_retained(),
            ["drop-kept"] => {
                (self.retained_mapping, self.retained_descriptor) = (None, None);
                "ok".into()
            }
            ["publish-large", count] => {
                // Each has an arena of its own, whose pages are not touched.
                let large = |_| tensor_in(&ArenaBlock::new(16 << 20).unwrap(), 16 << 20);
                let tensors: Vec<PublishedTensor> = (0..count.parse().unwrap()).map(large).collect();
                self.add(publish(&tensors, b"large", &PublishOptions::default()).unwrap())
            }
            ["connect-idle", count, text] => {
                let ticket = Ticket::from_text(text).unwrap();
                for _ in 0..count.parse().unwrap() {
                    let mut stream = UnixStream::connect(ticket.path()).unwrap();
                    stream.write_all(&crate::malicious_consumers::encoded_request(&ticket)).unwrap();
                    self.files.push(File::from(OwnedFd::from(stream)));
                }
                "ok".into()
            }
            ["drop-privileges"] => {
                drop_privileges();
                "ok".into()
            }
            ["count", text] => match attach_ticket(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => attached.tensors.len().to_string(),
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["limit", limit] => crate::common::set_descriptor_limit(limit.parse().unwrap()).to_string(),
            ["descriptors"] => crate::descriptors::descriptor_count().to_string(),
            ["exhaust-descriptors"] => {
                self.files.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                self.files.len().to_string()
            }
            ["release-descriptors"] => {
                self.files.clear();
                "ok".into()
            }
            // The child runs its exit handlers.
            ["fork"] => wait(fork(ChildEnd::WithHandlers, || true)).to_string(),
            _ => panic!("unknown command"),
        }
    }

    fn add(&mut self, publication: Publication) -> String {
        let text = publication.ticket().to_text();
        self.publications.push(publication);
        text
    }

    /// The first and the last byte of what is kept.
    fn read_retained(&self) -> String {
        let (memory, start, bytes) = match (&self.retained_mapping, &self.retained_descriptor) {
            (Some(mapping), _) => {
                (File::open("/proc/self/mem").unwrap(), mapping.as_ptr() as u64, mapping.len() as u64)
            }
            (None, Some(descriptor)) => {
                let file = File::from(descriptor.try_clone().unwrap());
                let bytes = file.metadata().unwrap().len();
                (file, 0, bytes)
            }
            (None, None) => panic!("nothing is kept"),
        };
        let mut ends = [0; 2];
        memory.read_exact_at(&mut ends[..1], start).unwrap();
        memory.read_exact_at(&mut ends[1..], start + bytes - 1).unwrap();
        String::from_utf8(ends.to_vec()).unwrap()
    }

    fn contents(&self) -> String {
        self.tensors.iter().map(|one| String::from_utf8(read(one)).unwrap()).collect::<Vec<_>>().join(",")
    }
}

/// An attached tensor, to be published again.
pub(crate) fn republished(tensor: &AttachedTensor) -> PublishedTensor {
    let (memory, offset) = tensorferry_share::find_arena(tensor.data(), tensor.layout().bytes()).unwrap();
    PublishedTensor { memory: memory.into(), offset, dtype: tensor.dtype(), layout: tensor.layout().clone() }
}

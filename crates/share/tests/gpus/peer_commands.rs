//! The commands that a peer process executes.

use crate::common::{attach_ready, attach_ticket, gpu, read, republished, tensor_in, tensors, write};
use crate::driver::{self, CopySource, publish_after_stream, publish_ready, wait_for_all};
use crate::peer_process::{self, PeerProcess};
use crate::raw_calls::{ChildEnd, fork, wait};
use std::os::unix::process::ExitStatusExt;
use tensorferry_core::{Access, ErrorKind};
use tensorferry_cuda::ipc::GpuArena;
use tensorferry_share::{
    Attached, AttachedTensor, Publication, PublishOptions, PublishedTensor, SharedMemory, Ticket, counts,
    publish,
};

impl PeerProcess {
    /// Sends a command and waits for the reply; `None` if the process ended.
    pub(crate) fn try_request(&mut self, line: &str) -> Option<String> {
        self.send_line(line);
        self.read_reply()
    }

    /// Makes it publish, and returns the tickets.
    pub(crate) fn publish(&mut self, line: &str) -> Vec<Ticket> {
        let reply = self.request(line);
        reply
            .split(' ')
            .map(|text| Ticket::from_text(text).unwrap_or_else(|_| panic!("not a ticket: {reply}")))
            .collect()
    }

    /// Makes it attach.
    pub(crate) fn attach(&mut self, ticket: &Ticket) -> String {
        self.request(&format!("attach {}", ticket.to_text()))
    }

    /// Whether it ended with SIGSEGV; under AddressSanitizer that is an exit with a report.
    pub(crate) fn has_crashed(mut self) -> bool {
        let status = self.child.wait().unwrap();
        status.signal() == Some(rustix::process::Signal::SEGV.as_raw()) || status.code() == Some(1)
    }
}

#[derive(Default)]
struct Peer {
    publications: Vec<Publication>,
    created: Vec<PublishedTensor>,
    attached: Vec<Attached>,
    blocks: Vec<CopySource>,
}

/// Executes commands and exits, if this process is a peer.
pub(crate) fn run_commands() {
    let mut peer = Peer::default();
    peer_process::run_commands(|words| peer.execute(words));
}

impl Peer {
    fn execute(&mut self, words: &[&str]) -> String {
        match words {
            // A ticket for each word, all in one allocation.
            ["publish", access @ ("read-only" | "read-write"), kind, texts @ ..] => {
                let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
                let created = tensors(kind, &texts);
                let tickets: Vec<String> =
                    created.iter().map(|one| self.publish(std::slice::from_ref(one), access)).collect();
                self.created.extend(created);
                tickets.join(" ")
            }
            ["publish-pending", repeats, old, new] => {
                self.publish_pending(repeats.parse().unwrap(), old, new)
            }
            // Waits for all queued work, which makes the test driver execute it.
            ["finish"] => {
                wait_for_all(gpu()).unwrap();
                "ok".into()
            }
            ["attach", text] => match attach_ready(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => {
                    self.attached.push(attached);
                    self.contents()
                }
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["read"] => self.contents(),
            ["device"] => self.attached[0].tensors[0].device().index.to_string(),
            // Reads the memory that was created here.
            ["read-own"] => {
                let read_own = |one: &PublishedTensor| {
                    let bytes = driver::read(&one.memory, one.offset, one.layout.bytes()).unwrap();
                    String::from_utf8(bytes).unwrap()
                };
                self.created.iter().map(read_own).collect::<Vec<_>>().join(",")
            }
            ["write", text] => match write(&self.attached[0].tensors[0], text.as_bytes()) {
                Ok(()) => "ok".into(),
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["republish", access] => {
                let tensors: Vec<PublishedTensor> = self.tensors().map(republished).collect();
                self.publish(&tensors, access)
            }
            ["leases"] => {
                self.publications.iter().map(|one| one.leases().to_string()).collect::<Vec<_>>().join(",")
            }
            ["counts"] => {
                let now = counts();
                format!("{} {} {} {}", now.gpu.made, now.gpu.exports, now.gpu.imports, now.gpu.events)
            }
            ["withdraw"] => {
                self.publications.clear();
                self.created.clear();
                self.blocks.clear();
                "ok".into()
            }
            ["drop"] => {
                self.attached.clear();
                "ok".into()
            }
            ["fork", ticket] => self.fork(&Ticket::from_text(ticket).unwrap()),
            _ => panic!("unknown command"),
        }
    }

    fn tensors(&self) -> impl Iterator<Item = &AttachedTensor> {
        self.attached.iter().flat_map(|attached| &attached.tensors)
    }

    fn publish(&mut self, tensors: &[PublishedTensor], access: &str) -> String {
        let access = if access == "read-only" { Access::ReadOnly } else { Access::ReadWrite };
        let options = PublishOptions { access, ..PublishOptions::default() };
        let result = match tensors {
            // Writes were waited for.
            [_] => publish_ready(tensors, &options),
            _ => publish(tensors, b"", &options),
        };
        match result {
            Ok(publication) => {
                let text = publication.ticket().to_text();
                self.publications.push(publication);
                text
            }
            Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
        }
    }

    /// Publishes while a copy is queued behind `repeats` copies of 256 MiB.
    fn publish_pending(&mut self, repeats: usize, old: &str, new: &str) -> String {
        let gpu = gpu();
        let arena = GpuArena::new(gpu, 4096).unwrap();
        let memory = SharedMemory::Gpu(arena.clone());
        driver::write(&memory, 0, old.as_bytes()).unwrap();
        let bytes = if repeats > 0 { 256 << 20 } else { 4096 };
        let (from, to) =
            (CopySource::new(gpu, bytes, new.as_bytes()), CopySource::new(gpu, bytes, new.as_bytes()));
        (0..repeats).for_each(|_| from.queue_copy_into(&to));
        from.queue_copy(&arena, new.len());
        let tensors = [tensor_in(memory, 0, new.len())];
        let publication = publish_after_stream(&tensors, gpu, gpu.sync_stream().unwrap()).unwrap();
        self.created.extend(tensors);
        self.blocks.extend([from, to]);
        let text = publication.ticket().to_text();
        self.publications.push(publication);
        text
    }

    /// Forks a child that drops everything, cannot attach, and exits.
    fn fork(&mut self, ticket: &Ticket) -> String {
        let child = fork(ChildEnd::WithHandlers, || {
            let is_rejected =
                attach_ticket(ticket).is_err_and(|error| error.kind() == ErrorKind::UnsupportedDevice);
            let is_unknown = tensorferry_cuda::ipc::find(std::ptr::dangling(), 1).is_none();
            *self = Peer::default();
            is_rejected && is_unknown
        });
        wait(child).to_string()
    }

    fn contents(&self) -> String {
        let content = |one: &AttachedTensor| match read(one) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
        };
        self.tensors().map(content).collect::<Vec<_>>().join(",")
    }
}

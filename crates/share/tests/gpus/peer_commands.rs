//! What the other processes do.

use crate::common::{again, gpu, look, outgoing, read, take, take_ready, tensors, write};
use crate::peer_process::{self, Other};
use std::os::unix::process::ExitStatusExt;
use tensorferry_core::{Access, ByteOrder, DType, Layout};
use tensorferry_cuda::ipc::GpuArena;
use tensorferry_cuda::{DeviceBlock, DeviceSource, Stream, SyncPoint};
use tensorferry_share::{
    Attached, AttachedTensor, Publication, PublishOptions, PublishedTensor, Ticket, counts, publish,
    publish_after,
};

impl Other {
    /// Says a line and waits for the answer; `None` where the process ended instead.
    pub(crate) fn try_ask(&mut self, line: &str) -> Option<String> {
        self.say(line);
        self.hear()
    }

    /// Has it publish, and gives the tickets.
    pub(crate) fn publish(&mut self, line: &str) -> Vec<Ticket> {
        let answer = self.ask(line);
        answer
            .split(' ')
            .map(|text| Ticket::from_text(text).unwrap_or_else(|_| panic!("no ticket: {answer}")))
            .collect()
    }

    /// Has it attach.
    pub(crate) fn attach(&mut self, ticket: &Ticket) -> String {
        self.ask(&format!("attach {}", ticket.to_text()))
    }

    /// Whether it ended by touching memory that it may not touch; under AddressSanitizer that is an exit with a report.
    pub(crate) fn crashed(mut self) -> bool {
        let status = self.child.wait().unwrap();
        status.signal() == Some(libc::SIGSEGV) || status.code() == Some(1)
    }
}

#[derive(Default)]
struct Role {
    publications: Vec<Publication>,
    made: Vec<PublishedTensor>,
    attached: Vec<Attached>,
    kept: Vec<DeviceBlock>,
}

/// Plays a role, if this process has one, and ends.
pub(crate) fn play() {
    let mut role = Role::default();
    peer_process::play(|words| role.follow(words));
}

impl Role {
    fn follow(&mut self, words: &[&str]) -> String {
        match words {
            // A ticket for each word, all in one allocation.
            ["publish", access @ ("read-only" | "read-write"), kind, texts @ ..] => {
                let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
                let made = tensors(kind, &texts);
                let answers: Vec<String> =
                    made.iter().map(|one| self.publish(std::slice::from_ref(one), access)).collect();
                self.made.extend(made);
                answers.join(" ")
            }
            ["late", repeats, old, new] => self.late(repeats.parse().unwrap(), old, new),
            // Waits until all that is queued here is done, which has the stand-in do it.
            ["finish"] => {
                // SAFETY: no stream is named.
                unsafe { gpu().wait(SyncPoint::Everything).unwrap() };
                "ok".into()
            }
            ["attach", text] => match take_ready(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => {
                    self.attached.push(attached);
                    self.words()
                }
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["read"] => self.words(),
            ["device"] => self.attached[0].tensors[0].device().index.to_string(),
            // What is in the memory that was made here.
            ["look"] => {
                let look = |one: &PublishedTensor| {
                    let data = one.memory.data().wrapping_add(one.offset);
                    String::from_utf8(look(gpu(), data, one.layout.bytes()).unwrap()).unwrap()
                };
                self.made.iter().map(look).collect::<Vec<_>>().join(",")
            }
            ["write", text] => {
                let tensor = &self.attached[0].tensors[0];
                let place = tensor.device().index;
                let gpu = tensorferry_cuda::Gpu::get(place).unwrap();
                match write(gpu, tensor.data(), text.as_bytes()) {
                    Ok(()) => "ok".into(),
                    Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
                }
            }
            ["again", access] => {
                let tensors: Vec<PublishedTensor> = self.tensors().map(again).collect();
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
                self.made.clear();
                self.kept.clear();
                "ok".into()
            }
            ["drop"] => {
                self.attached.clear();
                "ok".into()
            }
            ["fork", ticket] => self.fork(&Ticket::from_text(ticket).unwrap()),
            _ => panic!("unknown words"),
        }
    }

    fn tensors(&self) -> impl Iterator<Item = &AttachedTensor> {
        self.attached.iter().flat_map(|attached| &attached.tensors)
    }

    fn publish(&mut self, tensors: &[PublishedTensor], access: &str) -> String {
        let access = if access == "read-only" { Access::ReadOnly } else { Access::ReadWrite };
        let options = PublishOptions { access, ..PublishOptions::default() };
        let result = match tensors {
            // Nothing is queued: what was written was waited for.
            // SAFETY: no stream is named.
            [_] => unsafe { publish_after(tensors, b"", &options, &[]) },
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

    /// Publishes while a copy is queued, behind so many others of 256 MiB that it takes a while.
    fn late(&mut self, repeats: usize, old: &str, new: &str) -> String {
        let gpu = gpu();
        let work = gpu.sync_stream().unwrap();
        let arena = GpuArena::new(gpu, 4096).unwrap();
        let bytes = if repeats > 0 { 256 << 20 } else { 4096 };
        let from = DeviceBlock::plain(gpu, bytes, Stream::LEGACY).unwrap();
        let to = DeviceBlock::plain(gpu, bytes, Stream::LEGACY).unwrap();
        write(gpu, arena.data(), old.as_bytes()).unwrap();
        write(gpu, from.data(), new.as_bytes()).unwrap();
        let copy = |target: *mut u8, count: usize| {
            let layout = Layout::dense(1, &[count as i64]).unwrap();
            let source = DeviceSource {
                data: from.data(),
                dtype: DType::UInt8,
                layout: &layout,
                order: ByteOrder::Native,
            };
            // SAFETY: blocks of that length, which are kept.
            unsafe { gpu.convert(&source, target, DType::UInt8, work).unwrap() };
        };
        (0..repeats).for_each(|_| copy(to.data(), bytes));
        copy(arena.data(), new.len());
        let tensors = [outgoing(arena.into(), 0, new.len())];
        // SAFETY: a stream that lives as long as the process.
        let publication = unsafe {
            publish_after(&tensors, b"", &PublishOptions::default(), &[(gpu, SyncPoint::Stream(work))])
        }
        .unwrap();
        self.made.extend(tensors);
        self.kept.extend([from, to]);
        let text = publication.ticket().to_text();
        self.publications.push(publication);
        text
    }

    /// A child that lets go of all that it has, cannot attach, and ends in good order.
    fn fork(&mut self, ticket: &Ticket) -> String {
        // SAFETY: the child does what is made for forks, and the parent waits for it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                let refused = take(ticket).is_err_and(|error| error.fact().contains("forked child"));
                let none = tensorferry_cuda::ipc::find(std::ptr::dangling(), 1).is_none();
                *self = Role::default();
                libc::exit(i32::from(!(refused && none)));
            }
            let mut status = -1;
            libc::waitpid(child, &raw mut status, 0);
            status.to_string()
        }
    }

    fn words(&self) -> String {
        let word = |one: &AttachedTensor| match read(one) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
        };
        self.tensors().map(word).collect::<Vec<_>>().join(",")
    }
}

//! Tickets: what a consumer needs to attach a publication, small enough for a command line.
//!
//! A ticket contains the path of the producer's socket, the identity of the producer, and the id and the secret of the
//! publication. Whoever has it and runs as the same user may attach, so it is as confidential as a password. `Debug`
//! and `Display` leave the secret out; only [`Ticket::to_text`] and [`Ticket::to_bytes`] contain it.
//!
//! The kernel reuses process ids. Process id and start time together identify one process since boot.
//!
//! As bytes: version (1), process id (4), start time (8), id (16), secret (16), length of the path (1), path. As
//! text: a prefix with the version, and the bytes in base64.

use crate::base64;
use crate::errors::invalid_argument;
use crate::hints;
use crate::system;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tensorferry_core::{Error, Result};

const TEXT_PREFIX: &str = "tensorferry-ticket:1:";
const VERSION: u8 = 1;
/// Bytes before the path.
const HEADER_BYTES: usize = 1 + 4 + 8 + 16 + 16 + 1;
/// The longest path that fits into a socket address with its terminating zero.
pub(crate) const MAX_PATH_BYTES: usize = 107;

/// Identifies a publication of another process and proves the right to attach it.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    path: PathBuf,
    id: [u8; 16],
    secret: [u8; 16],
    process: u32,
    start: u64,
}

impl Ticket {
    /// Creates a ticket from the path of the producer's socket, the id and the secret of the publication, and the
    /// producer's process id and start time (field 22 of `/proc/PID/stat`).
    ///
    /// # Errors
    /// The path is relative, contains a zero byte, or is longer than a socket address allows.
    pub fn new(path: PathBuf, id: [u8; 16], secret: [u8; 16], process: u32, start: u64) -> Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        if !path.is_absolute() || bytes.len() > MAX_PATH_BYTES || bytes.contains(&0) {
            return Err(invalid_ticket("ticket has an invalid socket path"));
        }
        Ok(Self { path, id, secret, process, start })
    }

    /// The path of the producer's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The id of the publication.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// The secret of the publication.
    pub(crate) fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// The process id of the producer.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The start time of the producer, in clock ticks since boot.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The whole ticket as bytes, secret included.
    pub fn to_bytes(&self) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + path.len());
        bytes.push(VERSION);
        bytes.extend(self.process.to_le_bytes());
        bytes.extend(self.start.to_le_bytes());
        bytes.extend(self.id);
        bytes.extend(self.secret);
        bytes.push(path.len() as u8);
        bytes.extend(path);
        bytes
    }

    /// Parses the bytes of a ticket.
    ///
    /// # Errors
    /// The bytes are not exactly what [`Ticket::to_bytes`] returns.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let Some((header, path)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(invalid_ticket(format!(
                "ticket has {} bytes, expected at least {HEADER_BYTES}",
                bytes.len()
            )));
        };
        if header[0] != VERSION {
            return Err(invalid_ticket(format!(
                "ticket has version {}, expected version {VERSION}",
                header[0]
            )));
        }
        if usize::from(header[HEADER_BYTES - 1]) != path.len() {
            return Err(invalid_ticket("the ticket is truncated or has trailing bytes"));
        }
        let (mut id, mut secret) = ([0; 16], [0; 16]);
        id.copy_from_slice(&header[13..29]);
        secret.copy_from_slice(&header[29..45]);
        let process = header[1..5].iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte));
        let start = header[5..13].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        Self::new(PathBuf::from(OsStr::from_bytes(path)), id, secret, process, start)
    }

    /// The whole ticket as text, secret included: one word that needs no quoting in a shell.
    pub fn to_text(&self) -> String {
        format!("{TEXT_PREFIX}{}", base64::encode(&self.to_bytes()))
    }

    /// Parses the text of a ticket.
    ///
    /// # Errors
    /// The text is not exactly what [`Ticket::to_text`] returns.
    pub fn from_text(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix(TEXT_PREFIX) else {
            return Err(invalid_ticket(format!("ticket text does not begin with {TEXT_PREFIX}")));
        };
        let bytes = base64::decode(rest, HEADER_BYTES + MAX_PATH_BYTES)
            .ok_or_else(|| invalid_ticket("the ticket is truncated or contains invalid characters"))?;
        Self::from_bytes(&bytes)
    }
}

fn invalid_ticket(fact: impl Into<String>) -> Error {
    invalid_argument(fact, hints::PASS_TICKET_UNCHANGED)
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("path", &self.path)
            .field("id", &format_args!("{:032x}", u128::from_be_bytes(self.id)))
            .field("process", &self.process)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}

/// Names the ticket in messages. The secret is left out, so that the text cannot be used to attach.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = u128::from_be_bytes(self.id) >> 96;
        write!(f, "ticket {id:08x} of process {}", self.process)
    }
}

/// Whether the process that issued the ticket is still running, or may be.
pub(crate) fn is_producer_alive(ticket: &Ticket) -> bool {
    system::start_time(ticket.process).map_or(true, |found| found == Some(ticket.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Ticket {
        let path = PathBuf::from("/run/user/1000/tensorferry-1/socket");
        Ticket::new(path, [0xab; 16], *b"a deadly secret!", 4711, 123_456_789).unwrap()
    }

    #[test]
    fn bytes_and_text_read_back() {
        let ticket = sample();
        assert_eq!(Ticket::from_bytes(&ticket.to_bytes()).unwrap(), ticket);
        assert_eq!(Ticket::from_text(&ticket.to_text()).unwrap(), ticket);
        assert!(ticket.to_text().len() < 200);
    }

    #[test]
    fn the_secret_is_not_shown() {
        let ticket = sample();
        let hidden = base64::encode(ticket.secret());
        for shown in [format!("{ticket:?}"), format!("{ticket}")] {
            assert!(!shown.contains("deadly") && !shown.contains(&hidden[..10]), "{shown}");
            assert!(!shown.contains("97, 32") && !shown.contains("6120646561"), "{shown}");
        }
        assert_eq!(format!("{ticket}"), "ticket abababab of process 4711");
    }

    #[test]
    fn invalid_tickets_are_explained() {
        let ticket = sample();
        let fact = |text: &str| Ticket::from_text(text).unwrap_err().fact().to_owned();
        assert!(fact("hello").contains("does not begin with tensorferry-ticket:1:"));
        assert!(fact(&ticket.to_text().replace(":1:", ":2:")).contains("does not begin"));
        assert!(fact(&format!("{} ", ticket.to_text())).contains("invalid characters"));
        let mut bytes = ticket.to_bytes();
        for length in 0..bytes.len() {
            assert!(Ticket::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        bytes[0] = 9;
        assert!(Ticket::from_bytes(&bytes).unwrap_err().fact().contains("version 9"));
        assert!(Ticket::new("relative".into(), [0; 16], [0; 16], 1, 1).is_err());
        assert!(Ticket::new(format!("/{}", "x".repeat(107)).into(), [0; 16], [0; 16], 1, 1).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_ticket_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(ticket) = Ticket::from_bytes(&bytes) {
                prop_assert_eq!(ticket.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_text_is_a_ticket_or_an_error(text in "[A-Za-z0-9_=-]{0,200}") {
            if let Ok(ticket) = Ticket::from_text(&format!("{TEXT_PREFIX}{text}")) {
                prop_assert_eq!(ticket.to_text(), format!("{TEXT_PREFIX}{text}"));
            }
        }
    }
}

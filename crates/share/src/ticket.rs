//! A claim on tensors that another process has, small enough for a command line.
//!
//! A ticket says where the producer listens, who it is, and which publication is meant. Whoever has it and runs as the
//! same user may attach, so it is a secret like a password: `Debug` and `Display` leave the secret out, and the whole is
//! given out only where it is asked for by name ([`Ticket::to_text`], [`Ticket::to_bytes`]).
//!
//! A process number is used again by another process some day. The time at which the producer began stands beside it, and
//! the two together name one process of a machine between two starts of it.
//!
//! As bytes: version (1), process (4), start (8), id (16), secret (16), length of the path (1), path. As text: a name, the
//! version, and the bytes in the alphabet of base64 that needs no quoting in a shell.

use crate::errors::wrong;
use crate::system;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tensorferry_core::{Error, Result};

/// What every ticket's text begins with.
const PREFIX: &str = "tensorferry-ticket:1:";
const VERSION: u8 = 1;
/// Bytes in front of the path.
const HEADER_BYTES: usize = 1 + 4 + 8 + 16 + 16 + 1;
/// The longest path that a socket's address holds, with its zero byte left out.
pub(crate) const LONGEST_PATH: usize = 107;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A claim on tensors of another process.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    path: PathBuf,
    id: [u8; 16],
    secret: [u8; 16],
    process: u32,
    start: u64,
}

impl Ticket {
    /// A ticket of its parts: where the producer listens, which publication, the secret that goes with it, and the
    /// producer's process number and time of start (field 22 of `/proc/PID/stat`).
    ///
    /// # Errors
    /// When the path is relative, holds a zero byte, or is longer than a socket's address may be.
    pub fn new(path: PathBuf, id: [u8; 16], secret: [u8; 16], process: u32, start: u64) -> Result<Self> {
        let bytes = path.as_os_str().as_bytes();
        if !path.is_absolute() || bytes.len() > LONGEST_PATH || bytes.contains(&0) {
            return Err(bad("it names no socket"));
        }
        Ok(Self { path, id, secret, process, start })
    }

    /// Where the producer listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which publication is meant.
    pub fn id(&self) -> &[u8; 16] {
        &self.id
    }

    /// What proves the right to it.
    pub(crate) fn secret(&self) -> &[u8; 16] {
        &self.secret
    }

    /// The producer's process number.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// When the producer began, in the system's ticks.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The whole ticket, the secret too.
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

    /// A ticket out of its bytes.
    ///
    /// # Errors
    /// When they are not exactly what [`Ticket::to_bytes`] makes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let Some((head, path)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(bad(&format!("it has {} bytes, and the shortest has {HEADER_BYTES}", bytes.len())));
        };
        if head[0] != VERSION {
            return Err(bad(&format!("it is of version {}, and this tensorferry reads {VERSION}", head[0])));
        }
        if usize::from(head[HEADER_BYTES - 1]) != path.len() {
            return Err(bad("it is cut off, or something follows it"));
        }
        let (mut id, mut secret) = ([0; 16], [0; 16]);
        id.copy_from_slice(&head[13..29]);
        secret.copy_from_slice(&head[29..45]);
        let process = head[1..5].iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte));
        let start = head[5..13].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
        Self::new(PathBuf::from(OsStr::from_bytes(path)), id, secret, process, start)
    }

    /// The whole ticket as text, the secret too: one word, without anything that a shell would read.
    pub fn to_text(&self) -> String {
        format!("{PREFIX}{}", encode(&self.to_bytes()))
    }

    /// A ticket out of its text.
    ///
    /// # Errors
    /// When it is not exactly what [`Ticket::to_text`] makes.
    pub fn from_text(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Err(bad(&format!("its text does not begin with {PREFIX}")));
        };
        let bytes = decode(rest).ok_or_else(|| bad("its text is cut off, or has letters that none has"))?;
        Self::from_bytes(&bytes)
    }
}

fn bad(why: &str) -> Error {
    wrong(format!("this is no ticket: {why}"), "pass a ticket exactly as the producer gave it")
}

/// Six bits to a letter; what is left over at the end are zeros.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let whole = (0..3).fold(0u32, |all, at| all << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for place in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(whole >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

/// `None` for letters that are not in the alphabet, for a length that no bytes have, and where a bit that stands for
/// nothing is set: one ticket has one text.
fn decode(text: &str) -> Option<Vec<u8>> {
    // More letters than the longest ticket has are not looked at.
    if text.len() > (HEADER_BYTES + LONGEST_PATH).div_ceil(3) * 4 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut whole = 0u32;
        for at in 0..4 {
            let value = match chunk.get(at) {
                Some(letter) => ALPHABET.iter().position(|known| known == letter)? as u32,
                None => 0,
            };
            whole = whole << 6 | value;
        }
        let count = chunk.len().checked_sub(1).filter(|&count| count > 0)?;
        if whole & ((1 << (24 - 8 * count)) - 1) != 0 && count < 3 {
            return None;
        }
        bytes.extend(&whole.to_be_bytes()[1..=count]);
    }
    Some(bytes)
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

/// Says whose ticket it is, and is no ticket: the secret is left out.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = u128::from_be_bytes(self.id) >> 96;
        write!(f, "ticket {id:08x} of process {}", self.process)
    }
}

/// Whether the process that made a ticket is still the one that has its number.
pub(crate) fn producer_lives(ticket: &Ticket) -> bool {
    system::start_time(ticket.process) == Some(ticket.start)
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
        let hidden = encode(ticket.secret());
        for shown in [format!("{ticket:?}"), format!("{ticket}")] {
            assert!(!shown.contains("deadly") && !shown.contains(&hidden[..10]), "{shown}");
            assert!(!shown.contains("97, 32") && !shown.contains("6120646561"), "{shown}");
        }
        assert_eq!(format!("{ticket}"), "ticket abababab of process 4711");
    }

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        assert_eq!(encode(&[0xfb, 0xff]), "-_8");
        for text in ["Z", "Zh", "Zm9", "Zm9v=", "Zm 9", "Zm+v", "ä"] {
            assert!(decode(text).is_none(), "{text}");
        }
    }

    #[test]
    fn bad_tickets_are_named() {
        let ticket = sample();
        let fact = |text: &str| Ticket::from_text(text).unwrap_err().fact().to_owned();
        assert!(fact("hello").contains("does not begin with tensorferry-ticket:1:"));
        assert!(fact(&ticket.to_text().replace(":1:", ":2:")).contains("does not begin"));
        assert!(fact(&format!("{} ", ticket.to_text())).contains("letters that none has"));
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
            prop_assert_eq!(decode(&encode(&bytes)).filter(|_| bytes.len() < 153), Some(bytes.clone()).filter(|_| bytes.len() < 153));
            if let Ok(ticket) = Ticket::from_bytes(&bytes) {
                prop_assert_eq!(ticket.to_bytes(), bytes);
            }
        }

        #[test]
        fn any_text_is_a_ticket_or_an_error(text in "[A-Za-z0-9_=-]{0,200}") {
            if let Ok(ticket) = Ticket::from_text(&format!("{PREFIX}{text}")) {
                prop_assert_eq!(ticket.to_text(), format!("{PREFIX}{text}"));
            }
        }
    }
}

//! Tickets, in terms of this crate's errors.

use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Identifies a publication and proves the right to attach it, small enough for a command line.
///
/// Whoever has the ticket and runs as the same user may attach, so it is as confidential as a password. `Debug` and `Display`
/// leave the secret out; [`to_text`](Self::to_text) and [`to_bytes`](Self::to_bytes) contain it. Python's tickets have the
/// same text (`str(ticket)`) and bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket(pub(super) tensorferry_share::Ticket);

impl Ticket {
    /// The whole ticket as text, secret included: one word that needs no quoting in a shell.
    pub fn to_text(&self) -> String {
        self.0.to_text()
    }

    /// Parses the text of a ticket. `parse` does the same.
    ///
    /// ```
    /// use tensorferry::share::Ticket;
    ///
    /// let error = Ticket::from_text("weights").unwrap_err();
    /// assert_eq!(error.hint().unwrap(), "pass a ticket exactly as the producer returned it");
    /// ```
    ///
    /// # Errors
    /// When the text is not that of a ticket.
    pub fn from_text(text: &str) -> Result<Self> {
        Ok(Self(tensorferry_share::Ticket::from_text(text).map_err(Error::from_core)?))
    }

    /// The whole ticket as bytes, secret included.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.to_bytes()
    }

    /// Parses the bytes of a ticket.
    ///
    /// # Errors
    /// When the bytes are not those of a ticket.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Ok(Self(tensorferry_share::Ticket::from_bytes(bytes).map_err(Error::from_core)?))
    }

    /// The process id of the producer.
    pub fn process(&self) -> u32 {
        self.0.process()
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::from_text(text)
    }
}

/// Without the secret.
impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Names the ticket, without the secret.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

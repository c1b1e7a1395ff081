//! Attaching tensors of other processes.

use super::attached_tensor::AttachedTensor;
use super::ticket::Ticket;
use crate::error::{Error, Result};
use std::time::{Duration, Instant};
use tensorferry_core::ErrorKind;
use tensorferry_share::TreeStructure;

/// The tensors of a ticket, with their names.
///
/// The name of a tensor is its path through the containers in which it was published, joined by dots as in a state dict of
/// PyTorch: keys of dicts, and indices of lists and tuples (`"layers.0.weight"`). A key that is neither text nor an integer is
/// named by its position. A ticket for one tensor without a container has one tensor with an empty name. Values other than
/// tensors are left out.
#[derive(Debug)]
pub struct Attached(Vec<(String, AttachedTensor)>);

/// Attaches the tensors of a ticket, and waits until those on GPUs are ready.
///
/// # Errors
/// - The ticket was withdrawn, used up or has expired, or its process has ended ([`ErrorKind::TicketRejected`]).
/// - The producer does not reply before the timeout ([`ErrorKind::TimedOut`]), or breaks the protocol.
/// - The system or the driver fails.
pub fn attach(ticket: &Ticket, timeout: Duration) -> Result<Attached> {
    let begin = Instant::now();
    let attached = tensorferry_share::attach(&ticket.0, timeout).map_err(Error::from_core)?;
    for ready in &attached.ready {
        ready.wait(timeout.saturating_sub(begin.elapsed())).map_err(Error::from_core)?;
    }
    let structure =
        TreeStructure::read(&attached.structure, attached.tensors.len()).map_err(Error::from_core)?;
    let tensors: Vec<AttachedTensor> = attached.tensors.into_iter().map(AttachedTensor::new).collect();
    let mut named = Vec::new();
    collect(&structure, &mut String::new(), &mut |name, index| {
        // `TreeStructure::read` has checked the index.
        if let Some(tensor) = tensors.get(index as usize) {
            named.push((name.to_owned(), tensor.clone()));
        }
    });
    Ok(Attached(named))
}

/// Calls `found` with the name and the index of each tensor. The depth of a tree is limited by `TreeStructure::read`.
fn collect(node: &TreeStructure, name: &mut String, found: &mut dyn FnMut(&str, u32)) {
    let mut descend = |key: &str, child: &TreeStructure| {
        let length = name.len();
        if length > 0 {
            name.push('.');
        }
        name.push_str(key);
        collect(child, name, found);
        name.truncate(length);
    };
    match node {
        TreeStructure::Tensor(index) => found(name, *index),
        TreeStructure::List(items) | TreeStructure::Tuple(items) => {
            for (index, item) in items.iter().enumerate() {
                descend(&index.to_string(), item);
            }
        }
        TreeStructure::Dict(_, items) => {
            for (index, (key, item)) in items.iter().enumerate() {
                match key {
                    TreeStructure::Text(text) => descend(text, item),
                    TreeStructure::Integer(number) => descend(&number.to_string(), item),
                    _ => descend(&index.to_string(), item),
                }
            }
        }
        _ => {}
    }
}

impl Attached {
    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the ticket has no tensors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tensors with their names, in the order in which they were published.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &AttachedTensor)> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// The tensor with this name, the first one if there are several.
    ///
    /// # Errors
    /// When the ticket has no such tensor.
    pub fn get(&self, name: &str) -> Result<&AttachedTensor> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, tensor)| tensor).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidArgument,
                format!("the ticket has no tensor named {name:?} among its {}", self.len()),
                "list the names with Attached::iter",
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_through_the_containers() {
        let text = |text: &str| TreeStructure::Text(text.to_owned());
        let layers = TreeStructure::List(vec![
            TreeStructure::Dict(false, vec![(text("weight"), TreeStructure::Tensor(0))]),
            TreeStructure::Tuple(vec![TreeStructure::Tensor(1), TreeStructure::None]),
        ]);
        let items = vec![
            (text("layers"), layers),
            (TreeStructure::Integer(-7), TreeStructure::Tensor(0)),
            (TreeStructure::None, TreeStructure::Tensor(2)),
            (text("step"), TreeStructure::Integer(3)),
        ];
        let mut names = Vec::new();
        collect(&TreeStructure::Dict(true, items), &mut String::new(), &mut |name, index| {
            names.push((name.to_owned(), index));
        });
        let expected = [("layers.0.weight", 0), ("layers.1.0", 1), ("-7", 0), ("2", 2)];
        assert_eq!(names, expected.map(|(name, index)| (name.to_owned(), index)));
        let mut names = Vec::new();
        collect(&TreeStructure::Tensor(0), &mut String::new(), &mut |name, _| names.push(name.to_owned()));
        assert_eq!(names, [""]);
    }
}

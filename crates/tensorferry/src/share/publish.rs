//! Publishing tensors for other processes.

use super::memory::{copy_published, find_published};
use super::publish_options::PublishOptions;
use super::ticket::Ticket;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::collections::{BTreeMap, BTreeSet};
use tensorferry_core::{ByteOrder, DType, Device, ErrorKind, Layout};
use tensorferry_share::{PublishedTensor, TreeStructure, publish_with_owner};

/// Tensors that other processes can attach until this is dropped.
///
/// Leases hold the memory longer. Tensors that were published in place have a further handle until the last lease ends.
#[derive(Debug)]
pub struct Publication {
    publication: tensorferry_share::Publication,
    ticket: Ticket,
}

impl Publication {
    /// The ticket for consumers. It may be copied, and used by several of them.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// The number of consumers that hold a lease now. The end of a consumer that was killed is noticed within milliseconds.
    pub fn leases(&self) -> usize {
        self.publication.leases()
    }

    /// The number of consumers that ever received the tensors.
    pub fn deliveries(&self) -> usize {
        self.publication.deliveries()
    }
}

/// Publishes one tensor for reading. Python's `ferry.attach` returns it as a tensor.
///
/// A tensor in shared memory ([`Tensor::zeros_shared`], or attached) is published in place. Other memory is copied once, on its
/// device.
///
/// # Errors
/// When the system or the GPU has no shared memory or no descriptor left, or the GPU cannot protect memory against writes.
pub fn publish(tensor: &Tensor, options: &PublishOptions) -> Result<Publication> {
    let mut tensors = PublishedTensors::new(options);
    let index = tensors.add(tensor)?;
    tensors.publish(&TreeStructure::Tensor(index))
}

/// As [`publish`], and lets consumers write.
///
/// ```compile_fail,E0133
/// use tensorferry::Tensor;
/// use tensorferry::share::{PublishOptions, publish_writable};
///
/// let tensor = Tensor::zeros_shared(tensorferry::DType::Int8, &[1])?;
/// publish_writable(&tensor, &PublishOptions::new())?;
/// # Ok::<(), tensorferry::Error>(())
/// ```
///
/// # Errors
/// As [`publish`].
///
/// # Safety
/// From now on, until the ticket is invalid and all leases have ended:
///
/// - This process reads and writes the elements, through the tensor or any handle on its memory, only while no consumer
///   writes them, and writes them only while no consumer reads them. How the processes agree on that is up to them. A
///   tensor whose memory is not shared is published as a copy, for which this holds by itself.
/// - Consumers write nothing but the elements. Tensors below 16 MiB share one mapping with others.
pub unsafe fn publish_writable(tensor: &Tensor, options: &PublishOptions) -> Result<Publication> {
    publish(tensor, &options.writable())
}

/// Publishes tensors under names for reading, with one ticket. Python's `ferry.attach` returns a dict.
///
/// Each tensor is published as by [`publish`]. Tensors that are the same view of the same memory, such as tied weights, become
/// one copy.
///
/// # Errors
/// As [`publish`], and when a name occurs twice or the names take more than 16 MiB.
pub fn publish_named<'a, N: Into<String>>(
    tensors: impl IntoIterator<Item = (N, &'a Tensor)>,
    options: &PublishOptions,
) -> Result<Publication> {
    let mut published = PublishedTensors::new(options);
    let mut items = Vec::new();
    let mut names = BTreeSet::new();
    for (name, tensor) in tensors {
        let name = name.into();
        if !names.insert(name.clone()) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("the name {name:?} occurs twice"),
                "give each tensor a name of its own",
            ));
        }
        let index = published.add(tensor)?;
        items.push((TreeStructure::Text(name), TreeStructure::Tensor(index)));
    }
    published.publish(&TreeStructure::Dict(false, items))
}

/// As [`publish_named`], and lets consumers write.
///
/// # Errors
/// As [`publish_named`].
///
/// # Safety
/// As [`publish_writable`], for each tensor.
pub unsafe fn publish_named_writable<'a, N: Into<String>>(
    tensors: impl IntoIterator<Item = (N, &'a Tensor)>,
    options: &PublishOptions,
) -> Result<Publication> {
    publish_named(tensors, &options.writable())
}

/// The tensors of one publication.
struct PublishedTensors<'a> {
    options: &'a PublishOptions,
    tensors: Vec<PublishedTensor>,
    /// The indices of the copies so far, by the address and the view that was copied.
    copies: BTreeMap<usize, Vec<(View, u32)>>,
    /// Handles on the memory that is published in place.
    in_place: Vec<Tensor>,
}

/// What decides which values a tensor has, beside its address.
type View = (Device, DType, ByteOrder, Layout);

impl<'a> PublishedTensors<'a> {
    fn new(options: &'a PublishOptions) -> Self {
        Self { options, tensors: Vec::new(), copies: BTreeMap::new(), in_place: Vec::new() }
    }

    /// Adds a tensor, in place or as a copy, and returns its index.
    fn add(&mut self, tensor: &Tensor) -> Result<u32> {
        let index = self.tensors.len() as u32;
        if let Some(published) = find_published(tensor, self.options.access()) {
            self.in_place.push(tensor.clone());
            self.tensors.push(published);
            return Ok(index);
        }
        // The caller's reference keeps the memory alive until it is published, so that no address is used twice.
        let core = tensor.core();
        let view = (core.device(), core.dtype(), core.order(), core.layout().clone());
        let copies = self.copies.entry(core.data() as usize).or_default();
        if let Some((_, known)) = copies.iter().find(|(copied, _)| *copied == view) {
            return Ok(*known);
        }
        self.tensors.push(copy_published(tensor)?);
        copies.push((view, index));
        Ok(index)
    }

    fn publish(self, structure: &TreeStructure) -> Result<Publication> {
        let owner = Box::new(self.in_place);
        let publication = publish_with_owner(
            &self.tensors,
            &structure.write().map_err(Error::from_core)?,
            self.options.lower(),
            owner,
        )
        .map_err(Error::from_core)?;
        let ticket = Ticket(publication.ticket().clone());
        Ok(Publication { publication, ticket })
    }
}

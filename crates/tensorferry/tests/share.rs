//! Publishing and attaching within one process. The Python tests do it between processes, in both languages.

#![cfg(feature = "share")]
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use std::thread;
use std::time::{Duration, Instant};
use support::{Folder, dense};
use tensorferry::files::{TensorFile, save};
use tensorferry::share::{
    Attached, PublishOptions, Ticket, attach, publish, publish_named, publish_named_writable,
    publish_writable,
};
use tensorferry::{DType, ErrorKind, Tensor};

/// Only a hang takes longer.
const HANG_TIMEOUT: Duration = Duration::from_secs(300);

fn attach_ticket(ticket: &Ticket) -> tensorferry::Result<Attached> {
    attach(&Ticket::from_text(&ticket.to_text())?, HANG_TIMEOUT)
}

fn wait_until(what: &str, mut is_done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < HANG_TIMEOUT, "{what}");
        thread::yield_now();
    }
}

fn matrix() -> Tensor {
    Tensor::from_vec((0..6).map(|value| value as f32).collect(), &[2, 3]).unwrap()
}

#[test]
fn values_shapes_and_names_arrive() {
    let matrix = matrix();
    let tensors = [
        ("dense", matrix.clone()),
        ("transposed", matrix.permute(&[1, 0]).unwrap()),
        ("view", matrix.narrow(1, 1, 2).unwrap()),
        ("bfloat16", matrix.cast(DType::BFloat16).unwrap()),
        ("float8", matrix.cast(DType::Float8E4M3Fn).unwrap()),
        ("bool", Tensor::from_vec(vec![true, false, true], &[3]).unwrap()),
        ("scalar", Tensor::from_vec(vec![-7i64], &[]).unwrap()),
        ("empty", Tensor::zeros(DType::Int16, &[2, 0, 3]).unwrap()),
    ];
    let items = tensors.iter().map(|(name, tensor)| (*name, tensor));
    let publication = publish_named(items, &PublishOptions::new()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert_eq!((publication.leases(), publication.deliveries()), (1, 1));
    assert_eq!(attached.len(), tensors.len());
    for ((name, tensor), (found, copy)) in tensors.iter().zip(attached.iter()) {
        assert_eq!(found, *name);
        assert_eq!((copy.dtype(), copy.shape()), (tensor.dtype(), tensor.shape()), "{name}");
        assert!(copy.device().is_host() && !copy.is_writable());
        let copied = copy.to_host().unwrap();
        assert_eq!(copied.as_bytes().unwrap(), tensor.pack().unwrap().as_bytes().unwrap(), "{name}");
        // SAFETY: the publication is read-only, and nothing writes the tensors in this test.
        let shared = unsafe { copy.share() }.unwrap();
        assert_eq!(shared.as_bytes().unwrap(), copied.as_bytes().unwrap(), "{name}");
        assert!(!shared.is_writable());
    }
    let error = attached.get("missing").unwrap_err();
    assert!(error.fact().contains("\"missing\"") && error.fact().ends_with('8'), "{error}");
}

#[test]
fn one_tensor_has_an_empty_name() {
    let publication = publish(&matrix(), &PublishOptions::default()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert_eq!(attached.get("").unwrap().to_host().unwrap().as_slice::<f32>().unwrap()[5], 5.0);
}

#[test]
fn shared_memory_is_published_in_place_and_cannot_be_written_until_the_last_lease_ends() {
    let mut tensor = Tensor::zeros_shared(DType::Int32, &[2, 4]).unwrap();
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [0; 8]);
    tensor.as_mut_slice::<i32>().unwrap().copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let columns = tensor.permute(&[1, 0]).unwrap();
    let publication = publish(&columns, &PublishOptions::new()).unwrap();
    drop(columns);
    let attached = attach_ticket(publication.ticket()).unwrap();
    let first = attached.get("").unwrap();
    assert_eq!((first.shape(), first.strides()), (&[4, 2][..], &[4, 16][..]));
    assert_eq!(first.to_host().unwrap().as_slice::<i32>().unwrap(), [1, 5, 2, 6, 3, 7, 4, 8]);
    assert!(tensor.as_mut_slice::<i32>().is_err());
    drop(publication);
    assert!(tensor.as_mut_slice::<i32>().unwrap_err().fact().contains("another tensor uses the same memory"));
    // SAFETY: the tensor was published as read-only, and the assertion above shows that safe code cannot write it.
    let shared = unsafe { first.share() }.unwrap();
    drop(attached);
    assert!(tensor.as_mut_slice::<i32>().is_err(), "`shared` holds the lease");
    assert_eq!(shared.select(0, 3).unwrap().to_vec::<i32>().unwrap(), [4, 8]);
    drop(shared);
    wait_until("the lease has ended", || tensor.as_mut_slice::<i32>().is_ok());
}

#[test]
fn attached_memory_is_published_again_under_its_lease() {
    let publication = publish(&matrix(), &PublishOptions::new()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    // SAFETY: the publication is read-only, and its copy has no other users.
    let shared = unsafe { attached.get("").unwrap().share() }.unwrap();
    let again = publish(&shared, &PublishOptions::new()).unwrap();
    drop((attached, shared));
    let second = attach_ticket(again.ticket()).unwrap();
    assert_eq!(second.get("").unwrap().to_host().unwrap().as_slice::<f32>().unwrap()[4], 4.0);
    drop(second);
    drop(again);
    wait_until("the first lease has ended", || publication.leases() == 0);
}

#[test]
fn consumers_of_a_writable_publication_see_each_others_writes() {
    let source = matrix();
    // SAFETY: the tensor is published as a copy, and consumers write only its elements.
    let publication = unsafe { publish_writable(&source, &PublishOptions::new()) }.unwrap();
    let (first, second) =
        (attach_ticket(publication.ticket()).unwrap(), attach_ticket(publication.ticket()).unwrap());
    // SAFETY: nothing else accesses the elements until the end of the block.
    unsafe {
        let mut tensor = first.get("").unwrap().share_mut().unwrap();
        tensor.as_mut_slice::<f32>().unwrap()[1] = 41.0;
    }
    assert_eq!(second.get("").unwrap().to_host().unwrap().as_slice::<f32>().unwrap()[..2], [0.0, 41.0]);
    assert_eq!(source.as_slice::<f32>().unwrap()[1], 1.0);
    // SAFETY: as above.
    let named = unsafe { publish_named_writable([("x", &source)], &PublishOptions::new()) }.unwrap();
    assert!(attach_ticket(named.ticket()).unwrap().get("x").unwrap().is_writable());
    let read_only = publish(&source, &PublishOptions::new()).unwrap();
    let attached = attach_ticket(read_only.ticket()).unwrap();
    // SAFETY: it fails.
    let error = unsafe { attached.get("").unwrap().share_mut() }.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.hint().unwrap().contains("to_host()"));
}

#[test]
fn tied_tensors_become_one_copy() {
    let (tied, other) = (matrix(), matrix());
    let items = [("a", &tied), ("b", &tied), ("c", &other)];
    let publication = publish_named(items, &PublishOptions::new()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    let address = |name: &str| {
        // SAFETY: the publication is read-only, and its copies have no other users.
        let tensor = unsafe { attached.get(name).unwrap().share() }.unwrap();
        tensor.as_bytes().unwrap().as_ptr()
    };
    assert_eq!(address("a"), address("b"));
    assert_ne!(address("a"), address("c"));
}

#[test]
fn refusals_have_a_kind_and_a_hint() {
    let tensor = matrix();
    let error = publish_named([("x", &tensor), ("x", &tensor)], &PublishOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.fact().contains("\"x\"") && error.hint().is_some(), "{error}");

    let publication = publish(&tensor, &PublishOptions::new()).unwrap();
    let ticket = publication.ticket().clone();
    assert_eq!(ticket.process(), std::process::id());
    assert_eq!(Ticket::from_bytes(&ticket.to_bytes()).unwrap(), ticket);
    assert!(!format!("{ticket} {ticket:?}").contains(&ticket.to_text()[30..]));
    drop(publication);
    let error = attach_ticket(&ticket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.hint().unwrap().contains("keep the publication alive"), "{error}");

    let publication = publish(&tensor, &PublishOptions::new().once()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    let error = attach_ticket(publication.ticket()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TicketRejected);
    assert!(error.fact().contains("one consumer"), "{error}");
    drop(attached);

    let publication = publish(&tensor, &PublishOptions::new().timeout(Duration::ZERO)).unwrap();
    let error = attach_ticket(publication.ticket()).unwrap_err();
    assert!(error.fact().ends_with("has expired"), "{error}");
}

#[cfg(feature = "files")]
#[test]
fn elements_in_the_other_byte_order_arrive_in_native_order() {
    let folder = std::env::temp_dir().join(format!("tensorferry-share-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("swapped.npy");
    let header = format!("{:<117}\n", "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend([1, 2, 0, 3]);
    std::fs::write(&path, bytes).unwrap();
    let tensor = TensorFile::open(&path).unwrap().entry("").unwrap().read().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let publication = publish(&tensor, &PublishOptions::new()).unwrap();
    let attached = attach_ticket(publication.ticket()).unwrap();
    assert_eq!(attached.get("").unwrap().to_host().unwrap().as_slice::<i16>().unwrap(), [0x102, 3]);
}

#[cfg(feature = "cuda")]
mod gpu {
    use super::*;
    use tensorferry::DeviceKind;

    #[test]
    fn gpu_tensors_arrive_on_their_gpu() {
        let tensor = matrix().to_gpu(1).unwrap();
        let view = tensor.permute(&[1, 0]).unwrap();
        let items = [("dense", &tensor), ("transposed", &view)];
        let publication = publish_named(items, &PublishOptions::new()).unwrap();
        let attached = attach_ticket(publication.ticket()).unwrap();
        let dense = attached.get("dense").unwrap();
        assert_eq!((dense.device().kind, dense.device().index), (DeviceKind::Cuda, 1));
        assert_eq!(dense.to_host().unwrap().as_slice::<f32>().unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let transposed = attached.get("transposed").unwrap();
        // SAFETY: the publication is read-only, and its copies have no other users.
        let shared = unsafe { transposed.share() }.unwrap();
        assert!(shared.as_bytes().is_err() && shared.device() == dense.device());
        let again = publish(&shared, &PublishOptions::new()).unwrap();
        drop((attached, shared, publication));
        let second = attach_ticket(again.ticket()).unwrap();
        let values = second.get("").unwrap().to_host().unwrap();
        assert_eq!(values.as_slice::<f32>().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }
}

#[test]
fn files_are_read_into_memory_that_is_published_in_place() {
    let folder = Folder::new();
    let path = folder.file("model.npz");
    let tensors = [
        ("small", dense(DType::Int16, &[3, 5])),
        ("large", dense(DType::UInt8, &[17 << 20])),
        ("empty", dense(DType::Float32, &[0, 2])),
        ("scalar", dense(DType::BFloat16, &[])),
    ];
    save(&path, tensors.iter().map(|(name, tensor)| (*name, tensor))).unwrap();
    let file = TensorFile::open(&path).unwrap();
    for (name, expected) in &tensors {
        let mut read = file.entry(name).unwrap().read_shared().unwrap();
        assert_eq!((read.dtype(), read.shape()), (expected.dtype(), expected.shape()), "{name}");
        assert_eq!(read.as_bytes().unwrap(), expected.as_bytes().unwrap(), "{name}");
        assert!(read.as_bytes_mut().is_ok(), "{name}");
        let publication = publish(&read, &PublishOptions::new()).unwrap();
        // Memory that is published in place has another handle.
        assert_eq!(read.as_bytes_mut().is_err(), !read.is_empty(), "{name}");
        let attached = attach_ticket(publication.ticket()).unwrap();
        assert_eq!(attached.get("").unwrap().to_host().unwrap().as_bytes(), expected.as_bytes(), "{name}");
    }
}

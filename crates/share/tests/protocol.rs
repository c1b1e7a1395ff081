//! The protocol: messages decode again, and any other bytes are an error or another message, never a panic.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use proptest::prelude::*;
use tensorferry_core::{Access, DType, ErrorKind, Layout};
use tensorferry_share::protocol::*;

fn describe(memory: u32, offset: u64, dtype: DType, shape: &[i64], strides: &[i64]) -> TensorDescription {
    TensorDescription {
        memory,
        offset,
        dtype,
        layout: Layout::strided(dtype.size(), shape, strides).unwrap(),
    }
}

fn reply(memories: &[u64], tensors: Vec<TensorDescription>) -> Reply {
    let memories = memories.iter().map(|&bytes| MemoryDescription::host(bytes)).collect();
    let structure = b"tree".to_vec();
    Reply::Delivery(Delivery { access: Access::ReadOnly, gpus: vec![], memories, tensors, structure })
}

fn body(reply: &Reply) -> Vec<u8> {
    let message = reply.write().unwrap();
    let (head, body) = message.split_first_chunk::<HEADER_BYTES>().unwrap();
    assert_eq!(read_header(head, FrameKind::Reply).unwrap(), body.len());
    body.to_vec()
}

fn fact(bytes: &[u8]) -> String {
    let error = Reply::read(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidTensor);
    assert!(error.hint().is_some());
    error.fact().to_owned()
}

#[test]
fn requests_read_back() {
    let request = AttachRequest { id: [1; 16], secret: [2; 16] };
    let bytes: [u8; REQUEST_BYTES] = request.write().try_into().unwrap();
    assert_eq!(AttachRequest::read(&bytes).unwrap(), request);
    for index in 0..HEADER_BYTES {
        let mut invalid = bytes;
        invalid[index] ^= 1;
        assert!(AttachRequest::read(&invalid).is_err(), "{index}");
    }
}

#[test]
fn invalid_headers() {
    let whole = reply(&[64], vec![]).write().unwrap();
    let head: [u8; HEADER_BYTES] = *whole.first_chunk().unwrap();
    let fact = |change: fn(&mut [u8; HEADER_BYTES]), kind| {
        let mut head = head;
        change(&mut head);
        read_header(&head, kind).unwrap_err().fact().to_owned()
    };
    assert!(
        fact(|head| head[0] = b'X', FrameKind::Reply).contains("does not speak the tensorferry protocol")
    );
    assert!(fact(|head| head[4] = 1, FrameKind::Reply).contains("speaks protocol version 1"));
    assert!(fact(|_| (), FrameKind::Request).contains("kind 2, expected 1"));
    assert!(fact(|head| head[8..].fill(0xff), FrameKind::Reply).contains("body of 4294967295 bytes"));
    assert!(fact(|head| head[8..].fill(0), FrameKind::Reply).contains("body of 0 bytes"));
}

#[test]
fn rejections_read_back() {
    for reason in RejectReason::ALL {
        let rejection = Reply::Rejection { reason, text: "no, weil nein: ä".into() };
        assert_eq!(Reply::read(&body(&rejection)).unwrap(), rejection);
    }
    let long = Reply::Rejection { reason: RejectReason::Used, text: "ä".repeat(4000) };
    let Reply::Rejection { text, .. } = Reply::read(&body(&long)).unwrap() else { panic!("not a rejection") };
    assert_eq!(text, "ä".repeat(256));
    assert!(fact(&[1, 99, 0, 0]).contains("unknown reject reason 99"));
    assert!(fact(&[1, 1, 1, 0, 0xff]).contains("not UTF-8"));
    assert!(fact(&[7]).contains("unknown reply status 7"));
}

#[test]
fn elements_outside_their_memory() {
    let fits = [
        describe(0, 0, DType::Float32, &[16], &[4]),
        describe(0, 60, DType::Float32, &[16], &[-4]),
        describe(0, 60, DType::Float32, &[], &[]),
        describe(0, 0, DType::Float32, &[1 << 40], &[0]),
        describe(0, 64, DType::Float64, &[0, 5], &[i64::MAX, i64::MIN]),
        describe(1, 1, DType::UInt8, &[1], &[1 << 50]),
    ];
    let good = reply(&[64, 2], fits.to_vec());
    assert_eq!(Reply::read(&body(&good)).unwrap(), good);
    let outside = [
        describe(0, 1, DType::Float32, &[16], &[4]),
        describe(0, 56, DType::Float32, &[16], &[-4]),
        describe(0, 61, DType::Float32, &[], &[]),
        describe(0, 65, DType::Float64, &[0], &[8]),
        describe(0, u64::MAX, DType::UInt8, &[1], &[1]),
        describe(0, 0, DType::UInt8, &[i64::MAX], &[1]),
        describe(1, 0, DType::UInt8, &[2, 2], &[1, 1]),
    ];
    for tensor in outside {
        let error = reply(&[64, 2], vec![tensor.clone()]).write().unwrap_err();
        assert!(error.fact().contains("does not fit"), "{tensor:?}");
        // The reader checks as well: the tensor fits into larger memory, whose length is then changed.
        let (low, high) = tensor.layout.extent();
        if tensor.offset < 1 << 40 && high < 1 << 40 && tensor.offset.checked_add_signed(low).is_some() {
            let mut bytes = body(&reply(&[1 << 41, 1 << 41], vec![tensor]));
            bytes[11..19].copy_from_slice(&64u64.to_le_bytes());
            bytes[20..28].copy_from_slice(&2u64.to_le_bytes());
            assert!(fact(&bytes).contains("does not fit"));
        }
    }
    let error = reply(&[64], vec![describe(1, 0, DType::UInt8, &[], &[])]).write().unwrap_err();
    assert_eq!(error.fact(), "a tensor is in memory 1, but the reply lists 1 memories");
}

#[test]
fn counts_over_the_limit_allocate_nothing() {
    for count in [1u32, 4097, u32::MAX] {
        let mut bytes = vec![0, 1];
        bytes.extend(count.to_le_bytes());
        assert!(fact(&bytes).contains("exceed the limit"), "{count}");
        for zeros in [4, 8] {
            let mut bytes = vec![0, 1];
            bytes.extend(vec![0; zeros]);
            bytes.extend(count.to_le_bytes());
            assert!(fact(&bytes).contains("exceed the limit"), "{count}");
        }
    }
    let mut bytes = body(&reply(&[64], vec![describe(0, 0, DType::UInt8, &[1], &[1])]));
    bytes[37..39].copy_from_slice(&2000u16.to_le_bytes());
    assert!(fact(&bytes).contains("2000 dimensions exceed the limit of 1024"));
    bytes[35] = 99;
    assert!(fact(&bytes).contains("unknown element type 99 of 8 bits"));
    let tensors = vec![describe(0, 0, DType::UInt8, &[], &[]); 5];
    let (access, memories) = (Access::ReadWrite, vec![MemoryDescription::host(1); 4097]);
    let many = Delivery { access, gpus: vec![], memories, tensors, structure: vec![] };
    assert!(Reply::Delivery(many).write().is_err());
    let gpus = (0..65).map(|index| GpuDescription { uuid: [index; 16], event: None }).collect();
    let many = Delivery { access, gpus, memories: vec![], tensors: vec![], structure: vec![] };
    assert!(Reply::Delivery(many).write().is_err());
}

/// Two GPUs, one with an event, and a memory of every kind.
fn gpu_delivery(access: Access) -> Delivery {
    let gpus = vec![
        GpuDescription { uuid: [1; 16], event: None },
        GpuDescription { uuid: [2; 16], event: Some([3; 64]) },
    ];
    let on_gpu = |bytes, gpu, export| MemoryDescription {
        bytes,
        location: MemoryLocation::Gpu { gpu, id: [bytes as u8; 16], export },
    };
    let mut memories = vec![on_gpu(64, 1, ExportDescription::Descriptor), MemoryDescription::host(64)];
    if access == Access::ReadWrite {
        memories.extend([
            on_gpu(32, 0, ExportDescription::Legacy([4; 64])),
            on_gpu(16, 1, ExportDescription::Descriptor),
        ]);
    }
    let last = memories.len() as u32 - 1;
    let tensors = vec![describe(last, 4, DType::Float32, &[3], &[4])];
    Delivery { access, gpus, memories, tensors, structure: vec![] }
}

#[test]
fn memory_of_gpus() {
    for access in [Access::ReadOnly, Access::ReadWrite] {
        let good = gpu_delivery(access);
        let needed: Vec<bool> = good.memories.iter().map(MemoryDescription::has_descriptor).collect();
        assert_eq!(needed, [true, true, false, true][..needed.len()]);
        let good = Reply::Delivery(good);
        assert_eq!(Reply::read(&body(&good)).unwrap(), good);
    }
    let whole = body(&Reply::Delivery(gpu_delivery(Access::ReadWrite)));
    let fact = |at: usize, value: u8| {
        let mut bytes = whole.clone();
        bytes[at] = value;
        fact(&bytes)
    };
    // Offsets: status, access, number of GPUs; 17 bytes of the first GPU, 81 of the second; number of memories; kind,
    // length and GPU of the first memory.
    assert!(fact(2 + 4 + 16, 2).contains("unknown event flag 2"));
    let memories = 2 + 4 + 17 + 81 + 4;
    assert_eq!(whole[memories], 1);
    assert!(fact(memories, 3).contains("unknown memory kind 3"));
    assert!(fact(memories + 9, 2).contains("on GPU 2, but the reply lists 2 GPUs"));
    assert!(fact(1, 0).contains("cannot be protected as read-only"));
    let mut twice = gpu_delivery(Access::ReadWrite);
    twice.gpus[0].uuid = [2; 16];
    assert!(Reply::read(&body(&Reply::Delivery(twice))).unwrap_err().fact().contains("a GPU twice"));
    let mut nowhere = gpu_delivery(Access::ReadWrite);
    nowhere.gpus.pop();
    assert!(
        Reply::Delivery(nowhere).write().unwrap_err().fact().contains("on GPU 1, but the reply lists 1 GPUs")
    );
    let mut outside = gpu_delivery(Access::ReadWrite);
    outside.tensors[0].offset = 5;
    assert!(Reply::Delivery(outside).write().unwrap_err().fact().contains("does not fit into memory of 16"));
}

fn any_reply() -> impl Strategy<Value = Reply> {
    let tensor =
        (0usize..DType::COUNT, proptest::collection::vec((0i64..4, -20i64..20), 0..5), 0u32..3, 0u64..64);
    let tensors = proptest::collection::vec(tensor, 0..6);
    // Three memories, each on the host or on one of two GPUs.
    let location = (0u8..4, 0u32..2, any::<[u8; 16]>(), any::<u8>());
    let locations = proptest::collection::vec(location, 3..4);
    let events = (any::<bool>(), any::<bool>());
    (tensors, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..40), locations, events).prop_map(
        |(tensors, writable, structure, locations, events)| {
            let tensors = tensors.into_iter().map(|(dtype, dims, memory, offset)| {
                let dtype = DType::all().nth(dtype).unwrap();
                let (shape, strides): (Vec<i64>, Vec<i64>) = dims.into_iter().unzip();
                describe(memory, 1000 + offset, dtype, &shape, &strides)
            });
            let access = if writable { Access::ReadWrite } else { Access::ReadOnly };
            let memories =
                locations.into_iter().zip([4096, 8192, 3000]).map(|((kind, gpu, id, byte), bytes)| {
                    let export = match kind {
                        0 => return MemoryDescription::host(bytes),
                        2 if writable => ExportDescription::Legacy([byte; 64]),
                        _ => ExportDescription::Descriptor,
                    };
                    MemoryDescription { bytes, location: MemoryLocation::Gpu { gpu, id, export } }
                });
            let gpus = vec![
                GpuDescription { uuid: [7; 16], event: events.0.then_some([8; 64]) },
                GpuDescription { uuid: [9; 16], event: events.1.then_some([1; 64]) },
            ];
            let (memories, tensors) = (memories.collect(), tensors.collect());
            Reply::Delivery(Delivery { access, gpus, memories, tensors, structure })
        },
    )
}

proptest! {
    #[test]
    fn replies_read_back(reply in any_reply()) {
        prop_assert_eq!(&Reply::read(&body(&reply)).unwrap(), &reply);
    }

    #[test]
    fn truncated_replies_are_rejected(reply in any_reply()) {
        let whole = body(&reply);
        for length in 0..whole.len() {
            prop_assert!(Reply::read(&whole[..length]).is_err());
        }
        prop_assert!(Reply::read(&[&whole[..], &[0]].concat()).is_err());
    }

    #[test]
    fn mutations_are_errors_or_messages(
        reply in any_reply(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = body(&reply);
        for (index, value) in changes {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        if let Ok(read) = Reply::read(&bytes) {
            prop_assert_eq!(body(&read), bytes);
            if let Reply::Delivery(delivery) = read {
                for tensor in delivery.tensors {
                    let (low, high) = tensor.layout.extent();
                    let length = i128::from(delivery.memories[tensor.memory as usize].bytes);
                    prop_assert!(i128::from(tensor.offset) + i128::from(low) >= 0);
                    prop_assert!(i128::from(tensor.offset) + i128::from(high) <= length);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_a_message(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(read) = Reply::read(&bytes) {
            prop_assert_eq!(body(&read), bytes);
        }
    }
}

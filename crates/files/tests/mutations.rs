//! Thousands of mutated files: none may make a reader panic, read out of bounds, or allocate memory out of proportion to the
//! size of the file. The seeds are fixed, so that a failure can be repeated.
//!
//! The fuzz targets in `fuzz/` do the same for longer, guided by coverage.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Folder, mapped_bytes, memory_file};
use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_core::DType;
use tensorferry_files::{
    Dialect, FileFormat, FileWriter, MapMode, OpenOptions, TensorSpec, WriteOptions, open_file,
};

/// Records the largest allocation.
struct RecordingAllocator;

static LARGEST_ALLOCATION_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: `GlobalAlloc` needs memory of the layout that no other allocation has, and no unwinding. `System` provides
// both, and counting does not unwind.
unsafe impl GlobalAlloc for RecordingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST_ALLOCATION_BYTES.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: `alloc` needs a layout whose size is not zero, which is the contract of this function too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `dealloc` needs a pointer and the layout with which `System` allocated it. `alloc` above forwards each
        // layout unchanged, and the caller passes both unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: RecordingAllocator = RecordingAllocator;

/// A pseudo-random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % bound.max(1)
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'9', b'"', b'{'][random.below(8)],
            3 => bytes.insert(at, random.below(256) as u8),
            4 if !bytes.is_empty() => drop(bytes.remove(at)),
            5 if bytes.len() > at + 8 => {
                let value = [0, 1, u64::MAX, 1 << 63, 1 << 32, 0xffff_ffff, 100_000_000][random.below(7)];
                let width = [2, 4, 8][random.below(3)];
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            6 => {
                let (from, count) = (random.below(bytes.len()), random.below(40));
                let copied = bytes[from..bytes.len().min(from + count)].to_vec();
                bytes.splice(at..at, copied);
            }
            // Replacing digits by digits keeps headers parseable.
            _ => {
                if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
                    bytes[at + digit] = b'0' + random.below(10) as u8;
                }
            }
        }
    }
}

/// Opens the bytes and reads every tensor. Returns whether they were accepted.
fn open_and_read(name: &str, bytes: &[u8], options: &OpenOptions) -> bool {
    LARGEST_ALLOCATION_BYTES.store(0, Ordering::Relaxed);
    let opened = open_file(memory_file(bytes), Path::new(name), options);
    let largest = LARGEST_ALLOCATION_BYTES.load(Ordering::Relaxed);
    assert!(
        largest <= (1 << 20).max(bytes.len() * 16),
        "{largest} bytes at once for a file of {}",
        bytes.len()
    );
    let Ok(opened) = opened else { return false };
    for entry in opened.entries() {
        assert!(entry.layout().unwrap().bytes() as u64 == entry.bytes());
        if entry.is_stored() && opened.format() != FileFormat::SafetensorsIndex {
            assert!(entry.offset().unwrap() + entry.bytes() <= bytes.len() as u64);
        }
        if entry.bytes() > 1 << 24 {
            continue;
        }
        let mut out = vec![MaybeUninit::new(0u8); entry.bytes() as usize];
        let _ = opened.read_into(entry, &mut out, 1);
        for kind in [MapMode::ReadOnly, MapMode::CopyOnWrite] {
            if let Ok(mapped) = opened.map(entry, kind) {
                let seen = mapped_bytes(&mapped);
                assert_eq!(seen.len() as u64, entry.bytes());
                std::hint::black_box(seen.iter().fold(0u8, |sum, byte| sum ^ byte));
            }
        }
    }
    true
}

fn written(format: FileFormat, specs: &[TensorSpec], options: WriteOptions) -> Vec<u8> {
    let folder = Folder::new();
    let mut writer = FileWriter::create(folder.path("x"), format, specs, options).unwrap();
    for (number, spec) in specs.iter().enumerate() {
        writer.write_tensor(number, &vec![number as u8; spec.layout().unwrap().bytes()]).unwrap();
    }
    writer.finish().unwrap();
    std::fs::read(folder.path("x")).unwrap()
}

/// Opens two thousand mutations of each seed.
fn check_mutations(name: &str, seeds: &[Vec<u8>], options: &OpenOptions) {
    let mut random = Random(0x7e4507);
    for seed in seeds {
        assert!(open_and_read(name, seed, options), "the seed itself");
        for _ in 0..2000 {
            let mut bytes = seed.clone();
            mutate(&mut bytes, &mut random);
            open_and_read(name, &bytes, options);
        }
    }
}

fn several_specs() -> Vec<TensorSpec> {
    vec![
        TensorSpec::new("a", DType::Float32, &[2, 3]),
        TensorSpec::new("b/c", DType::Complex128, &[2]),
        TensorSpec::new("d", DType::Int8, &[]),
        TensorSpec::new("e", DType::BFloat16, &[0, 4]),
    ]
}

fn options(format: FileFormat) -> OpenOptions {
    OpenOptions { format: Some(format), ..OpenOptions::default() }
}

// One test for all formats, because allocations of concurrent tests would be recorded too.
#[test]
fn mutated_files_are_read_safely() {
    let default = WriteOptions::default;
    let npy: Vec<_> = several_specs()
        .iter()
        .map(|spec| written(FileFormat::Npy, std::slice::from_ref(spec), default()))
        .collect();
    check_mutations("x.npy", &npy, &options(FileFormat::Npy));
    let deflate = WriteOptions { compression: Some(6), ..default() };
    let npz = [
        written(FileFormat::Npz, &several_specs(), default()),
        written(FileFormat::Npz, &several_specs(), deflate),
    ];
    check_mutations("x.npz", &npz, &options(FileFormat::Npz));
    let metadata = WriteOptions { metadata: vec![("k".to_owned(), "v".to_owned())], ..default() };
    let safetensors = [
        written(FileFormat::Safetensors, &several_specs(), metadata),
        written(FileFormat::Safetensors, &[], default()),
    ];
    check_mutations("x.safetensors", &safetensors, &options(FileFormat::Safetensors));
    let mut protos = vec![
        // TensorFlow: int32 of shape 5 from two values; ONNX: two doubles, not packed.
        b"\x08\x03\x12\x04\x12\x02\x08\x05\x3a\x02\x01\x02".to_vec(),
        b"\x08\x02\x10\x0b\x51\0\0\0\0\0\0\xf0\x3f\x51\0\0\0\0\0\0\xf0\x3f".to_vec(),
    ];
    for dialect in [Dialect::Onnx, Dialect::TensorFlow] {
        let spec = TensorSpec::new("x", DType::Float32, &[2, 3]);
        protos.push(written(FileFormat::TensorProto, &[spec], WriteOptions { dialect, ..default() }));
    }
    check_mutations("x.pb", &protos, &options(FileFormat::TensorProto));

    let folder = Folder::new();
    folder.put("1.safetensors", &safetensors[0]);
    let path = folder.path("x.json");
    let index = br#"{"metadata": {"total_size": 60}, "weight_map": {"a": "1.safetensors", "d": "1.safetensors", "e": "1.safetensors", "b/c": "1.safetensors"}}"#;
    folder.put("x.json", index);
    check_mutations(path.to_str().unwrap(), &[index.to_vec()], &options(FileFormat::SafetensorsIndex));
}

//! The contents of a header take no more memory than the trial allocation before they are parsed.

mod common;

use common::Folder;
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use tensorferry_files::{OpenOptions, open};

/// Records the peak of the memory in use.
struct RecordingAllocator;

static USED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// What the C library takes for an allocation.
fn chunk_bytes(bytes: usize) -> usize {
    (bytes + 8).next_multiple_of(16).max(32)
}

fn record_allocation(bytes: usize) {
    let used = USED_BYTES.fetch_add(chunk_bytes(bytes), Ordering::Relaxed) + chunk_bytes(bytes);
    PEAK_BYTES.fetch_max(used, Ordering::Relaxed);
}

fn record_release(bytes: usize) {
    USED_BYTES.fetch_sub(chunk_bytes(bytes), Ordering::Relaxed);
}

// SAFETY: `GlobalAlloc` needs memory of the layout that no other allocation has, and no unwinding. `System` provides
// both, and counting does not unwind.
unsafe impl GlobalAlloc for RecordingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record_allocation(layout.size());
        // SAFETY: `alloc` needs a layout whose size is not zero, which is the contract of this function too.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        record_release(layout.size());
        // SAFETY: `dealloc` needs a pointer and the layout with which `System` allocated it. `alloc` above forwards each
        // layout unchanged, and the caller passes both unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // The C library moves the pages of a large block, and never has both.
        record_release(layout.size());
        record_allocation(bytes);
        // SAFETY: `realloc` needs a pointer, the layout with which `System` allocated it, and a size that is not zero. The
        // caller passes all three, which are forwarded unchanged.
        unsafe { System.realloc(pointer, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: RecordingAllocator = RecordingAllocator;

/// One more than a power of two, so that lists have just doubled.
const COUNT: usize = (1 << 15) + 1;

/// Names of up to three letters.
fn name(number: usize) -> String {
    let letters = [number % 32, number / 32 % 32, number / 1024].map(|digit| (b'@' + digit as u8) as char);
    letters.iter().collect::<String>().replace('\\', "-")
}

fn members(member: impl Fn(usize) -> String) -> String {
    (0..COUNT).map(member).collect::<Vec<_>>().join(",")
}

/// A zip of stored members, and the size of its directory.
fn zip(count: usize, extension: &str, extra: &[u8]) -> (Vec<u8>, usize) {
    let data = b"\x93NUMPY\x01\0\x33\0{'descr':'|u1','fortran_order':False,'shape':(0,)} ";
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for number in 0..count {
        let name = name(number) + extension;
        let start = file.len() as u32;
        let mut header = vec![20, 0, 0, 8, 0, 0, 0, 0, 0x21, 0];
        header.extend(0u32.to_le_bytes());
        header.extend([(data.len() as u32).to_le_bytes(); 2].concat());
        header.extend((name.len() as u16).to_le_bytes());
        header.extend((extra.len() as u16).to_le_bytes());
        file.extend([b"PK\x03\x04", &header[..], name.as_bytes(), extra, data].concat());
        directory.extend([b"PK\x01\x02\x14\0", &header[..]].concat());
        directory.extend([0; 10]);
        directory.extend(start.to_le_bytes());
        directory.extend([name.as_bytes(), extra].concat());
    }
    let (start, bytes) = (file.len() as u32, directory.len());
    file.extend(directory);
    file.extend(b"PK\x05\x06\0\0\0\0");
    file.extend([(count as u16).to_le_bytes(); 2].concat());
    file.extend((bytes as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    (file, bytes)
}

/// Opens a file, and checks the memory that this takes. Returns how many tensors and other entries it lists; 0 if it is invalid.
fn check(path: &Path, header_bytes: usize) -> usize {
    let before = USED_BYTES.load(Ordering::Relaxed);
    PEAK_BYTES.store(before, Ordering::Relaxed);
    let opened = open(path, &OpenOptions::default());
    let peak = PEAK_BYTES.load(Ordering::Relaxed) - before;
    // The constant is that of `header_memory`, and buffers take the rest.
    let limit = 32 * header_bytes + (256 << 10);
    assert!(peak <= limit, "{peak} bytes for {header_bytes} of {}", path.display());
    opened.map_or(0, |opened| opened.entries().len() + opened.skipped().len())
}

// One test for all formats, because allocations of concurrent tests would be recorded too.
#[test]
fn contents_of_a_header_take_a_multiple_of_its_size() {
    let folder = Folder::new();
    let named = |value: &'static str| members(move |number| format!("\"{}\":{value}", name(number)));
    let repeated = |member: &str| [member].repeat(COUNT).join(",");
    let metadata = |members: String| format!("{{\"__metadata__\":{{{members}}}}}");
    let dtypes = members(|number| format!("\\\"{}\\\":\\\"\\\"", name(number)));
    let headers = [
        metadata(repeated("\"\":\"\"")),
        metadata(repeated("\"a\":\"b\"")),
        metadata(named("\"\"")),
        metadata(format!("\"tensorferry.dtypes\":\"{{{dtypes}}}\"")),
        format!("{{{}}}", repeated("\"\":[\"U8\",[],[0,0]]")),
        format!("{{{}}}", named("[\"U8\",[0],[0,0]]")),
        format!("{{{}}}", named("[\"F4\",[0],[0,0]]")),
        format!("{{\"\":[\"U8\",[{}],[0,0]]}}", repeated("1")),
        format!("{{\"{}\":[\"U8\",[0],[0,0]]}}", "\\n".repeat(COUNT)),
    ];
    for (number, header) in headers.iter().enumerate() {
        let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
        let count = check(&folder.put(&format!("{number}.safetensors"), &file), header.len());
        assert_eq!(count, [0, 0, 0, 0, 0, COUNT, COUNT, 0, 1][number]);
    }
    let (u8s, f4s) = (headers[5].len(), headers[6].len());
    for (index, shard_header_bytes) in [
        (format!("{{\"metadata\":{{{}}},\"weight_map\":{{}}}}", repeated("\"\":0")), 0),
        (format!("{{\"metadata\":{{{}}},\"weight_map\":{{}}}}", repeated("\"a\":0")), 0),
        (format!("{{\"weight_map\":{{{}}}}}", repeated("\"a\":\"b\"")), 0),
        (format!("{{\"weight_map\":{{{}}}}}", named("\"5.safetensors\"")), u8s),
        (format!("{{\"weight_map\":{{{}}}}}", named("\"6.safetensors\"")), f4s),
    ] {
        let path = folder.put("x.safetensors.index.json", index.as_bytes());
        let count = check(&path, index.len() + shard_header_bytes);
        assert_eq!(count, if shard_header_bytes > 0 { COUNT } else { 0 });
    }
    for extra in [&[][..], &[0; 4], &[0; 400]] {
        for extension in ["", ".npy"] {
            let (file, header_bytes) = zip(COUNT - 2, extension, extra);
            assert_eq!(check(&folder.put("x.npz", &file), header_bytes), COUNT - 2);
        }
    }
}

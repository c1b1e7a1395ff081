//! Structs of the Arrow C data interface from arbitrary bytes.
//!
//! The interface has no sizes of buffers, strings and lists of pointers, so that a consumer has to trust a producer there: what is
//! declared exists here, and buffers are exactly as large as the format needs. Everything else may be wrong: counts, lengths,
//! offsets, formats, null pointers, offsets of lists, codes of dictionaries.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::rc::Rc;
use tensorferry_arrow::abi::{ArrowArray, ArrowSchema};

const FORMATS: [&str; 32] = [
    "n", "b", "c", "C", "s", "S", "i", "I", "l", "L", "e", "f", "g", "+s", "+s", "+l", "+l", "+L", "+w:2", "+w:3", "+w:0",
    "+w:2147483647", "+w:-1", "tdD", "tdm", "tts", "ttn", "tsu:UTC", "tDm", "u", "+vl", "d:19,10",
];
const EXTENSIONS: [&str; 5] =
    ["arrow.bool8", "arrow.fixed_shape_tensor", "tensorferry.bfloat16", "tensorferry.float8_e4m3fn", "other"];
const TENSOR_METADATA: [&str; 5] =
    ["{\"shape\":[2]}", "{\"shape\":[1,2],\"permutation\":[1,0]}", "{\"shape\":[3,1]}", "{\"shape\":[-1,-2]}", "{"];
const LENGTHS: [i64; 8] = [-1, i64::MIN, i64::MAX, 1 << 43, (1 << 43) + 1, 1 << 62, i32::MAX as i64, -7];
/// The deepest nesting, beyond the limit of the library.
const MAX_LEVELS: usize = 70;
/// The limit of nodes of a column.
const MAX_NODES: usize = 200;

/// Bytes that decide what is made. At their end, every decision is zero.
pub struct Decisions<'a>(pub &'a [u8]);

impl Decisions<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    /// True in one of `count` cases, and false at the end.
    fn rarely(&mut self, count: u8) -> bool {
        self.byte() % count == count - 1
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    /// A small length, or rarely one that no array has.
    fn length(&mut self) -> i64 {
        if self.rarely(40) { LENGTHS[self.below(LENGTHS.len())] } else { self.below(20) as i64 }
    }

    fn text(&mut self, usual: &str) -> CString {
        if !self.rarely(30) {
            return CString::new(usual).unwrap_or_default();
        }
        let count = self.below(12);
        CString::new(self.bytes(count).into_iter().filter(|&byte| byte != 0).collect::<Vec<_>>()).unwrap_or_default()
    }
}

/// A column as it will be declared.
pub struct Node {
    format: CString,
    name: CString,
    metadata: Option<Vec<u8>>,
    length: i64,
    offset: i64,
    null_count: i64,
    buffers: Vec<Option<Vec<u8>>>,
    /// The schema of a child, and its array, which may be of another type.
    children: Vec<(Option<Node>, Option<Node>)>,
    dictionary: Option<Box<(Node, Option<Node>)>>,
    is_without_children_pointer: bool,
    is_without_buffers_pointer: bool,
}

/// The bytes that each buffer of a format needs for elements up to `end`; more than enough for unknown formats.
fn buffer_sizes(format: &str, end: usize) -> Vec<usize> {
    let bits = end.div_ceil(8);
    let width = match format {
        "n" => return vec![],
        "b" => return vec![bits, bits],
        "+s" => return vec![bits],
        "+l" => return vec![bits, 4 * (end + 1)],
        "+L" => return vec![bits, 8 * (end + 1)],
        "c" | "C" => 1,
        "s" | "S" | "e" => 2,
        "i" | "I" | "f" | "tdD" | "tts" | "ttm" => 4,
        _ if format.starts_with("+w:") => return vec![bits],
        _ => 8,
    };
    vec![bits, width * end]
}

impl Node {
    /// A column from decisions.
    pub fn new(decisions: &mut Decisions<'_>) -> Self {
        let mut nodes = MAX_NODES;
        Self::below(decisions, MAX_LEVELS, 40, &mut nodes, false)
    }

    /// A column without children, in memory for any format: its schema is another.
    fn of_any_format(decisions: &mut Decisions<'_>, needed: usize, nodes: &mut usize) -> Self {
        Self::below(decisions, 0, needed, nodes, true)
    }

    fn below(
        decisions: &mut Decisions<'_>,
        levels: usize,
        needed: usize,
        nodes: &mut usize,
        is_of_any_format: bool,
    ) -> Self {
        *nodes = nodes.saturating_sub(1);
        let mut usual = FORMATS[decisions.below(FORMATS.len())];
        if (levels == 0 || *nodes == 0) && usual.starts_with('+') {
            usual = "i";
        }
        let format = decisions.text(usual);
        let text = format.to_str().unwrap_or_default().to_owned();
        let (length, offset) = match decisions.rarely(3) {
            true => (decisions.length(), decisions.length()),
            // Enough for the parent, in most cases.
            false => (needed as i64, decisions.below(9) as i64),
        };
        let end = length.checked_add(offset).filter(|_| length >= 0 && offset >= 0);
        let sizes = match end {
            Some(end @ 0..4096) => buffer_sizes(&text, end as usize),
            _ => vec![],
        };
        let mut buffers: Vec<Option<Vec<u8>>> = Vec::new();
        for (index, &size) in sizes.iter().enumerate() {
            let size = if is_of_any_format { 8 * (end.unwrap_or(0) as usize + 1) } else { size };
            let is_null = if index == 0 { decisions.rarely(2) } else { decisions.rarely(40) };
            buffers.push((!is_null).then(|| decisions.bytes(size)));
        }
        // A length without memory: no pointer is valid.
        if end.is_none_or(|end| end >= 4096) {
            buffers = vec![None; buffer_sizes(&text, 0).len()];
        }
        let lists = if text == "+l" { 4 } else { 8 };
        if (text == "+l" || text == "+L") && !decisions.rarely(8) {
            if let Some(Some(offsets)) = buffers.get_mut(1) {
                let mut sum = 0u64;
                for place in offsets.chunks_exact_mut(lists) {
                    sum += decisions.below(4) as u64;
                    place.copy_from_slice(&sum.to_le_bytes()[..lists]);
                }
            }
        }
        if decisions.rarely(40) {
            buffers.push(None);
        }
        let mut children = Vec::new();
        if text.starts_with('+') && levels > 0 {
            let count = match text.as_str() {
                "+s" => decisions.below(4),
                _ if decisions.rarely(40) => decisions.below(3),
                _ => 1,
            };
            let per_element = text.strip_prefix("+w:").and_then(|count| count.parse::<usize>().ok()).unwrap_or(1);
            let elements = end.unwrap_or(0).clamp(0, 60) as usize * per_element.min(4);
            let elements = if text == "+l" || text == "+L" { 200 } else { elements };
            for _ in 0..count {
                let schema = Self::below(decisions, levels - 1, elements, nodes, false);
                let other = decisions.rarely(20).then(|| Self::of_any_format(decisions, elements, nodes));
                children.push((Some(schema), other));
            }
        }
        let dictionary = decisions.rarely(12).then(|| {
            let schema = Self::below(decisions, levels.saturating_sub(1).min(2), 5, nodes, false);
            Box::new((schema, decisions.rarely(20).then(|| Self::of_any_format(decisions, 5, nodes))))
        });
        Self {
            name: decisions.text("x"),
            metadata: decisions.rarely(8).then(|| metadata(decisions)),
            null_count: if decisions.rarely(3) { decisions.length() } else { -1 },
            is_without_children_pointer: decisions.rarely(60),
            is_without_buffers_pointer: decisions.rarely(60),
            format,
            length,
            offset,
            buffers,
            children,
            dictionary,
        }
    }
}

fn metadata(decisions: &mut Decisions<'_>) -> Vec<u8> {
    if decisions.rarely(20) {
        return (-1i32).to_ne_bytes().to_vec();
    }
    let name = EXTENSIONS[decisions.below(EXTENSIONS.len())];
    let value = TENSOR_METADATA[decisions.below(TENSOR_METADATA.len())];
    let value = decisions.text(value);
    let texts = [b"ARROW:extension:name", name.as_bytes(), b"ARROW:extension:metadata", value.as_bytes()];
    let mut bytes = 2i32.to_ne_bytes().to_vec();
    for text in texts {
        bytes.extend((text.len() as i32).to_ne_bytes());
        bytes.extend(text);
    }
    bytes
}

/// How often a struct was released.
pub type Releases = Rc<Cell<usize>>;

/// The memory of a struct and of all structs below it.
struct Memory<T> {
    structs: Vec<Box<T>>,
    pointers: Vec<Vec<*mut T>>,
    buffers: Vec<Vec<*const c_void>>,
    bytes: Vec<Vec<u8>>,
    releases: Releases,
}

impl<T> Memory<T> {
    fn new(releases: &Releases) -> Box<Self> {
        Box::new(Self {
            structs: vec![],
            pointers: vec![],
            buffers: vec![],
            bytes: vec![],
            releases: releases.clone(),
        })
    }

    /// Keeps bytes, in memory of exactly their size.
    fn keep(&mut self, bytes: Vec<u8>) -> *const u8 {
        let mut bytes = bytes;
        bytes.shrink_to_fit();
        self.bytes.push(bytes);
        self.bytes.last().map_or(ptr::null(), |bytes| bytes.as_ptr())
    }

    fn keep_struct(&mut self, kept: Option<T>) -> *mut T {
        let Some(kept) = kept else { return ptr::null_mut() };
        self.structs.push(Box::new(kept));
        self.structs.last_mut().map_or(ptr::null_mut(), |kept| &raw mut **kept)
    }

    fn keep_pointers(&mut self, pointers: Vec<*mut T>) -> *mut *mut T {
        self.pointers.push(pointers);
        self.pointers.last_mut().map_or(ptr::null_mut(), |pointers| pointers.as_mut_ptr())
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: `Node::schema` made the private data of a box, and the struct is released once.
    unsafe { release((*schema).private_data.cast::<Memory<ArrowSchema>>()) };
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: `Node::array` made the private data of a box, and the struct is released once.
    unsafe { release((*array).private_data.cast::<Memory<ArrowArray>>()) };
}

/// # Safety
/// The pointer is that of a box, which nothing uses any more.
unsafe fn release<T>(memory: *mut Memory<T>) {
    // SAFETY: as the contract says.
    let memory = unsafe { Box::from_raw(memory) };
    memory.releases.set(memory.releases.get() + 1);
}

/// The callback of a struct below another, which its parent releases.
unsafe extern "C" fn never<T>(_: *mut T) {
    panic!("a child was released");
}

impl Node {
    /// The schema.
    pub fn schema(&self, releases: &Releases) -> ArrowSchema {
        let mut memory = Memory::new(releases);
        let mut schema = self.schema_in(&mut memory);
        schema.release = Some(release_schema);
        schema.private_data = Box::into_raw(memory).cast();
        schema
    }

    fn schema_in(&self, memory: &mut Memory<ArrowSchema>) -> ArrowSchema {
        let children: Vec<_> = self
            .children
            .iter()
            .map(|(child, _)| {
                let child = child.as_ref().map(|child| child.schema_in(memory));
                memory.keep_struct(child)
            })
            .collect();
        let n_children = children.len() as i64;
        let dictionary = self.dictionary.as_ref().map(|dictionary| dictionary.0.schema_in(memory));
        let mut text = |text: &CString| memory.keep(text.as_bytes_with_nul().to_vec()).cast::<c_char>();
        let (format, name) = (text(&self.format), text(&self.name));
        ArrowSchema {
            format,
            name,
            metadata: self.metadata.clone().map_or(ptr::null(), |bytes| memory.keep(bytes).cast()),
            flags: 2,
            n_children: if self.null_count == -7 { -1 } else { n_children },
            children: match self.is_without_children_pointer {
                true => ptr::null_mut(),
                false => memory.keep_pointers(children),
            },
            dictionary: memory.keep_struct(dictionary),
            release: Some(never::<ArrowSchema>),
            private_data: ptr::null_mut(),
        }
    }

    /// The array.
    pub fn array(&self, releases: &Releases) -> ArrowArray {
        let mut memory = Memory::new(releases);
        let mut array = self.array_in(&mut memory);
        array.release = Some(release_array);
        array.private_data = Box::into_raw(memory).cast();
        array
    }

    fn array_in(&self, memory: &mut Memory<ArrowArray>) -> ArrowArray {
        let children: Vec<_> = self
            .children
            .iter()
            .map(|(child, other)| {
                let child = other.as_ref().or(child.as_ref()).map(|child| child.array_in(memory));
                memory.keep_struct(child)
            })
            .collect();
        let n_children = children.len() as i64;
        let dictionary = self.dictionary.as_ref().map(|pair| pair.1.as_ref().unwrap_or(&pair.0).array_in(memory));
        let buffers: Vec<*const c_void> = self
            .buffers
            .iter()
            .map(|bytes| bytes.clone().map_or(ptr::null(), |bytes| memory.keep(bytes).cast()))
            .collect();
        let n_buffers = buffers.len() as i64;
        memory.buffers.push(buffers);
        ArrowArray {
            length: self.length,
            null_count: self.null_count,
            offset: self.offset,
            n_buffers: if self.null_count == i64::MIN { -1 } else { n_buffers },
            n_children,
            buffers: match (self.is_without_buffers_pointer, memory.buffers.last_mut()) {
                (false, Some(buffers)) => buffers.as_mut_ptr(),
                _ => ptr::null_mut(),
            },
            children: match self.is_without_children_pointer {
                true => ptr::null_mut(),
                false => memory.keep_pointers(children),
            },
            dictionary: memory.keep_struct(dictionary),
            release: Some(never::<ArrowArray>),
            private_data: ptr::null_mut(),
        }
    }
}

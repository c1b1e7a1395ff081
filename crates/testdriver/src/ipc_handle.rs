//! Legacy IPC handles of memory and events.
//!
//! A handle contains the process that made it, the descriptor of a file there, and an offset. Whoever opens the handle opens
//! that file under `/proc`.

/// `CUipcMemHandle` and `CUipcEventHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub(crate) [u8; 64]);

/// What a handle refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum HandleKind {
    Memory = 0x4d54_4454,
    Event = 0x5645_4454,
}

/// The content of a handle.
pub(crate) struct HandleContent {
    pub(crate) process: u32,
    pub(crate) descriptor: i32,
    /// The physical index of the device.
    pub(crate) device: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Ranges that end beyond this offset are rejected.
const MAX_FILE_END: u64 = 1 << 46;

impl HandleContent {
    pub(crate) fn encode(&self, kind: HandleKind) -> IpcHandle {
        let mut bytes = [0; 64];
        let words = [kind as u32, self.process, self.descriptor as u32, self.device];
        for (index, word) in words.iter().enumerate() {
            bytes[index * 4..index * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        IpcHandle(bytes)
    }

    /// The content of a handle of this kind; `None` for other bytes.
    pub(crate) fn decode(IpcHandle(bytes): &IpcHandle, kind: HandleKind) -> Option<Self> {
        let number = |offset: usize, length: usize| {
            (0..length).rev().fold(0, |all, index| all << 8 | u64::from(bytes[offset + index]))
        };
        let content = Self {
            process: number(4, 4) as u32,
            descriptor: number(8, 4) as i32,
            device: number(12, 4) as u32,
            offset: number(16, 8),
            bytes: number(24, 8),
        };
        let is_in_range = content.offset.checked_add(content.bytes).is_some_and(|end| end < MAX_FILE_END);
        (number(0, 4) as u32 == kind as u32 && is_in_range).then_some(content)
    }
}

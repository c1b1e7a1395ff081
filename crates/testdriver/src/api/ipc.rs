//! Legacy IPC handles of memory and events. The process that made a handle cannot open it.

use crate::devices::{ordinal_of, visible_devices};
use crate::handles::new_handle;
use crate::ipc_event::IpcEvent;
use crate::ipc_handle::{HandleContent, HandleKind, IpcHandle};
use crate::memfd::{self, PAGE_BYTES};
use crate::memory::BlockOrigin;
use crate::state::driver_functions;
use crate::status::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use std::ffi::{c_uint, c_void};

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`.
const LAZY_PEER_ACCESS: c_uint = 1;

driver_functions! {
    cuIpcGetMemHandle(handle: *mut IpcHandle, address: u64) |driver| {
        let block = driver.memory.block_of(address as usize).filter(|block| block.origin == BlockOrigin::Allocated);
        let Some((block, mapping)) = block.and_then(|block| Some((block, block.file_mapping()?))) else {
            return INVALID_VALUE;
        };
        *handle = HandleContent {
            process: std::process::id(),
            descriptor: mapping.file,
            device: visible_devices()[block.device.unwrap_or(0)] as u32,
            offset: mapping.offset as u64,
            bytes: block.bytes as u64,
        }.encode(HandleKind::Memory);
        SUCCESS
    }
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: IpcHandle, flags: c_uint) |driver| {
        if flags != LAZY_PEER_ACCESS { return INVALID_VALUE; }
        let Some(content) = HandleContent::decode(&handle, HandleKind::Memory) else { return INVALID_VALUE };
        if content.process == std::process::id() { return INVALID_CONTEXT; }
        if let Some((start, count)) = driver.legacy_imports.get_mut(&handle.0) {
            *count += 1;
            *address = *start as u64;
            return SUCCESS;
        }
        let Some(device) = ordinal_of(content.device as usize) else { return INVALID_DEVICE };
        let Some(file) = memfd::open_in_process(content.process, content.descriptor) else { return INVALID_VALUE };
        let length = (content.bytes as usize).next_multiple_of(PAGE_BYTES);
        let file_bytes = file.metadata().map_or(0, |metadata| metadata.len());
        if content.bytes == 0 || content.offset + content.bytes > file_bytes { return INVALID_VALUE; }
        let Some(mapping) = memfd::map(&file, content.offset as usize, length) else {
            return OUT_OF_MEMORY;
        };
        let start =
            driver.memory.insert_mapping(mapping, content.bytes as usize, Some(device), BlockOrigin::Imported);
        driver.legacy_imports.insert(handle.0, (start, 1));
        *address = start as u64;
        SUCCESS
    }
    cuIpcCloseMemHandle(address: u64) |driver| {
        let found = driver.legacy_imports.iter_mut().find(|(_, (start, _))| *start == address as usize);
        let Some((handle, (_, count))) = found else { return INVALID_VALUE };
        *count -= 1;
        if *count == 0 {
            let handle = *handle;
            driver.legacy_imports.remove(&handle);
            driver.memory.close(address as usize);
        }
        SUCCESS
    }
    cuIpcGetEventHandle(handle: *mut IpcHandle, event: *mut c_void) |driver| {
        let descriptor = driver.timeline.ipc_event(event as usize).and_then(IpcEvent::descriptor);
        let Some(descriptor) = descriptor else { return INVALID_HANDLE };
        let process = std::process::id();
        *handle =
            HandleContent { process, descriptor, device: 0, offset: 0, bytes: 0 }.encode(HandleKind::Event);
        SUCCESS
    }
    cuIpcOpenEventHandle(event: *mut *mut c_void, handle: IpcHandle) |driver| {
        let Some(content) = HandleContent::decode(&handle, HandleKind::Event) else { return INVALID_VALUE };
        if content.process == std::process::id() { return INVALID_CONTEXT; }
        let Some(imported) = IpcEvent::open(content.process, content.descriptor) else { return INVALID_HANDLE };
        let number = new_handle();
        driver.timeline.insert_ipc_event(number, imported);
        *event = std::ptr::without_provenance_mut(number);
        SUCCESS
    }
}

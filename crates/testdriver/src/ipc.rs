//! Memory and events between processes, as the real driver has them.
//!
//! A legacy handle and that of an event say which process has the memory, under which descriptor and where in the file;
//! who opens one looks into that process's `/proc`. The process that made a handle cannot open it. Memory with a handle of
//! its own ([`crate::virtual_memory`]) goes by descriptor. Pools are there to be refused.

use crate::ipc_event::{DELAY, Signal};
use crate::memfd::{self, Backing, PAGE};
use crate::timeline::Origin;
use crate::virtual_memory::GRANULARITY;
use crate::{
    Driver, INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, TOTAL,
    current_device, devices, driver, enter,
};
use std::collections::HashMap;
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};

/// What only this module needs.
#[derive(Default)]
pub(crate) struct State {
    /// Legacy handles that are open here: address, and how often.
    opened: HashMap<[u8; 64], (usize, usize)>,
    pools: HashMap<usize, Pool>,
}

struct Pool {
    /// The true number of its device.
    device: usize,
    exportable: bool,
    memory: Backing,
}

impl State {
    pub(crate) fn pools(&self) -> usize {
        self.pools.len()
    }
}

/// Sixty-four bytes that mean something to the driver alone.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Opaque([u8; 64]);

/// What lies in them.
struct Inside {
    kind: u32,
    process: u32,
    descriptor: i32,
    /// The true number of the device.
    device: u32,
    offset: u64,
    bytes: u64,
}

const MEMORY: u32 = 0x4d54_4454;
const EVENT: u32 = 0x5645_4454;

impl Inside {
    fn write(&self) -> Opaque {
        let mut bytes = [0; 64];
        for (at, number) in [self.kind, self.process, self.descriptor as u32, self.device].iter().enumerate()
        {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&number.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        Opaque(bytes)
    }

    fn read(Opaque(bytes): &Opaque, kind: u32) -> Option<Self> {
        let number = |at: usize, length: usize| {
            (0..length).rev().fold(0, |all, i| all << 8 | u64::from(bytes[at + i]))
        };
        let inside = Self {
            kind: number(0, 4) as u32,
            process: number(4, 4) as u32,
            descriptor: number(8, 4) as i32,
            device: number(12, 4) as u32,
            offset: number(16, 8),
            bytes: number(24, 8),
        };
        let ends = inside.offset.checked_add(inside.bytes).is_some_and(|end| end < 1 << 46);
        (inside.kind == kind && ends).then_some(inside)
    }
}

/// The number that a device has in this process, by its true one.
fn seen(device: usize) -> Option<usize> {
    devices().iter().position(|&other| other == device)
}

/// Has the work behind an event done after a while, as a GPU does it by itself; never where
/// `TENSORFERRY_TESTDRIVER_STALLED` is set.
pub(crate) fn do_soon(event: usize) {
    if std::env::var_os("TENSORFERRY_TESTDRIVER_STALLED").is_some() {
        return;
    }
    let _ = std::thread::Builder::new().name("testdriver".into()).spawn(move || {
        std::thread::sleep(DELAY);
        driver().world.finish_event(event);
    });
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: c_int,
    id: c_int,
}

/// `CUmemAllocationProp`.
#[repr(C)]
pub struct Properties {
    kind: c_int,
    handles: c_int,
    location: Location,
    security: *mut c_void,
    flags: [u8; 8],
}

/// `CUmemAccessDesc`.
#[repr(C)]
pub struct Rights {
    location: Location,
    flags: c_int,
}

/// `CUmemPoolProps`.
#[repr(C)]
pub struct PoolProperties {
    kind: c_int,
    handles: c_int,
    location: Location,
    rest: [u64; 10],
}

impl Properties {
    /// The device, where this asks for memory of one.
    fn device(&self) -> Option<usize> {
        let wanted = self.kind == 1 && self.location.kind == 1;
        wanted.then(|| devices().get(self.location.id as usize).copied()).flatten()
    }
}

/// What the driver knows of an address: the answers of `cuPointerGetAttributes`.
fn attribute(driver: &mut Driver, which: c_int, address: usize) -> Result<u64, c_int> {
    let registered = driver.world.is_registered(address);
    if let Some(mapping) = driver.physical.mapping(address) {
        let (start, bytes, handle) = (mapping.start, mapping.bytes, mapping.handle);
        let (device, exportable) = driver.physical.place(address).unwrap_or_default();
        let range = driver.physical.range(address).unwrap_or_default();
        return Ok(match which {
            2 => 2,
            7 => 1 << 32 | handle,
            9 => seen(device).map_or(u64::MAX, |device| device as u64),
            11 => range.0 as u64,
            12 => range.1 as u64,
            13 => 1,
            14 => u64::from(exportable),
            18 => bytes as u64,
            19 => start as u64,
            8 | 10 | 17 => 0,
            _ => return Err(INVALID_VALUE),
        });
    }
    let Some(block) = driver.world.block_of(address) else {
        return Ok(if which == 2 { u64::from(registered) } else { 0 });
    };
    let pool = if let Origin::Pool(pool) = block.origin { Some(pool) } else { None };
    Ok(match which {
        2 => {
            if block.device.is_some() {
                2
            } else {
                1
            }
        }
        7 => block.number,
        9 => block.device.unwrap_or(0) as u64,
        10 => u64::from(block.origin == Origin::Plain),
        11 | 19 => block.start as u64,
        12 | 18 => block.bytes as u64,
        13 => 1,
        14 => {
            let exportable = pool.and_then(|pool| driver.between.pools.get(&pool));
            u64::from(exportable.is_some_and(|pool| pool.exportable))
        }
        // The default pool has a handle too.
        17 => pool.map_or(0, |pool| pool.max(0x10) as u64),
        8 => 0,
        _ => return Err(INVALID_VALUE),
    })
}

functions! {
    cuPointerGetAttributes(count: c_uint, which: *const c_int, into: *const *mut c_void, address: u64) |driver| {
        for place in 0..count as usize {
            let answer = match attribute(driver, *which.add(place), address as usize) {
                Ok(answer) => answer,
                Err(status) => return status,
            };
            match *which.add(place) {
                7 | 11 | 12 | 14 | 17 | 18 | 19 => into.add(place).read().cast::<u64>().write(answer),
                _ => into.add(place).read().cast::<c_uint>().write(answer as c_uint),
            }
        }
        SUCCESS
    }
    cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) |driver| {
        let block = driver.world.block_of(address as usize).map(|block| (block.start, block.bytes));
        let Some((start, length)) = block.or_else(|| driver.physical.range(address as usize)) else {
            return crate::NOT_FOUND;
        };
        if !base.is_null() { *base = start as u64; }
        if !bytes.is_null() { *bytes = length; }
        SUCCESS
    }
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int) |driver| {
        let Some(&number) = devices().get(device as usize) else { return INVALID_DEVICE };
        *uuid = [number as u8 + 0xa0; 16];
        SUCCESS
    }
    cuDeviceGetAttribute(answer: *mut c_int, which: c_int, device: c_int) |driver| {
        if device as usize >= devices().len() { return INVALID_DEVICE; }
        // Memory with handles of its own, their descriptors, pools and their descriptors, events for others.
        *answer = c_int::from(matches!(which, 102 | 103 | 115 | 119 | 125));
        SUCCESS
    }
    cuIpcGetMemHandle(handle: *mut Opaque, address: u64) |driver| {
        let block = driver.world.block_of(address as usize).filter(|block| block.origin == Origin::Plain);
        let Some((block, stretch)) = block.and_then(|block| Some((block, block.stretch()?))) else {
            return INVALID_VALUE;
        };
        *handle = Inside {
            kind: MEMORY,
            process: std::process::id(),
            descriptor: stretch.file,
            device: devices()[block.device.unwrap_or(0)] as u32,
            offset: stretch.offset as u64,
            bytes: block.bytes as u64,
        }.write();
        SUCCESS
    }
    cuIpcOpenMemHandle_v2(address: *mut u64, handle: Opaque, flags: c_uint) |driver| {
        if flags != 1 { return INVALID_VALUE; }
        let Some(inside) = Inside::read(&handle, MEMORY) else { return INVALID_VALUE };
        if inside.process == std::process::id() { return INVALID_CONTEXT; }
        if let Some((start, count)) = driver.between.opened.get_mut(&handle.0) {
            *count += 1;
            *address = *start as u64;
            return SUCCESS;
        }
        let Some(device) = seen(inside.device as usize) else { return INVALID_DEVICE };
        let Some(file) = memfd::of_process(inside.process, inside.descriptor) else { return INVALID_VALUE };
        let length = (inside.bytes as usize).next_multiple_of(PAGE);
        let size = file.metadata().map_or(0, |known| known.len());
        if inside.bytes == 0 || inside.offset + inside.bytes > size { return INVALID_VALUE; }
        let Some(stretch) = memfd::map(file.as_raw_fd(), inside.offset as usize, length) else {
            return OUT_OF_MEMORY;
        };
        let start = driver.world.enter(stretch, inside.bytes as usize, Some(device), Origin::Opened);
        driver.between.opened.insert(handle.0, (start, 1));
        *address = start as u64;
        SUCCESS
    }
    cuIpcCloseMemHandle(address: u64) |driver| {
        let found = driver.between.opened.iter_mut().find(|(_, place)| place.0 == address as usize);
        let Some((handle, place)) = found else { return INVALID_VALUE };
        place.1 -= 1;
        if place.1 == 0 {
            let handle = *handle;
            driver.between.opened.remove(&handle);
            driver.world.close(address as usize);
        }
        SUCCESS
    }
    cuIpcGetEventHandle(handle: *mut Opaque, event: *mut c_void) |driver| {
        let number = driver.world.signal_of(event as usize).and_then(Signal::number);
        let Some(descriptor) = number else { return INVALID_HANDLE };
        let process = std::process::id();
        *handle = Inside { kind: EVENT, process, descriptor, device: 0, offset: 0, bytes: 0 }.write();
        SUCCESS
    }
    cuIpcOpenEventHandle(event: *mut *mut c_void, handle: Opaque) |driver| {
        let Some(inside) = Inside::read(&handle, EVENT) else { return INVALID_VALUE };
        if inside.process == std::process::id() { return INVALID_CONTEXT; }
        let Some(signal) = Signal::open(inside.process, inside.descriptor) else { return INVALID_HANDLE };
        let number = driver.world.handle();
        driver.world.signal(number, signal);
        *event = std::ptr::without_provenance_mut(number);
        SUCCESS
    }
    cuMemGetAllocationGranularity(granularity: *mut usize, wanted: *const Properties, _option: c_int) |driver| {
        if (*wanted).device().is_none() { return INVALID_VALUE; }
        *granularity = GRANULARITY;
        SUCCESS
    }
    cuMemCreate(handle: *mut u64, bytes: usize, wanted: *const Properties, flags: u64) |driver| {
        let Some(device) = (*wanted).device() else { return INVALID_VALUE };
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 { return INVALID_VALUE; }
        if driver.world.used() + driver.physical.used() + bytes > TOTAL { return OUT_OF_MEMORY; }
        let Some(made) = driver.physical.create(bytes, device, (*wanted).handles == 1) else { return OUT_OF_MEMORY };
        *handle = made;
        SUCCESS
    }
    cuMemRelease(handle: u64) |driver| {
        if driver.physical.release(handle) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemAddressReserve(address: *mut u64, bytes: usize, _alignment: usize, _wanted: u64, flags: u64) |driver| {
        if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) || flags != 0 { return INVALID_VALUE; }
        let Some(start) = driver.physical.reserve(bytes) else { return OUT_OF_MEMORY };
        *address = start as u64;
        SUCCESS
    }
    cuMemAddressFree(address: u64, bytes: usize) |driver| {
        if driver.physical.unreserve(address as usize, bytes) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) |driver| {
        if offset != 0 || flags != 0 { return INVALID_VALUE; }
        if driver.physical.map(address as usize, bytes, handle) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemUnmap(address: u64, bytes: usize) |driver| {
        if driver.physical.unmap(address as usize, bytes) { SUCCESS } else { INVALID_VALUE }
    }
    cuMemSetAccess(address: u64, bytes: usize, rights: *const Rights, count: usize) |driver| {
        let rights = std::slice::from_raw_parts(rights, count);
        for one in rights {
            if one.location.kind != 1 || one.location.id as usize >= devices().len() { return INVALID_DEVICE; }
            if !matches!(one.flags, 1 | 3) { return INVALID_VALUE; }
            if !driver.physical.protect(address as usize, bytes, one.flags == 3) { return INVALID_VALUE; }
        }
        SUCCESS
    }
    cuMemRetainAllocationHandle(handle: *mut u64, address: *mut c_void) |driver| {
        let Some(found) = driver.physical.retain(address as usize) else { return INVALID_VALUE };
        *handle = found;
        SUCCESS
    }
    cuMemGetAllocationPropertiesFromHandle(into: *mut Properties, handle: u64) |driver| {
        let Some(found) = driver.physical.handle(handle) else { return INVALID_VALUE };
        let id = seen(found.device).map_or(-1, |device| device as c_int);
        *into = Properties {
            kind: 1,
            handles: c_int::from(found.exportable),
            location: Location { kind: 1, id },
            security: std::ptr::null_mut(),
            flags: [0; 8],
        };
        SUCCESS
    }
    cuMemExportToShareableHandle(into: *mut RawFd, handle: u64, kind: c_int, flags: u64) |driver| {
        if kind != 1 || flags != 0 { return INVALID_VALUE; }
        let Some(descriptor) = driver.physical.export(handle) else { return INVALID_VALUE };
        *into = descriptor.into_raw_fd();
        SUCCESS
    }
    cuMemImportFromShareableHandle(handle: *mut u64, descriptor: *mut c_void, kind: c_int) |driver| {
        if kind != 1 { return INVALID_VALUE; }
        let Some(made) = driver.physical.import(descriptor as usize as RawFd) else { return INVALID_VALUE };
        *handle = made;
        SUCCESS
    }
    cuMemPoolCreate(pool: *mut *mut c_void, wanted: *const PoolProperties) |driver| {
        let wanted = &*wanted;
        let device = devices().get(wanted.location.id as usize).copied();
        let Some(device) = device.filter(|_| wanted.kind == 1 && wanted.location.kind == 1) else {
            return INVALID_VALUE;
        };
        let handle = driver.world.handle();
        let memory = Backing::default();
        driver.between.pools.insert(handle, Pool { device, exportable: wanted.handles == 1, memory });
        *pool = std::ptr::without_provenance_mut(handle);
        SUCCESS
    }
    cuMemPoolDestroy(pool: *mut c_void) |driver| {
        if driver.between.pools.remove(&(pool as usize)).is_some() { SUCCESS } else { INVALID_VALUE }
    }
    cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: *mut c_void, _stream: *mut c_void) |driver| {
        let Some(found) = driver.between.pools.get_mut(&(pool as usize)) else { return INVALID_VALUE };
        if bytes == 0 { return INVALID_VALUE; }
        let Some(stretch) = found.memory.take(bytes) else { return OUT_OF_MEMORY };
        let device = seen(found.device).unwrap_or(current_device());
        let origin = Origin::Pool(pool as usize);
        *address = driver.world.enter(stretch, bytes, Some(device), origin) as u64;
        SUCCESS
    }
}

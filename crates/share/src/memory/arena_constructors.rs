//! Creating and attaching arenas.
//!
//! Both register the arena, and first install the fork handlers, which keep the registry consistent in a child.

use super::arena::Arena;
use super::mapping::{Mapping, ReceivedMemfd};
use super::registry;
use crate::fork_handlers;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tensorferry_core::{Access, Result};

impl Arena {
    /// Creates an arena of at least `bytes` bytes, all zeros. Pages are allocated when they are first touched.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left.
    pub fn new(bytes: usize) -> Result<Arc<Self>> {
        let arena = Self::from_mapping(Mapping::create(bytes)?, true);
        fork_handlers::install();
        Ok(registry::insert(arena))
    }

    /// Attaches at least `announced` bytes that another process sent. Memory that is mapped here already is not
    /// mapped again.
    ///
    /// # Errors
    /// The descriptor is not a sealed memfd, is too short, or does not permit the access; or the system call fails.
    pub(crate) fn attach(received: &OwnedFd, announced: u64, access: Access) -> Result<Arc<Self>> {
        let received = ReceivedMemfd::validate(received, announced, access)?;
        if let Some(known) = registry::find_file(received.file_id(), access) {
            return Ok(known);
        }
        let arena = Self::from_mapping(received.map()?, false);
        fork_handlers::install();
        Ok(registry::insert(arena))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn memory_is_mapped_once() {
        let arena = Arena::new(100).unwrap();
        assert!(arena.is_own() && arena.bytes() == 4096);
        let descriptor = arena.descriptor().try_clone_to_owned().unwrap();
        let again = Arena::attach(&descriptor, 4096, Access::ReadWrite).unwrap();
        assert!(Arc::ptr_eq(&arena, &again));
        let read_only = Arena::attach(&descriptor, 10, Access::ReadOnly).unwrap();
        assert!(read_only.data() != arena.data() && arena.may_be_used_elsewhere());
        // Both mappings show the same file.
        File::from(descriptor).write_all_at(&[7], 0).unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        for mapped in [&arena, &read_only] {
            let mut byte = [0];
            memory.read_exact_at(&mut byte, mapped.data() as u64).unwrap();
            assert_eq!(byte, [7]);
        }
        drop(read_only);
        assert!(!arena.may_be_used_elsewhere());
    }
}

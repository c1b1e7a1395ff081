//! Creating and attaching arenas.
//!
//! Both register the arena, and first install the fork handlers, which keep the registry consistent in a child.

use super::arena::Arena;
use super::mapping::{Mapping, ReceivedMemfd};
use super::registry;
use crate::{fork_count, fork_handlers};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tensorferry_core::{Access, Result, pool};

impl Arena {
    /// Creates an arena of at least `bytes` bytes, all zeros. Pages are allocated when they are first touched.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left.
    pub fn new(bytes: usize) -> Result<Arc<Self>> {
        fork_handlers::install();
        let fork_count = fork_count::get();
        Ok(registry::insert(Self::from_mapping(create_mapping(bytes)?, true, fork_count)))
    }

    /// An arena for one large block, recycled if possible: at first it contains the bytes of an earlier tensor, or zeros.
    /// Behind `bytes` bytes there are only zeros.
    ///
    /// # Errors
    /// The system has no descriptor or no memory left.
    pub(super) fn for_large_block(bytes: usize) -> Result<Arc<Self>> {
        fork_handlers::install();
        let fork_count = fork_count::get();
        // An arena that cannot be cleared is dropped.
        let recycled = registry::take_idle(bytes).filter(|idle| idle.mapping.clear_from(bytes).is_ok());
        pool::count_request(recycled.is_some());
        let arena = match recycled {
            // Not the count from above: a fork may have happened before the arena was taken.
            Some(idle) => Self::recyclable(idle.mapping, idle.fork_count),
            None => Self::recyclable(Arc::new(create_mapping(bytes)?), fork_count),
        };
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
        fork_handlers::install();
        let fork_count = fork_count::get();
        Ok(registry::insert(Self::from_mapping(received.map()?, false, fork_count)))
    }
}

/// Creates a mapping. Idle arenas are unmapped before the call fails: they have descriptors and memory.
fn create_mapping(bytes: usize) -> Result<Mapping> {
    Mapping::create(bytes).or_else(|error| {
        if registry::release_idle_arenas() > 0 { Mapping::create(bytes) } else { Err(error) }
    })
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

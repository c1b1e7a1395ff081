//! Shared memory: arenas on the host, blocks in them, and the registry of what is mapped.

pub(crate) mod arena;
pub(crate) mod arena_block;
mod arena_constructors;
mod block_allocator;
pub(crate) mod idle_arenas;
mod mapping;
pub(crate) mod registry;
pub(crate) mod shared_memory;

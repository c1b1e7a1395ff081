//! The producer: publications, and the server that delivers them to consumers.

pub(crate) mod connection;
pub(crate) mod connection_table;
pub(crate) mod descriptions;
pub(crate) mod epoll;
pub(crate) mod fd_reserve;
pub(crate) mod publication;
pub(crate) mod server;
pub(crate) mod socket_dir;

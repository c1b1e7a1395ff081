//! The producer: publications, and the server thread that delivers them to consumers.

mod accept;
mod connection;
mod connection_table;
mod epoll;
mod fd_reserve;
mod lease_grant;
mod listener;
mod memory_descriptions;
pub(crate) mod publication;
mod publication_record;
mod publication_table;
pub(crate) mod publish_options;
mod rejection;
mod reply_sender;
pub(crate) mod server;
pub(crate) mod server_thread;
mod socket_dir;

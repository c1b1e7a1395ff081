pub mod first;
pub mod second;
pub mod third;

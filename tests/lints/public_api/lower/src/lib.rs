mod kinds;
pub use kinds::Kind;
pub struct NotReExported;

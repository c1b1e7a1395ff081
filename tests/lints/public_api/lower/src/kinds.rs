#[derive(Clone)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    First = 1,
    Second(u8),
}
impl Kind {
    pub fn code(&self) -> u8 {
        0
    }
}

mod private {
    pub trait Sealed {}
    pub struct Options<'a> {
        pub name: &'a str,
        pub(crate) depth: usize,
    }
}
pub use lower::Kind as ErrorKind;
pub use private::Options;
pub use std::collections::BTreeMap;

pub trait Element: private::Sealed + Copy {
    const SIZE: usize;
    type Wide;
    fn widen(self) -> Self::Wide;
}
impl private::Sealed for u8 {}
impl Element for u8 {
    const SIZE: usize = 1;
    type Wide = u16;
    fn widen(self) -> u16 {
        self.into()
    }
}

pub struct Tensor(*mut u8);
// SAFETY: the pointer is never read.
unsafe impl Send for Tensor {}
impl Tensor {
    pub fn shape(&self) -> &[usize] {
        &[]
    }
    pub unsafe fn from_raw<T: Element>(data: *mut T, kind: Option<ErrorKind>) -> Result<Self, ErrorKind> {
        kind.map_or(Ok(Self(data.cast())), Err)
    }
    #[doc(hidden)]
    pub fn hidden(&self) -> *mut u8 {
        self.0
    }
    fn private(&self) {}
}

#[cfg(feature = "extra")]
pub fn extra(read: impl Fn(&[u8]) -> usize, options: &Options<'_>) -> usize {
    read(options.name.as_bytes()) + options.depth
}

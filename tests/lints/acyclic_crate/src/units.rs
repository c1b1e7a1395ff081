pub struct Metres(pub f64);

pub const ONE: Metres = Metres(1.0);

#[cfg(all(test, target_os = "linux"))]
use crate::shapes::Circle;

use super::Shape;
use crate::units::Metres;

pub struct Circle(pub(in crate::shapes) f64);

impl Shape for Circle {
    fn area(&self) -> Metres {
        Metres(self.0)
    }
}

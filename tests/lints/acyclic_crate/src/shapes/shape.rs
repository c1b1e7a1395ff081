use crate::units::{self, Metres};

pub trait Shape {
    fn area(&self) -> Metres;
}

pub fn unit() -> Metres {
    units::ONE
}

#[cfg(test)]
mod tests {
    use super::super::Circle;
    use super::*;

    #[test]
    fn a_circle_is_a_shape() {
        let _ = Circle(1.0).area();
    }
}

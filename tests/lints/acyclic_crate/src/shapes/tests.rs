use super::{Circle, Shape};

#[test]
fn a_circle_has_an_area() {
    assert_eq!(Circle(1.0).area().0, 1.0);
}

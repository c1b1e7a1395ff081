pub fn check(circle: &super::Circle) {
    let _ = crate::Shape::area(circle);
}

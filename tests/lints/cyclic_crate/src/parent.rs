mod child;

pub struct Shared;

pub fn run() -> Shared {
    child::run()
}

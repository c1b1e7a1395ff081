use crate::Engine;

pub fn start() -> Engine {
    Engine
}

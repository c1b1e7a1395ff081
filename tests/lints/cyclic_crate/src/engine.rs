pub struct Engine;

impl Engine {
    pub fn restart() -> Self {
        crate::api::start()
    }
}

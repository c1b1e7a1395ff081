pub fn run() -> super::Shared {
    super::Shared
}

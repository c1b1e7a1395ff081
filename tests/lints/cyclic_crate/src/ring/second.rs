use super::third::*;

pub fn go() -> Alias {
    third_value()
}

macro_rules! alias {
    ($name:ident) => {
        pub type $name = $crate::ring::first::Kind;
    };
}

alias!(Alias);

pub fn third_value() -> Alias {
    use super::first::Kind;
    Kind::Only
}

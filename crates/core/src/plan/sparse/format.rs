//! Sparse formats and the layouts of their coordinates.

/// How a sparse tensor stores the coordinates of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseFormat {
    /// The coordinates of each element.
    Coo,
    /// Compressed rows: a pointer for each row, a column for each element.
    Csr,
    /// Compressed columns: a pointer for each column, a row for each element.
    Csc,
    /// Compressed rows of dense blocks.
    Bsr,
}

impl SparseFormat {
    /// Every format.
    pub const ALL: [Self; 4] = [Self::Coo, Self::Csr, Self::Csc, Self::Bsr];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Coo => "coo",
            Self::Csr => "csr",
            Self::Csc => "csc",
            Self::Bsr => "bsr",
        }
    }

    /// The format of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// The axis by which a compressed format groups elements.
    pub fn leading_axis(self) -> usize {
        if self == Self::Csc { 1 } else { 0 }
    }
}

/// The memory layout of the coordinates of the format coo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinateLayout {
    /// One matrix with a row for each axis.
    Axes,
    /// One matrix with a row for each element.
    Points,
    /// An array for each axis.
    Separate,
}

impl CoordinateLayout {
    /// The layout of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "axes" => Some(Self::Axes),
            "points" => Some(Self::Points),
            "separate" => Some(Self::Separate),
            _ => None,
        }
    }

    /// The name of the layout.
    pub fn name(self) -> &'static str {
        match self {
            Self::Axes => "axes",
            Self::Points => "points",
            Self::Separate => "separate",
        }
    }
}

//! The format of the result, and what a format cannot hold.

use super::{FormatCapabilities, SparseFormat, SparseSource, SparseTarget};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use std::fmt;

/// What the caller asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparseRequest<'a> {
    /// The format, as it was written.
    pub format: Option<&'a str>,
    /// The size of blocks.
    pub block: Option<[i64; 2]>,
}

/// The format of the result.
#[derive(Clone, Copy, Debug)]
pub struct FormatChoice {
    /// The framework.
    pub target: SparseTarget,
    /// What it accepts in the format.
    pub capabilities: FormatCapabilities,
    /// Whether the result is of a class of matrices.
    pub is_matrix: bool,
    /// The size of blocks, where the result has them.
    pub block: Option<[i64; 2]>,
}

impl FormatChoice {
    /// The same for arrays on their way into a dense tensor.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self { capabilities: self.capabilities.relaxed(), ..self }
    }
}

/// The formats that take the place of one that a framework lacks, best first. Compressed columns become coordinates, which keep
/// their order. Blocks become compressed rows, because they are stored by rows.
fn nearest(format: SparseFormat) -> &'static [SparseFormat] {
    match format {
        SparseFormat::Coo => &[SparseFormat::Coo],
        SparseFormat::Csr => &[SparseFormat::Csr, SparseFormat::Coo],
        SparseFormat::Csc => &[SparseFormat::Csc, SparseFormat::Coo, SparseFormat::Csr],
        SparseFormat::Bsr => &[SparseFormat::Bsr, SparseFormat::Csr, SparseFormat::Coo],
    }
}

impl SparseTarget {
    fn capabilities(&self, format: SparseFormat) -> Option<FormatCapabilities> {
        self.formats.iter().find(|capabilities| capabilities.format == format).copied()
    }
}

/// Chooses the format of the result.
///
/// # Errors
/// When the framework has no such format, or blocks are asked for that it does not have.
pub fn choose(
    source: &SparseSource<'_>,
    target: &SparseTarget,
    request: &SparseRequest<'_>,
) -> Result<FormatChoice> {
    let mut is_matrix = target.has_matrices && source.is_matrix;
    let capabilities = match request.format {
        None => nearest(source.format).iter().find_map(|&format| target.capabilities(format)),
        Some(written) => {
            let mut name = written;
            if target.has_matrices
                && let Some((stem, class)) = written.rsplit_once('_')
                && ["array", "matrix"].contains(&class)
            {
                (name, is_matrix) = (stem, class == "matrix");
            }
            SparseFormat::from_name(name).and_then(|format| target.capabilities(format))
        }
    };
    let capabilities = capabilities
        .ok_or_else(|| no_such_format(target, format_args!("'{}'", request.format.unwrap_or_default())))?;
    if request.block.is_some() && capabilities.format != SparseFormat::Bsr {
        let fact = format!("{} has no blocks", capabilities.format.name());
        return Err(Error::new(ErrorKind::InvalidArgument, fact)
            .with_advice("leave blocksize out, or pass format='bsr'"));
    }
    Ok(FormatChoice { target: *target, capabilities, is_matrix, block: request.block.or(source.block) })
}

/// The error of a format that a framework does not have.
pub fn no_such_format(target: &SparseTarget, written: impl fmt::Display) -> Error {
    let names: Vec<_> = target.formats.iter().map(|known| known.format.name()).collect();
    let fact = format!("{} has no sparse format {written} that tensorferry knows", target.title);
    Error::new(ErrorKind::InvalidArgument, fact).with_advice(format!("write one of {}", names.join(", ")))
}

impl FormatChoice {
    /// Refuses a source that the format cannot hold.
    ///
    /// # Errors
    /// When the source has batch axes, dense axes or a number of axes that the format does not have.
    pub fn check_axes(&self, source: &SparseSource<'_>) -> Result<()> {
        let Self { target, capabilities, .. } = self;
        let what = format_args!("this {} {} tensor", source.framework, source.format.name());
        let whose = format_args!("{}'s {}", target.title, capabilities.format.name());
        let axes = source.sparse_shape().len();
        let (fewest, most) = capabilities.axes;
        let (fact, hint) = if source.batch_axes > 0
            && !(capabilities.batch_axes && capabilities.format == source.format)
        {
            (
                format!("{what} has {} batch axes and {whose} has none", source.batch_axes),
                "use ferry.sparse.to_dense, or pass the tensors of the batch one by one",
            )
        } else if source.dense_axes > 0 && !capabilities.dense_axes {
            (
                format!("{what} has {} dense axes (it is hybrid) and {whose} has none", source.dense_axes),
                "use ferry.sparse.to_dense, or make every axis sparse where the tensor is made",
            )
        } else if axes == 0 {
            (format!("{what} has no axis with coordinates"), "use ferry.sparse.to_dense, or pass its values")
        } else if axes < fewest || axes > most {
            (
                format!("{what} has {axes} axes and {whose} has {most}"),
                "reshape it to two axes first, or pass format='coo' where the target has more",
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::UnsupportedLayout, fact).with_advice(hint))
    }

    /// Refuses values of a type that the format does not hold.
    ///
    /// # Errors
    /// When it does not hold them.
    pub fn check_dtype(&self, dtype: DType) -> Result<()> {
        if self.capabilities.dtypes.is_none_or(|dtypes| dtypes.contains(dtype)) {
            return Ok(());
        }
        let format = self.capabilities.format.name();
        let fact = format!("{}'s {format} holds no {dtype}", self.target.title);
        Err(Error::new(ErrorKind::UnsupportedDType, fact).with_advice("pass dtype='float32'"))
    }
}

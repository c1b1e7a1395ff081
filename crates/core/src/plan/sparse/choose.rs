//! Chooses the format of the result, and rejects tensors that the format cannot represent.

use super::format::SparseFormat;
use super::inputs::{FormatCapabilities, SparseSource, SparseTarget};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::hints;
use std::fmt;

/// The options of the caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SparseRequest<'a> {
    /// The name of the format, as the caller wrote it.
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
    /// Whether the class of the result is a matrix class.
    pub is_matrix: bool,
    /// The size of blocks, if the result has blocks.
    pub block: Option<[i64; 2]>,
}

impl FormatChoice {
    /// The same for an intermediate step towards a dense tensor.
    #[must_use]
    pub fn relaxed(self) -> Self {
        Self { capabilities: self.capabilities.relaxed(), ..self }
    }
}

/// The substitutes for a format that a framework does not have, best first. Compressed columns become coordinates, which keep
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
/// When the framework does not have the format, or a block size is given for a format without blocks.
pub fn choose(
    source: &SparseSource<'_>,
    target: &SparseTarget,
    request: &SparseRequest<'_>,
) -> Result<FormatChoice> {
    let mut is_matrix = target.has_matrices && source.is_matrix;
    let capabilities = match request.format {
        None => nearest(source.format).iter().find_map(|&format| target.capabilities(format)),
        Some(requested) => {
            let mut name = requested;
            if target.has_matrices
                && let Some((stem, class)) = requested.rsplit_once('_')
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
        let fact = format!("a block size was given, and {} has no blocks", capabilities.format.name());
        return Err(Error::new(ErrorKind::InvalidArgument, fact).with_hint(hints::OMIT_BLOCK_SIZE));
    }
    Ok(FormatChoice { target: *target, capabilities, is_matrix, block: request.block.or(source.block) })
}

/// The error for a format that a framework does not have.
pub fn no_such_format(target: &SparseTarget, name: impl fmt::Display) -> Error {
    let names: Vec<_> = target.formats.iter().map(|known| known.format.name()).collect();
    let fact = format!("{} has no sparse format {name}", target.title);
    Error::new(ErrorKind::InvalidArgument, fact)
        .with_hint_value(hints::CHOOSE_SPARSE_FORMAT, names.join(", "))
}

impl FormatChoice {
    /// Rejects a source that the format cannot represent.
    ///
    /// # Errors
    /// When the source has batch axes, dense axes or a number of axes that the format does not have.
    pub fn check_axes(&self, source: &SparseSource<'_>) -> Result<()> {
        let Self { target, capabilities, .. } = self;
        let tensor = format_args!("this {} {} tensor", source.framework, source.format.name());
        let format = format_args!("{}'s {}", target.title, capabilities.format.name());
        let axes = source.sparse_shape().len();
        let (min_axes, max_axes) = capabilities.axes;
        let (fact, hint) =
            if source.batch_axes > 0 && !(capabilities.batch_axes && capabilities.format == source.format) {
                (
                    format!("{tensor} has batch axes ({}) and {format} has none", source.batch_axes),
                    hints::SPLIT_BATCH,
                )
            } else if source.dense_axes > 0 && !capabilities.dense_axes {
                (
                    format!(
                        "{tensor} is hybrid: it has dense axes ({}) and {format} has none",
                        source.dense_axes
                    ),
                    hints::MAKE_AXES_SPARSE,
                )
            } else if axes == 0 {
                (format!("{tensor} has no sparse axis"), hints::USE_SPARSE_VALUES)
            } else if axes < min_axes || axes > max_axes {
                (format!("{tensor} has {axes} axes and {format} has {max_axes}"), hints::RESHAPE_TO_TWO_AXES)
            } else {
                return Ok(());
            };
        Err(Error::new(ErrorKind::UnsupportedLayout, fact).with_hint(hint))
    }

    /// Rejects values of a type that the format does not have.
    ///
    /// # Errors
    /// When it does not have the type.
    pub fn check_dtype(&self, dtype: DType) -> Result<()> {
        if self.capabilities.dtypes.is_none_or(|dtypes| dtypes.contains(dtype)) {
            return Ok(());
        }
        let format = self.capabilities.format.name();
        let fact = format!("{}'s {format} does not support {dtype}", self.target.title);
        Err(Error::new(ErrorKind::UnsupportedDType, fact)
            .with_hint_value(hints::CAST_TO_SUPPORTED_DTYPE, DType::Float32.name()))
    }
}

//! Decides how the arrays of the result are computed from those of the source.

use super::choose::FormatChoice;
use super::conversion::{ArrayPlan, ArrayRole, ElementWork, Origin, SparseConversion, Step};
use super::format::{CoordinateLayout, SparseFormat};
use super::inputs::{ElementOrder, Inspect, SparseSource, SparseStructure};
use crate::dtype::{DType, DTypeKind};
use crate::error::{Error, ErrorKind, HintKey, Result};
use crate::hints;
use crate::plan::text::format_shape;
use smallvec::{SmallVec, smallvec};

type Steps = SmallVec<[Step; 2]>;

/// Decides how a validated source is converted to the chosen format.
///
/// # Errors
/// When the target cannot represent the result, or an inspection fails.
pub fn convert<I: Inspect + ?Sized>(
    source: &SparseSource<'_>,
    structure: &SparseStructure,
    choice: &FormatChoice,
    inspect: &mut I,
) -> Result<SparseConversion, I::Error> {
    let capabilities = &choice.capabilities;
    let (from, to) = (source.format, capabilities.format);
    // Pointers count blocks if the result has blocks, and single elements otherwise.
    let count = if to == SparseFormat::Bsr { structure.count } else { elements(source, structure) };
    let index_dtype = index_dtype(source, count, choice)?;
    let order = structure.order;
    let fits = (order.in_order || !capabilities.in_order) && (order.unique || !capabilities.unique);
    let is_exact =
        from != SparseFormat::Coo || (structure.spare == 0 && source.layout == capabilities.layout);
    let mut plan = SparseConversion {
        format: to,
        layout: capabilities.layout,
        index_dtype,
        work: ElementWork::Keep,
        in_order: order.in_order,
        unique: order.unique,
        count: Some(structure.count),
        arrays: SmallVec::new(),
    };
    if from == to && fits && is_exact && source.block == choice.block {
        plan.arrays = roles(to, source.layout, source.sparse_shape().len())
            .map(|role| ArrayPlan { role, origin: Origin::Given })
            .collect();
        return Ok(plan);
    }
    if source.batch_axes > 0 {
        return Err(batch_error(capabilities.reason).into());
    }
    if from == SparseFormat::Bsr && source.dense_axes > 0 {
        return Err(rejection(
            ErrorKind::UnsupportedLayout,
            "blocks whose elements have dense axes cannot be converted to another format",
            hints::REMOVE_DENSE_AXES,
        )
        .into());
    }
    let planner = ArrayPlanner { source, structure, choice, index_dtype };
    match (from, to) {
        (_, SparseFormat::Bsr) => {
            let block = planner.block()?;
            plan = SparseConversion {
                work: ElementWork::Blocks(block),
                in_order: true,
                unique: true,
                count: None,
                ..plan
            };
            plan.arrays = planner.block_arrays(block);
            Ok(plan)
        }
        (SparseFormat::Csr, SparseFormat::Csc) | (SparseFormat::Csc, SparseFormat::Csr)
            if order.unique || !capabilities.unique =>
        {
            // The groups are read in order, so each group of the result is sorted.
            plan.in_order = true;
            if !order.in_order {
                plan.unique = inspect.order_after_grouping(planner.by_columns(), index_dtype)?.unique;
            }
            plan.work = ElementWork::Group;
            plan.arrays = planner.arrays(&smallvec![planner.group()]);
            Ok(plan)
        }
        _ => planner.arrange(plan, inspect),
    }
}

/// The arrays of a format, the values first.
fn roles(format: SparseFormat, layout: CoordinateLayout, axes: usize) -> impl Iterator<Item = ArrayRole> {
    let index: SmallVec<[ArrayRole; 3]> = match (format, layout) {
        (SparseFormat::Coo, CoordinateLayout::Separate) => {
            (0..axes).map(|axis| ArrayRole::Axis(axis, axes)).collect()
        }
        (SparseFormat::Coo, _) => smallvec![ArrayRole::Coordinates],
        _ => smallvec![ArrayRole::Pointers, ArrayRole::Indices],
    };
    std::iter::once(ArrayRole::Values).chain(index)
}

/// The type of the indices: that of the source, unless the target needs another.
fn index_dtype(source: &SparseSource<'_>, count: usize, choice: &FormatChoice) -> Result<DType> {
    let accepted = choice.capabilities.index_dtypes;
    let max_index = source
        .sparse_shape()
        .iter()
        .copied()
        .max()
        .unwrap_or(0)
        .max(i64::try_from(count).unwrap_or(i64::MAX));
    let fits = |dtype: DType| max_index <= if dtype == DType::Int32 { i32::MAX.into() } else { i64::MAX };
    let own = match source.index_dtypes {
        [] => Some(DType::Int64),
        &[own] => Some(own),
        several => widest(several),
    };
    let own = own.filter(|own| accepted.contains(own));
    if let Some(dtype) = own.into_iter().chain(accepted.iter().copied()).find(|&dtype| fits(dtype)) {
        return Ok(dtype);
    }
    let names: Vec<_> = accepted.iter().map(|dtype| dtype.name()).collect();
    let index_reason = choice.capabilities.index_reason;
    let why = if index_reason.is_empty() { String::new() } else { format!(" ({index_reason})") };
    let fact = format!(
        "the shape {} with {count} elements exceeds {}, the index types of {}{why}",
        format_shape(source.shape),
        names.join(" and "),
        choice.target.title
    );
    let hint = if index_reason.is_empty() {
        hints::USE_PART_OR_OTHER_FRAMEWORK
    } else {
        hints::USE_PART_OR_ENABLE_64_BIT
    };
    Err(rejection(ErrorKind::UnsupportedDType, fact, hint))
}

/// The smallest index type that can represent the values of all these types; `None` if no type can.
fn widest(dtypes: &[DType]) -> Option<DType> {
    let wide = dtypes
        .iter()
        .any(|dtype| dtype.size() > 4 || (dtype.kind() == DTypeKind::Unsigned && dtype.size() == 4));
    let has_unsigned_64 = dtypes.contains(&DType::UInt64);
    match (has_unsigned_64, wide) {
        (true, _) => None,
        (false, true) => Some(DType::Int64),
        (false, false) => Some(DType::Int32),
    }
}

fn rejection(kind: ErrorKind, fact: impl Into<std::borrow::Cow<'static, str>>, hint: HintKey) -> Error {
    Error::new(kind, fact).with_hint(hint)
}

fn batch_error(reason: &'static str) -> Error {
    let why = if reason.is_empty() { "the result has other blocks" } else { reason };
    rejection(
        ErrorKind::UnsupportedLayout,
        format!("the elements of a batch cannot be rearranged: {why}"),
        hints::SORT_BATCH_AT_SOURCE,
    )
}

/// Decides the origin of each array if some of them have to be computed.
struct ArrayPlanner<'a> {
    source: &'a SparseSource<'a>,
    structure: &'a SparseStructure,
    choice: &'a FormatChoice,
    index_dtype: DType,
}

impl ArrayPlanner<'_> {
    fn by_columns(&self) -> bool {
        self.choice.capabilities.format == SparseFormat::Csc
    }

    fn group(&self) -> Step {
        Step::Group { by_columns: self.by_columns() }
    }

    /// The size of blocks of the result.
    fn block(&self) -> Result<[i64; 2]> {
        let Some(block) = self.choice.block else {
            return Err(rejection(
                ErrorKind::InvalidArgument,
                "the format bsr needs a block size",
                hints::GIVE_BLOCK_SIZE,
            ));
        };
        if self.source.dense_axes > 0 {
            let fact = "elements with dense axes cannot be gathered into blocks";
            return Err(rejection(ErrorKind::InvalidArgument, fact, hints::USE_CSR));
        }
        let shape = self.source.sparse_shape();
        if shape.iter().zip(&block).any(|(length, &size)| size < 1 || length % size != 0) {
            let fact =
                format!("blocks of {} do not divide the shape {}", format_shape(&block), format_shape(shape));
            return Err(rejection(ErrorKind::InvalidArgument, fact, hints::DIVIDE_SHAPE));
        }
        Ok(block)
    }

    fn block_arrays(&self, block: [i64; 2]) -> SmallVec<[ArrayPlan; 3]> {
        let gather: Steps = smallvec![Step::Gather { block }];
        smallvec![
            computed(ArrayRole::Values, gather.clone()),
            computed(ArrayRole::Pointers, self.cast(gather.clone())),
            computed(ArrayRole::Indices, self.cast(gather)),
        ]
    }

    /// Plans single elements: sorted and summed, or grouped, if the target needs it.
    fn arrange<I: Inspect + ?Sized>(
        &self,
        mut plan: SparseConversion,
        inspect: &mut I,
    ) -> Result<SparseConversion, I::Error> {
        let capabilities = &self.choice.capabilities;
        let (by_columns, reason) = (self.by_columns(), capabilities.reason);
        let total = elements(self.source, self.structure);
        let mut order = self.element_order(inspect)?;
        let (mut sort, mut sum, mut group) = (false, false, false);
        let mut steps = Steps::new();
        if self.structure.spare > 0 && self.source.format == SparseFormat::Coo {
            steps.push(Step::Drop { count: self.structure.spare });
        }
        plan.count = Some(total);
        if !order.in_order && (capabilities.in_order || capabilities.unique) {
            sort = true;
            steps.push(Step::Sort { reason });
            let unique = inspect.distinct(by_columns)? == total;
            order = ElementOrder { in_order: true, unique, grouped: true };
        } else if plan.format != SparseFormat::Coo && !order.grouped {
            group = true;
            steps.push(self.group());
            order = inspect.order_after_grouping(by_columns, self.index_dtype)?;
        }
        if capabilities.unique && !order.unique {
            (sort, sum) = (true, true);
            let distinct = inspect.distinct(by_columns)?;
            plan.count = Some(distinct);
            steps.push(Step::Sum { duplicates: total - distinct, reason });
            order.unique = true;
        }
        plan.work = if group { ElementWork::Group } else { ElementWork::Elements { sort, sum } };
        (plan.in_order, plan.unique) = (order.in_order, order.unique);
        plan.arrays = self.arrays(&steps);
        Ok(plan)
    }

    /// The arrays of the result, computed by these steps on the elements.
    fn arrays(&self, steps: &Steps) -> SmallVec<[ArrayPlan; 3]> {
        let axes = self.source.sparse_shape().len();
        let roles = roles(self.choice.capabilities.format, self.layout(), axes);
        roles.map(|role| ArrayPlan { role, origin: self.origin(role, steps) }).collect()
    }

    /// The order of single elements by the target's axes.
    fn element_order<I: Inspect + ?Sized>(&self, inspect: &mut I) -> Result<ElementOrder, I::Error> {
        let order = self.structure.order;
        match self.source.format {
            SparseFormat::Coo if !self.by_columns() => Ok(order),
            SparseFormat::Csr if !self.by_columns() => Ok(ElementOrder { grouped: true, ..order }),
            SparseFormat::Csc if self.by_columns() => Ok(ElementOrder { grouped: true, ..order }),
            _ => inspect.order(self.by_columns()),
        }
    }

    fn origin(&self, role: ArrayRole, steps: &Steps) -> Origin {
        let expanded = match (self.source.format, role) {
            (SparseFormat::Bsr, ArrayRole::Indices | ArrayRole::Axis(..)) => true,
            (SparseFormat::Csr, ArrayRole::Axis(axis, _)) => axis == 0,
            (SparseFormat::Csc, ArrayRole::Axis(axis, _)) => axis == 1,
            // The indices of compressed columns are rows, so columns come from expanded pointers.
            (SparseFormat::Csr | SparseFormat::Csc, ArrayRole::Indices) => {
                self.source.format != self.choice.capabilities.format
            }
            (SparseFormat::Csr | SparseFormat::Csc | SparseFormat::Bsr, ArrayRole::Coordinates) => true,
            _ => false,
        };
        let mut computed_by = if expanded { self.expand() } else { Steps::new() };
        match role {
            ArrayRole::Values if steps.is_empty() => return Origin::Given,
            ArrayRole::Values => return Origin::Made(steps.clone()),
            ArrayRole::Pointers => computed_by.push(self.count()),
            ArrayRole::Coordinates => {
                computed_by.extend(steps.iter().cloned());
                let from = self.source.format == SparseFormat::Coo && self.source.layout != self.layout();
                computed_by.push(Step::Arrange {
                    from: from.then_some(self.source.layout),
                    to: self.layout(),
                    title: self.choice.target.title,
                });
            }
            ArrayRole::Indices | ArrayRole::Axis(..) => {
                computed_by.extend(steps.iter().cloned());
                if computed_by.is_empty() {
                    return Origin::Given;
                }
            }
        }
        Origin::Made(self.cast(computed_by))
    }

    fn layout(&self) -> CoordinateLayout {
        self.choice.capabilities.layout
    }

    fn count(&self) -> Step {
        Step::Count { format: self.choice.capabilities.format }
    }

    fn expand(&self) -> Steps {
        match self.source.format {
            SparseFormat::Coo => Steps::new(),
            from => smallvec![Step::Expand { from }],
        }
    }

    /// Appends a cast if the indices of the source have another type.
    fn cast(&self, mut steps: Steps) -> Steps {
        if self.source.index_dtypes != [self.index_dtype] {
            let from = SmallVec::from_slice(self.source.index_dtypes);
            steps.push(Step::Cast { from, to: self.index_dtype, title: self.choice.target.title });
        }
        steps
    }
}

/// The number of single elements of the source.
fn elements(source: &SparseSource<'_>, structure: &SparseStructure) -> usize {
    let block = if source.format == SparseFormat::Bsr { source.block } else { None };
    let size = block.map_or(1, |[rows, columns]| (rows as usize).saturating_mul(columns as usize));
    structure.count.saturating_mul(size)
}

fn computed(role: ArrayRole, steps: Steps) -> ArrayPlan {
    ArrayPlan { role, origin: Origin::Made(steps) }
}

/// How a dense tensor on the host is filled from a sparse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillMethod {
    /// Row by row, or column by column, from pointers and indices.
    Compressed,
    /// Element by element, from coordinates.
    Coordinates,
    /// Grouped into compressed rows first, so that each row is in the cache while it is written.
    Grouped,
}

/// The number of elements from which grouping them before a fill is faster.
const GROUPING_THRESHOLD_ELEMENTS: usize = 1 << 16;

/// The method that fills a dense tensor on the host with validated elements of this many sparse axes.
pub fn fill_method(format: SparseFormat, axes: usize, structure: &SparseStructure) -> FillMethod {
    let grouped = structure.order.grouped || structure.count < GROUPING_THRESHOLD_ELEMENTS;
    match format {
        SparseFormat::Csr | SparseFormat::Csc => FillMethod::Compressed,
        SparseFormat::Coo if axes == 2 && !grouped => FillMethod::Grouped,
        SparseFormat::Coo | SparseFormat::Bsr => FillMethod::Coordinates,
    }
}

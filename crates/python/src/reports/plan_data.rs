//! The data of plans: of a dense tensor, of a tree, of a sparse tensor and of one of its arrays.

use super::tensor::{Steps, TensorReport};
use pyo3::prelude::*;

/// The planned conversion of a tensor, a tree of tensors or a sparse tensor, with the reasons.
///
/// `kind` is the kind of object. The plan of a tree has a part for each tensor, the plan of a sparse tensor a part for each
/// of its arrays. An attribute that a kind does not have raises AttributeError: a tree has no dtype.
///
/// Example:
///     >>> print(ferry.plan(np.arange(3), "torch"))  # doctest: +ELLIPSIS
///     numpy -> torch: shared, no byte moves
///       int64 of shape (3,)...
///     >>> plan = ferry.plan({"a": np.arange(3), "b": np.ones(2)}, "torch")
///     >>> [(part.name, part.dtype) for part in plan.parts]
///     [("['a']", 'int64'), ("['b']", 'float64')]
#[pyclass(frozen, module = "tensorferry", name = "Plan")]
#[derive(Clone)]
pub(crate) struct PlanReport {
    /// The path of a tensor in its tree, or the name of an array of a sparse tensor; None for a plan that is not a part.
    #[pyo3(get)]
    pub(super) name: Option<String>,
    pub(super) content: PlanContent,
}

#[derive(Clone)]
pub(super) enum PlanContent {
    Tensor(TensorReport),
    Tree(TreeReport),
    Sparse(SparseReport),
    Array(ArrayReport),
}

/// The plans of the tensors in a tree, dense and sparse; the name of each is its path in the tree.
#[derive(Clone)]
pub(crate) struct TreeReport {
    pub(super) target: String,
    pub(super) parts: Vec<PlanReport>,
    pub(super) notes: Vec<String>,
}

/// The planned conversion of a sparse tensor. The fields are attributes of the Python class `Plan`.
#[derive(Clone)]
pub(crate) struct SparseReport {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) source_format: String,
    /// None for a dense result.
    pub(crate) format: Option<String>,
    pub(crate) is_itself: bool,
    pub(crate) source_dtype: String,
    pub(crate) dtype: String,
    pub(crate) shape: Vec<i64>,
    pub(crate) source_device: String,
    pub(crate) device: String,
    pub(crate) nnz: usize,
    pub(crate) parts: Vec<PlanReport>,
    pub(crate) notes: Vec<String>,
}

/// The planned conversion of one array of a sparse tensor: values, coordinates, indices or indptr.
#[derive(Clone)]
pub(crate) struct ArrayReport {
    pub(super) is_shared: bool,
    pub(super) dtype: String,
    pub(super) shape: Vec<i64>,
    pub(super) bytes_moved: usize,
    pub(super) extra_bytes: usize,
    pub(super) steps: Steps,
    pub(super) notes: Vec<String>,
}

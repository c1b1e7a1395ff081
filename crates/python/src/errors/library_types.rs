//! Types of libraries beyond the frameworks whose objects are not tensors: what they are, and what to pass instead.
//!
//! They are found by module and name along the method resolution order, which imports nothing.

use super::failure::{Failure, fail};
use pyo3::prelude::*;
use pyo3::types::PyType;
use tensorferry_core::ErrorKind;

/// Types of one library, and what errors say about their instances. `{name}` in a text is the attribute of the instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LibraryTypes {
    /// The start of the module's name.
    module: &'static str,
    names: &'static [&'static str],
    /// Why the types are refused, whatever protocols they have; `None` for types without one and for those that it serves.
    fact: Option<&'static str>,
    hint: &'static str,
}

const fn refused(
    module: &'static str,
    names: &'static [&'static str],
    fact: &'static str,
    hint: &'static str,
) -> LibraryTypes {
    LibraryTypes { module, names, fact: Some(fact), hint }
}

const fn advised(module: &'static str, names: &'static [&'static str], hint: &'static str) -> LibraryTypes {
    LibraryTypes { module, names, fact: None, hint }
}

/// A group of arrays, refused also in a tree, because to open it reads its files.
const fn group(module: &'static str, names: &'static [&'static str], hint: &'static str) -> LibraryTypes {
    refused(module, names, "a group of arrays is not opened, because that would read its files", hint)
}

const ASTROPY_UNITS: &str = "astropy.units.quantity";
const ASTROPY_COLUMNS: &str = "astropy.table.column";
const ASTROPY_DATA: &str = "astropy.nddata.nddata";
const PINT: &str = "pint.facets.plain.quantity";
const NUMBA_FACT: &str =
    "a typed container of Numba is not opened, because that would copy its items one by one";
const PINT_NUMBER_HINT: &str =
    "pass numpy.asarray(x.magnitude), or numpy.asarray(x.m_as(\"{units}\")) to state the unit";

static LIBRARY_TYPES: &[LibraryTypes] = &[
    refused(
        ASTROPY_UNITS,
        &["Quantity"],
        "an astropy quantity of the unit {unit} cannot be converted without losing its unit",
        "pass x.value, or x.to_value(\"{unit}\") to state the unit",
    ),
    refused(
        ASTROPY_COLUMNS,
        &["BaseColumn"],
        "a column of astropy of the unit {unit} cannot be converted without losing its unit",
        "pass x.value, or x.quantity.to_value(\"{unit}\") to state the unit",
    ),
    refused(
        ASTROPY_DATA,
        &["NDData"],
        "an NDData of astropy cannot be converted without losing its unit, mask or uncertainty",
        "pass x.data, and the others separately",
    ),
    refused(
        "astropy.table.table",
        &["Table"],
        "a table of astropy has columns with units and masks, which would be lost",
        "pass dict(x.columns)",
    ),
    refused("astropy.table.row", &["Row"], "a row of a table of astropy is not a tensor", "pass x[name]"),
    refused(
        "astropy.utils.masked.core",
        &["Masked"],
        "a masked array of astropy cannot be converted without losing its mask",
        "pass x.filled(value), or x.unmasked and x.mask separately",
    ),
    refused(
        PINT,
        &["PlainQuantity"],
        "a pint quantity of the unit {units} cannot be converted without losing its unit",
        "pass x.magnitude, or x.m_as(\"{units}\") to state the unit",
    ),
    refused(
        "keras.src.backend.common.keras_tensor",
        &["KerasTensor"],
        "a symbolic Keras tensor has no values: it stands for a value in a model",
        "pass keras.Model(inputs, x)(values), which computes it",
    ),
    refused(
        "pyarrow.lib",
        &["Scalar"],
        "a scalar of pyarrow is not a tensor",
        "pass numpy.asarray(x.as_py())",
    ),
    refused(
        "pandas",
        &["MultiIndex"],
        "a MultiIndex of pandas has several columns",
        "pass x.to_frame(index=False), a table of its levels",
    ),
    group("xarray.core.dataset", &["Dataset"], "pass dict(x.data_vars), or one of its variables"),
    group("xarray.core.datatree", &["DataTree"], "pass dict(x[name].data_vars) for each name in x.groups"),
    group("netCDF4.", &["Dataset"], "pass dict(x.variables), or one of its variables"),
    group("zarr.core.group", &["Group"], "pass dict(x.arrays()), or one of its arrays"),
    group("h5py._hl.group", &["Group"], "pass dict(x), or one of its datasets"),
    advised("h5py.h5r", &["RegionReference"], "pass file[x][x], the region to which it refers"),
    advised("h5py.h5r", &["Reference"], "pass file[x], the dataset to which it refers"),
    advised(
        "uncertainties.",
        &["AffineScalarFunc"],
        "pass numpy.asarray(x.nominal_value), and numpy.asarray(x.std_dev) separately",
    ),
    advised("polars.lazyframe.frame", &["LazyFrame"], "pass x.collect()"),
    advised("pyarrow._dataset", &["Dataset", "Scanner"], "pass x.to_table()"),
    advised("dask.", &["Delayed", "Bag"], "pass x.compute()"),
    advised(
        "datasets.arrow_dataset",
        &["Dataset"],
        "use ferry.arrow.to(x, framework), or feed a DataLoader of a dataset with a transform",
    ),
    advised("datasets.iterable_dataset", &["IterableDataset"], "use ferry.arrow.batches(x, rows, framework)"),
    advised(
        "datasets.arrow_dataset",
        &["Column"],
        "use ferry.arrow.to(dataset.select_columns(\"{column_name}\"), framework)",
    ),
    advised(
        "datasets.iterable_dataset",
        &["IterableColumn"],
        "use ferry.arrow.batches(dataset.select_columns(\"{column_name}\"), rows, framework)",
    ),
    advised(
        "datasets.dataset_dict",
        &["DatasetDict"],
        "use ferry.arrow.to(x[name], framework) for each name",
    ),
    advised(
        "datasets.dataset_dict",
        &["IterableDatasetDict"],
        "use ferry.arrow.batches(x[name], rows, framework) for each name",
    ),
    advised(
        "awkward.highlevel",
        &["Array"],
        "use ferry.arrow.to(awkward.to_arrow(x), framework, ragged=\"dense\", pad=0, nulls=0)",
    ),
    advised("multiprocessing.sharedctypes", &["SynchronizedBase"], "pass x.get_obj(), and hold x.get_lock()"),
    advised("onnx.", &["TensorProto"], "pass onnx.numpy_helper.to_array(x)"),
    advised("onnx.", &["SequenceProto"], "pass onnx.numpy_helper.to_list(x)"),
    advised("jax", &["ShapeDtypeStruct"], "pass jax.numpy.zeros(x.shape, x.dtype), because it has no values"),
    advised("builtins", &["safe_open"], "use ferry.load(path, framework), or pass x.get_tensor(name)"),
    group("xarray.core.", &["DataVariables", "Coordinates"], "pass dict(x), or one of its arrays"),
    group("numpy.lib.", &["NpzFile"], "pass dict(x), or one of its arrays"),
    refused("cv2", &["UMat"], "a UMat of OpenCV has no protocol that reads its memory", "pass x.get()"),
    refused("numba.typed.typedlist", &["List"], NUMBA_FACT, "pass list(x), or numpy.asarray(x) for numbers"),
    refused("numba.typed.typeddict", &["Dict"], NUMBA_FACT, "pass dict(x)"),
    advised("flax.nnx.", &["Variable"], "pass x.get_value()"),
    advised("flax.nnx.", &["State"], "pass flax.nnx.to_pure_dict(x)"),
    advised("flax.nnx.", &["Pytree"], "pass flax.nnx.to_pure_dict(flax.nnx.state(x))"),
    advised("flax.core.meta", &["AxisMetadata"], "pass x.unbox()"),
];

/// The types with a class of this module and name.
fn find(module: &str, name: &str) -> Option<&'static LibraryTypes> {
    LIBRARY_TYPES.iter().find(|types| module.starts_with(types.module) && types.names.contains(&name))
}

/// The types with a class of this module and name, if they are refused.
pub(crate) fn find_refused(module: &str, name: &str) -> Option<&'static LibraryTypes> {
    find(module, name).filter(|types| types.fact.is_some())
}

/// What to do with an object of one of these types.
#[pyfunction(name = "_library_hint")]
pub(crate) fn library_hint(object: &Bound<'_, PyAny>) -> Option<String> {
    let types = object.get_type().mro().iter().find_map(|class| {
        let class = class.cast_into::<PyType>().ok()?;
        let text = |name: &str| class.getattr(name).ok()?.extract::<String>().ok();
        find(&text("__module__")?, &text("__qualname__")?)
    });
    types.map(|types| types.hint(object))
}

impl LibraryTypes {
    /// The error for an instance whose type is refused.
    pub(crate) fn error(&self, object: &Bound<'_, PyAny>) -> Failure {
        fail(ErrorKind::NotATensor, fill(self.fact.unwrap_or_default(), object), self.hint(object))
    }

    fn hint(&self, object: &Bound<'_, PyAny>) -> String {
        let hint = fill(self.hint, object);
        let has = |name: &str| object.hasattr(name).unwrap_or(false);
        match self.module {
            // What has a unit may have a mask too.
            ASTROPY_UNITS | ASTROPY_COLUMNS if has("filled") => hint.replace("x.", "x.filled(value)."),
            // A number is not a tensor.
            PINT if !has("shape") => fill(PINT_NUMBER_HINT, object),
            _ => hint,
        }
    }

    /// The value of a quantity whose unit is 1, which is converted in place of the quantity; `None` for all other objects.
    pub(crate) fn value_without_unit<'py>(
        &self,
        object: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (has_no_unit, value) = match self.module {
            // A structured unit lacks the method.
            ASTROPY_UNITS => match object.getattr("unit")?.getattr_opt("is_unity")? {
                Some(is_unity) => (is_unity.call0()?.is_truthy()?, "value"),
                None => return Ok(None),
            },
            ASTROPY_COLUMNS => (object.getattr("unit")?.is_none(), "value"),
            ASTROPY_DATA => {
                let is_none = |name: &str| object.getattr(name).map(|value| value.is_none());
                (is_none("unit")? && is_none("mask")? && is_none("uncertainty")?, "data")
            }
            PINT => (object.call_method0("unit_items")?.is_empty()?, "magnitude"),
            _ => return Ok(None),
        };
        has_no_unit.then(|| object.getattr(value)).transpose()
    }
}

/// The text with the attributes of the object in place of their names in braces.
fn fill(text: &str, object: &Bound<'_, PyAny>) -> String {
    let parts = text.split(['{', '}']).enumerate().map(|(index, part)| match index % 2 {
        0 => part.to_owned(),
        _ => object.getattr(part).map(|value| value.to_string()).unwrap_or_default(),
    });
    parts.collect()
}

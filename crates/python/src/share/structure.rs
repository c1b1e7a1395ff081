//! Python's containers and values as structures that go over a socket, and back.

use crate::conversion::host_copy;
use crate::conversion::kinds::{Container, Recognised};
use crate::conversion::recognise::recognise;
use crate::conversion::source::Memory;
use crate::errors::{Failure, Result, fail, type_name};
use crate::frameworks;
use crate::trees::traverse::{self, MAX_DEPTH, Piece, TENSOR_OVERHEAD_BYTES, is_scalar, place, speaks};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::HashMap;
use tensorferry_core::fallible::{try_collect, try_copy};
use tensorferry_core::host::HostBlock;
use tensorferry_core::{Access, ByteOrder, DType, Device, Error, ErrorKind, Layout, Tensor, emergency_pool};
use tensorferry_share::TreeStructure;

/// What is done at each tensor: it gets a number.
type Visit<'py, 'a> = dyn FnMut(&Bound<'py, PyAny>, Recognised) -> Result<u32> + 'a;

/// Takes a tree apart.
struct Folding<'py, 'a> {
    path: Vec<Piece<'py>>,
    /// Numbers by the address of their source, which is kept alive so that the address stays its own.
    known: HashMap<usize, (Bound<'py, PyAny>, u32)>,
    visit: &'a mut Visit<'py, 'a>,
}

/// The structure of a tree, or of one tensor.
pub(super) fn fold<'py, 'a>(
    object: &Bound<'py, PyAny>,
    visit: &'a mut Visit<'py, 'a>,
) -> Result<TreeStructure> {
    let recognised = recognise(object)?;
    let is_tree = matches!(recognised, Recognised::Container(_) | Recognised::Leaf)
        || (matches!(recognised, Recognised::Unknown) && !speaks(object)?);
    if !is_tree {
        return visit(object, recognised).map(TreeStructure::Tensor);
    }
    let mut folding = Folding { path: Vec::new(), known: HashMap::new(), visit };
    let result = folding.node(object, recognised);
    result
        .map_err(|failure| if folding.path.is_empty() { failure } else { failure.at(&place(&folding.path)) })
}

impl<'py> Folding<'py, '_> {
    fn child(&mut self, piece: Piece<'py>, object: &Bound<'py, PyAny>) -> Result<TreeStructure> {
        if self.path.len() > MAX_DEPTH {
            self.path.clear();
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("the tree is nested more than {MAX_DEPTH} deep"),
                "check that no container holds itself",
            ));
        }
        self.path.push(piece);
        let result = self.node(object, recognise(object)?)?;
        self.path.pop();
        Ok(result)
    }

    fn node(&mut self, object: &Bound<'py, PyAny>, recognised: Recognised) -> Result<TreeStructure> {
        match recognised {
            Recognised::Container(container) => self.container(object, container),
            Recognised::Leaf | Recognised::Bytes => value(object),
            Recognised::Unknown if !speaks(object)? => value(object),
            recognised if is_scalar(recognised) => scalar(object, recognised),
            recognised => {
                if let Some((_, number)) = self.known.get(&(object.as_ptr() as usize)) {
                    return Ok(TreeStructure::Tensor(*number));
                }
                emergency_pool::reserve_headroom(TENSOR_OVERHEAD_BYTES)?;
                let number = (self.visit)(object, recognised)?;
                let bytes =
                    (self.known.len() + 1).saturating_mul(size_of::<(usize, Bound<'_, PyAny>, u32)>());
                self.known.try_reserve(1).map_err(|_| Error::out_of_memory(bytes))?;
                self.known.insert(object.as_ptr() as usize, (object.clone(), number));
                Ok(TreeStructure::Tensor(number))
            }
        }
    }

    fn container(&mut self, object: &Bound<'py, PyAny>, container: Container) -> Result<TreeStructure> {
        let ordered = container == Container::Dict
            && object.get_type().is(&object.py().import("collections")?.getattr("OrderedDict")?);
        match container {
            Container::Dict if ordered || object.is_exact_instance_of::<PyDict>() => {
                let items = object.cast::<PyDict>().map_err(PyErr::from)?.iter();
                let items = try_collect(items.map(Ok::<_, Failure>))?;
                let pairs = items.into_iter().map(|(name, item)| {
                    let key = key(&name)?;
                    Ok::<_, Failure>((key, self.child(Piece::Key(name), &item)?))
                });
                Ok(TreeStructure::Dict(ordered, try_collect(pairs)?))
            }
            Container::List if object.is_exact_instance_of::<PyList>() => {
                Ok(TreeStructure::List(self.items(object)?))
            }
            Container::Tuple if object.is_exact_instance_of::<PyTuple>() => {
                Ok(TreeStructure::Tuple(self.items(object)?))
            }
            _ => Err(stranger(object)),
        }
    }

    fn items(&mut self, object: &Bound<'py, PyAny>) -> Result<Vec<TreeStructure>> {
        let items = try_collect(object.try_iter()?.map(|item| item.map_err(Failure::from)))?;
        try_collect(items.iter().enumerate().map(|(index, item)| self.child(Piece::Index(index), item)))
    }
}

/// What can be no key of a dict in another process is none here.
fn key(object: &Bound<'_, PyAny>) -> Result<TreeStructure> {
    if let Ok(items) = object.cast_exact::<PyTuple>() {
        return Ok(TreeStructure::Tuple(items.iter().map(|item| key(&item)).collect::<Result<_>>()?));
    }
    value(object)
}

fn value(object: &Bound<'_, PyAny>) -> Result<TreeStructure> {
    if object.is_none() {
        return Ok(TreeStructure::None);
    }
    if let Ok(value) = object.cast_exact::<PyBool>() {
        return Ok(TreeStructure::Boolean(value.is_true()));
    }
    if let Ok(value) = object.cast_exact::<PyInt>() {
        let number = value.extract().map_err(|_| {
            let fact = "a whole number of more than 128 bits cannot be sent";
            fail(ErrorKind::InvalidArgument, fact, "send it as text")
        })?;
        return Ok(TreeStructure::Integer(number));
    }
    if let Ok(value) = object.cast_exact::<PyFloat>() {
        return Ok(TreeStructure::Float(value.value().to_bits()));
    }
    if let Ok(value) = object.cast_exact::<PyComplex>() {
        return Ok(TreeStructure::Complex(value.real().to_bits(), value.imag().to_bits()));
    }
    if let Ok(value) = object.cast_exact::<PyString>() {
        let text = value.to_str().map_err(|_| {
            let fact = "a text with half of a character in it cannot be sent";
            fail(ErrorKind::InvalidArgument, fact, "encode it, and send bytes")
        })?;
        // The bytes are those of a text.
        let text = String::from_utf8(try_copy(text.as_bytes())?).unwrap_or_default();
        return Ok(TreeStructure::Text(text));
    }
    if let Ok(value) = object.cast_exact::<PyBytes>() {
        return Ok(TreeStructure::Bytes(try_copy(value.as_bytes())?));
    }
    Err(stranger(object))
}

fn stranger(object: &Bound<'_, PyAny>) -> Failure {
    fail(
        ErrorKind::InvalidArgument,
        format!("an object of type {} cannot be made again in another process", type_name(object)),
        "publish dicts, lists and tuples of tensors, numbers and text",
    )
}

/// A NumPy scalar, which is a number and no tensor.
fn scalar(object: &Bound<'_, PyAny>, recognised: Recognised) -> Result<TreeStructure> {
    let source = crate::conversion::reading::read(object, recognised)?;
    let Memory::Here(tensor) = source.memory else { return Err(stranger(object)) };
    let tensor = host_copy::packed(object.py(), &tensor, tensor.dtype())?;
    let size = tensor.dtype().size();
    // SAFETY: one element, dense, which the tensor keeps.
    let bytes = unsafe { std::slice::from_raw_parts(tensor.data(), size) };
    Ok(TreeStructure::Scalar(tensor.dtype(), bytes.to_vec()))
}

/// Makes the tensor of a number.
type Give<'py, 'a> = dyn FnMut(u32) -> Result<Bound<'py, PyAny>> + 'a;

/// Puts a tree together around tensors.
pub(super) fn unfold<'py, 'a>(
    py: Python<'py>,
    structure: &TreeStructure,
    give: &'a mut Give<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    let mut path = Vec::new();
    let result = unfold_at(py, structure, give, &mut path);
    result.map_err(|failure| if path.is_empty() { failure } else { failure.at(&place(&path)) })
}

/// On failure the path stays, to say where it was.
fn unfold_at<'py>(
    py: Python<'py>,
    structure: &TreeStructure,
    give: &mut Give<'py, '_>,
    path: &mut Vec<Piece<'py>>,
) -> Result<Bound<'py, PyAny>> {
    let mut several = |items: &[TreeStructure], path: &mut Vec<Piece<'py>>| {
        try_collect(items.iter().enumerate().map(|(index, item)| {
            path.push(Piece::Index(index));
            let made = unfold_at(py, item, give, path)?;
            path.pop();
            Ok::<_, Failure>(made)
        }))
    };
    Ok(match structure {
        TreeStructure::Tensor(number) => {
            emergency_pool::reserve_headroom(TENSOR_OVERHEAD_BYTES)?;
            give(*number)?
        }
        TreeStructure::None => py.None().into_bound(py),
        TreeStructure::Boolean(value) => PyBool::new(py, *value).to_owned().into_any(),
        TreeStructure::Integer(value) => value.into_pyobject(py).map_err(PyErr::from)?.into_any(),
        TreeStructure::Float(bits) => PyFloat::new(py, f64::from_bits(*bits)).into_any(),
        TreeStructure::Complex(real, imaginary) => {
            PyComplex::from_doubles(py, f64::from_bits(*real), f64::from_bits(*imaginary)).into_any()
        }
        TreeStructure::Text(text) => PyString::new(py, text).into_any(),
        TreeStructure::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        TreeStructure::Scalar(dtype, bytes) => made_scalar(py, *dtype, bytes)?,
        TreeStructure::List(items) => traverse::list(py, several(items, path)?)?.into_any(),
        TreeStructure::Tuple(items) => traverse::tuple(py, several(items, path)?)?.into_any(),
        TreeStructure::Dict(ordered, items) => {
            let dict = if *ordered {
                py.import("collections")?.getattr("OrderedDict")?.call0()?
            } else {
                PyDict::new(py).into_any()
            };
            for (key, item) in items {
                let key = unfold_at(py, key, give, path)?;
                path.push(Piece::Key(key.clone()));
                dict.set_item(key, unfold_at(py, item, give, path)?)?;
                path.pop();
            }
            dict
        }
    })
}

fn made_scalar<'py>(py: Python<'py>, dtype: DType, bytes: &[u8]) -> Result<Bound<'py, PyAny>> {
    let block = HostBlock::new(bytes.len())?;
    // SAFETY: the block has so many bytes, and is nobody else's.
    unsafe { block.data().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    let (data, layout) = (block.data(), Layout::dense(dtype.size(), &[])?);
    let owner = crate::interpreter::owner::Owner::Block(block);
    // SAFETY: one element, which the block holds.
    let tensor = unsafe {
        Tensor::new(data, dtype, layout, Device::CPU, ByteOrder::Native, Access::ReadWrite, owner)
    }?;
    let numpy = frameworks::target(&PyString::new(py, "numpy").into_any())?;
    Ok(numpy.write(py, tensor)?.get_item(PyTuple::empty(py))?)
}

//! Encoding of Python trees as `TreeStructure`, which a producer sends to consumers, and decoding.

use crate::arrow;
use crate::arrow::read::Purpose;
use crate::conversion::object_kinds::{Container, Recognised, RecognisedObject};
use crate::conversion::recognise::recognise;
use crate::conversion::source::SourceMemory;
use crate::errors::{Failure, Result, fail, known_hint, type_name};
use crate::frameworks;
use crate::interpreter::objects::{self, TENSOR_OVERHEAD_BYTES};
use crate::trees::path::{PathStep, format_path};
use crate::trees::traverse::{MAX_DEPTH, container_of, has_tensor_protocol, is_scalar, tensor_of_node};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::collections::HashMap;
use tensorferry_core::fallible::{try_collect, try_copy};
use tensorferry_core::{DType, Error, ErrorKind, emergency_pool};
use tensorferry_share::TreeStructure;

/// Publishes one tensor and returns its index.
type PublishTensor<'py, 'a> = dyn FnMut(RecognisedObject<'_, 'py>) -> Result<u32> + 'a;

/// Encodes a tree.
struct TreeEncoder<'py, 'a> {
    path: Vec<PathStep<'py>>,
    /// Tensor indices by the address of the source object, which is kept alive so that its address is not reused.
    known: HashMap<usize, (Bound<'py, PyAny>, u32)>,
    publish_tensor: &'a mut PublishTensor<'py, 'a>,
}

/// The structure of a tree, or of one tensor.
pub(super) fn encode_tree<'py, 'a>(
    object: &Bound<'py, PyAny>,
    publish_tensor: &'a mut PublishTensor<'py, 'a>,
) -> Result<TreeStructure> {
    let resolved = arrow::read::resolve(object, Purpose::Conversion)?;
    let object = resolved.as_ref().unwrap_or(object);
    let recognised = recognise(object)?;
    let is_tree = container_of(recognised)?.is_some()
        || matches!(recognised.kind(), Recognised::Leaf)
        || (matches!(recognised.kind(), Recognised::Unknown) && !has_tensor_protocol(object)?);
    if !is_tree {
        return publish_tensor(recognised).map(TreeStructure::Tensor);
    }
    let mut encoder = TreeEncoder { path: Vec::new(), known: HashMap::new(), publish_tensor };
    let result = encoder.encode_node(recognised);
    result.map_err(
        |failure| if encoder.path.is_empty() { failure } else { failure.at(&format_path(&encoder.path)) },
    )
}

impl<'py> TreeEncoder<'py, '_> {
    fn encode_child(&mut self, step: PathStep<'py>, object: &Bound<'py, PyAny>) -> Result<TreeStructure> {
        if self.path.len() > MAX_DEPTH {
            self.path.clear();
            return Err(fail(
                ErrorKind::InvalidArgument,
                format!("the tree is nested more than {MAX_DEPTH} levels deep"),
                "check that no container contains itself",
            ));
        }
        self.path.push(step);
        let result = self.encode_node(recognise(object)?)?;
        self.path.pop();
        Ok(result)
    }

    fn encode_node(&mut self, recognised: RecognisedObject<'_, 'py>) -> Result<TreeStructure> {
        let object = recognised.object();
        if let Some(tensor) = tensor_of_node(recognised)? {
            return self.encode_node(recognise(&tensor)?);
        }
        if let Some(container) = container_of(recognised)? {
            return self.encode_container(object, container);
        }
        match recognised.kind() {
            Recognised::Arrow | Recognised::Pandas => {
                self.encode_node(recognise(&arrow::read::columns(object, Purpose::Conversion)?)?)
            }
            Recognised::Leaf | Recognised::Bytes => encode_value(object),
            Recognised::Unknown if !has_tensor_protocol(object)? => encode_value(object),
            kind if is_scalar(kind) => encode_scalar(recognised),
            _ => {
                if let Some((_, number)) = self.known.get(&(object.as_ptr() as usize)) {
                    return Ok(TreeStructure::Tensor(*number));
                }
                emergency_pool::ensure_headroom(TENSOR_OVERHEAD_BYTES)?;
                let number = (self.publish_tensor)(recognised)?;
                let bytes =
                    (self.known.len() + 1).saturating_mul(size_of::<(usize, Bound<'_, PyAny>, u32)>());
                self.known.try_reserve(1).map_err(|_| Error::out_of_memory(bytes))?;
                self.known.insert(object.as_ptr() as usize, (object.clone(), number));
                Ok(TreeStructure::Tensor(number))
            }
        }
    }

    fn encode_container(
        &mut self,
        object: &Bound<'py, PyAny>,
        container: Container,
    ) -> Result<TreeStructure> {
        let ordered = container == Container::Dict
            && object.get_type().is(&object.py().import("collections")?.getattr("OrderedDict")?);
        match container {
            Container::Dict if ordered || object.is_exact_instance_of::<PyDict>() => {
                let items = object.cast::<PyDict>().map_err(PyErr::from)?.iter();
                let items = try_collect(items.map(Ok::<_, Failure>))?;
                let pairs = items.into_iter().map(|(name, item)| {
                    let key = encode_key(&name)?;
                    Ok::<_, Failure>((key, self.encode_child(PathStep::Key(name), &item)?))
                });
                Ok(TreeStructure::Dict(ordered, try_collect(pairs)?))
            }
            Container::List if object.is_exact_instance_of::<PyList>() => {
                Ok(TreeStructure::List(self.encode_items(object)?))
            }
            Container::Tuple if object.is_exact_instance_of::<PyTuple>() => {
                Ok(TreeStructure::Tuple(self.encode_items(object)?))
            }
            _ => Err(unsupported_object(object)),
        }
    }

    fn encode_items(&mut self, object: &Bound<'py, PyAny>) -> Result<Vec<TreeStructure>> {
        let items = try_collect(object.try_iter()?.map(|item| item.map_err(Failure::from)))?;
        try_collect(
            items.iter().enumerate().map(|(index, item)| self.encode_child(PathStep::Index(index), item)),
        )
    }
}

/// Encodes a key of a dict: a value, or a tuple of keys.
fn encode_key(object: &Bound<'_, PyAny>) -> Result<TreeStructure> {
    if let Ok(items) = object.cast_exact::<PyTuple>() {
        return Ok(TreeStructure::Tuple(items.iter().map(|item| encode_key(&item)).collect::<Result<_>>()?));
    }
    encode_value(object)
}

fn encode_value(object: &Bound<'_, PyAny>) -> Result<TreeStructure> {
    if object.is_none() {
        return Ok(TreeStructure::None);
    }
    if let Ok(value) = object.cast_exact::<PyBool>() {
        return Ok(TreeStructure::Boolean(value.is_true()));
    }
    if let Ok(value) = object.cast_exact::<PyInt>() {
        let number = value.extract().map_err(|_| {
            let fact = "an integer outside the range of 128-bit integers cannot be published";
            fail(ErrorKind::InvalidArgument, fact, "publish it as text")
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
            let fact = "a string with a lone surrogate cannot be published";
            fail(ErrorKind::InvalidArgument, fact, "encode it, and publish bytes")
        })?;
        // The bytes are valid UTF-8, so the default is never used.
        let text = String::from_utf8(try_copy(text.as_bytes())?).unwrap_or_default();
        return Ok(TreeStructure::Text(text));
    }
    if let Ok(value) = object.cast_exact::<PyBytes>() {
        return Ok(TreeStructure::Bytes(try_copy(value.as_bytes())?));
    }
    Err(unsupported_object(object))
}

fn unsupported_object(object: &Bound<'_, PyAny>) -> Failure {
    let fact = format!("an object of type {} cannot be published", type_name(object));
    let hint = known_hint(object);
    let others = "publish dicts, lists and tuples of tensors, numbers and text";
    fail(ErrorKind::InvalidArgument, fact, hint.as_deref().unwrap_or(others))
}

/// Encodes a NumPy scalar, which is a value and not a tensor.
fn encode_scalar(recognised: RecognisedObject<'_, '_>) -> Result<TreeStructure> {
    let object = recognised.object();
    let source = crate::conversion::reading::read(recognised)?;
    let SourceMemory::InPlace(tensor) = source.memory else { return Err(unsupported_object(object)) };
    let bytes: Vec<u8> = object.call_method0("tobytes")?.extract()?;
    if bytes.len() != tensor.dtype().size() {
        return Err(unsupported_object(object));
    }
    Ok(TreeStructure::Scalar(tensor.dtype(), bytes))
}

/// Returns the tensor with an index.
type MakeTensor<'py, 'a> = dyn FnMut(u32) -> Result<Bound<'py, PyAny>> + 'a;

/// Decodes a tree.
pub(super) fn decode_tree<'py, 'a>(
    py: Python<'py>,
    structure: &TreeStructure,
    make_tensor: &'a mut MakeTensor<'py, 'a>,
) -> Result<Bound<'py, PyAny>> {
    let mut path = Vec::new();
    let result = decode_node(py, structure, make_tensor, &mut path);
    result.map_err(|failure| if path.is_empty() { failure } else { failure.at(&format_path(&path)) })
}

/// On failure, `path` is the path of the failed node.
fn decode_node<'py>(
    py: Python<'py>,
    structure: &TreeStructure,
    make_tensor: &mut MakeTensor<'py, '_>,
    path: &mut Vec<PathStep<'py>>,
) -> Result<Bound<'py, PyAny>> {
    let mut decode_items = |items: &[TreeStructure], path: &mut Vec<PathStep<'py>>| {
        try_collect(items.iter().enumerate().map(|(index, item)| {
            path.push(PathStep::Index(index));
            let made = decode_node(py, item, make_tensor, path)?;
            path.pop();
            Ok::<_, Failure>(made)
        }))
    };
    Ok(match structure {
        TreeStructure::Tensor(number) => {
            emergency_pool::ensure_headroom(TENSOR_OVERHEAD_BYTES)?;
            make_tensor(*number)?
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
        TreeStructure::Scalar(dtype, bytes) => decode_scalar(py, *dtype, bytes)?,
        TreeStructure::List(items) => objects::list(py, decode_items(items, path)?)?.into_any(),
        TreeStructure::Tuple(items) => objects::tuple(py, decode_items(items, path)?)?.into_any(),
        TreeStructure::Dict(ordered, items) => {
            let dict = if *ordered {
                py.import("collections")?.getattr("OrderedDict")?.call0()?
            } else {
                PyDict::new(py).into_any()
            };
            for (key, item) in items {
                let key = decode_node(py, key, make_tensor, path)?;
                path.push(PathStep::Key(key.clone()));
                dict.set_item(key, decode_node(py, item, make_tensor, path)?)?;
                path.pop();
            }
            dict
        }
    })
}

fn decode_scalar<'py>(py: Python<'py>, dtype: DType, bytes: &[u8]) -> Result<Bound<'py, PyAny>> {
    let dtype = frameworks::numpy::dtype_object(py, dtype)?;
    let array = py.import("numpy")?.call_method1("frombuffer", (PyBytes::new(py, bytes), dtype))?;
    Ok(array.get_item(0)?)
}

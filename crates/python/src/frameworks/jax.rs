//! JAX: the buffer protocol and jaxlib's own DLPack functions, with the public ones where those are missing.
//!
//! JAX shares memory that is aligned to 64 bytes and has no gaps, in any order of the dimensions; the
//! planner packs everything else, so JAX never copies behind our back. Narrow types (int4, float4) it keeps
//! packed; they go through `device_put`, which copies. 64-bit types exist only while x64 is on, which is
//! read at each call.

use super::{Framework, import};
use crate::buffers::from_buffer;
use crate::call;
use crate::errors::{Failure, Result, fail, forget, refused};
use crate::kinds::{Builtin, Form};
use crate::owner::{Buffer, Owner};
use crate::settings::only_public_doors;
use crate::source::{Memory, Source};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString};
use tensorferry_core::dtype::DTypes;
use tensorferry_core::host::{ALIGNMENT, HostBlock};
use tensorferry_core::plan::{Holds, Nature, Pending, Strides, TargetFacts};
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Tensor, frozen};

pub(crate) struct Jax;

const PACKED: DTypes = DTypes::of(&[DType::Int4, DType::UInt4, DType::Float4E2M1Fn]);

static FACTS: TargetFacts = TargetFacts {
    framework: "jax",
    title: "JAX",
    dtypes: DTypes::ALL.without(DTypes::of(&[DType::Float6E2M3Fn, DType::Float6E3M2Fn])),
    repacked: PACKED,
    own_memory: false,
    wide: true,
    narrow_by_default: false,
    swapped: false,
    strides: Strides::Permuted,
    alignment: ALIGNMENT,
    max_rank: 64,
    holds: Holds::Immutable,
};

/// The element types that old versions of JAX lack, by the name of the attribute in `jax.numpy`.
const YOUNG: [DType; 4] = [DType::Float8E3M4, DType::Float8E4M3, DType::Float8E8M0Fnu, DType::Float4E2M1Fn];

struct State {
    /// `jaxlib`'s import and export functions.
    doors: Option<(Py<PyAny>, Py<PyAny>)>,
    from_dlpack: Py<PyAny>,
    device_put: Py<PyAny>,
    cpu: Py<PyAny>,
    /// An object and the name of its attribute that says whether 64-bit types are on.
    x64: (Py<PyAny>, Py<PyString>),
    /// What it accepts while they are off, and while they are on.
    facts: [TargetFacts; 2],
}

static STATE: PyOnceLock<State> = PyOnceLock::new();

fn state(py: Python<'_>) -> Result<&'static State> {
    STATE.get_or_try_init(py, || {
        let jax = import(py, Builtin::Jax)?;
        let numpy = py.import("jax.numpy")?;
        let cpu = jax.call_method1("devices", ("cpu",))?.get_item(0)?;
        let quick = py.import("jax._src.config").and_then(|config| config.getattr("enable_x64"));
        let x64 = match quick {
            Ok(flag)
                if !only_public_doors()
                    && flag.getattr("value").is_ok_and(|v| v.extract::<bool>().is_ok()) =>
            {
                (flag.unbind(), PyString::intern(py, "value").unbind())
            }
            _ => (jax.getattr("config")?.unbind(), PyString::intern(py, "jax_enable_x64").unbind()),
        };
        let mut dtypes = FACTS.dtypes;
        for dtype in YOUNG {
            if !numpy.hasattr(dtype.name())? {
                dtypes = dtypes.without(DTypes::of(&[dtype]));
            }
        }
        let mut state = State {
            doors: if only_public_doors() { None } else { doors(py) },
            from_dlpack: py.import("jax.dlpack")?.getattr("from_dlpack")?.unbind(),
            device_put: jax.getattr("device_put")?.unbind(),
            cpu: cpu.unbind(),
            x64,
            facts: [TargetFacts { dtypes, wide: false, ..FACTS }, TargetFacts { dtypes, ..FACTS }],
        };
        if !carries_float8(py, &state) {
            for facts in &mut state.facts {
                facts.dtypes = facts.dtypes.without(DTypes::FLOAT8);
            }
        }
        Ok(state)
    })
}

/// `jaxlib`'s functions, from where this version keeps them.
fn doors(py: Python<'_>) -> Option<(Py<PyAny>, Py<PyAny>)> {
    let module = ["jaxlib._jax", "jaxlib.xla_extension"].into_iter().find_map(|name| py.import(name).ok())?;
    let import = module.getattr("dlpack_managed_tensor_to_buffer").ok()?;
    let export = module.getattr("buffer_to_dlpack_managed_tensor").ok()?;
    Some((import.unbind(), export.unbind()))
}

/// Whether this version takes 8-bit floats by DLPack, found by handing it one.
fn carries_float8(py: Python<'_>, state: &State) -> bool {
    let one = || -> Result<Tensor<Owner>> {
        let block = HostBlock::new(1)?;
        let data = block.data();
        // SAFETY: the block has one byte, which is set here, and it is the owner.
        Ok(unsafe {
            data.write(0);
            let layout = Layout::dense(1, &[1])?;
            let owner = Owner::Block(block);
            Tensor::new(
                data,
                DType::Float8E5M2,
                layout,
                Device::CPU,
                ByteOrder::Native,
                Access::ReadWrite,
                owner,
            )?
        })
    };
    one().and_then(|tensor| import_tensor(py, state, tensor)).is_ok()
}

impl Framework for Jax {
    fn facts(&self, py: Python<'_>) -> Result<&'static TargetFacts> {
        let state = state(py)?;
        let (holder, name) = &state.x64;
        let wide = holder.bind(py).getattr(name.bind(py))?.is_truthy()?;
        Ok(&state.facts[usize::from(wide)])
    }

    fn read<'py>(&self, object: &Bound<'py, PyAny>, _form: Form) -> Result<Source<'py>> {
        // The buffer protocol is the quickest door; it has no word for bfloat16 and its like, nor for spread arrays.
        let tensor = if only_public_doors() { None } else { Buffer::try_export(object) };
        let tensor = match tensor {
            Some(buffer) => from_buffer(buffer),
            None if is_deleted(object) => Err(deleted()),
            None if is_spread(object)? => return later(object, Pending::Gather),
            None => export(object),
        };
        let mut tensor = match tensor {
            Ok(tensor) => tensor,
            Err(failure) => return explain(object, failure),
        };
        if frozen::covers(tensor.data() as usize) {
            tensor.set_read_only();
        } else {
            // SAFETY: memory that JAX allocated, or that we lent it as writable: what we lent as read-only is covered
            // above. A buffer says "read-only" because arrays are immutable, which is not the memory's doing.
            unsafe { tensor.set_writable() };
        }
        Ok(Source::here(object.clone(), "jax", tensor).with_nature(Nature::Immutable))
    }

    fn materialise(&self, object: &Bound<'_, PyAny>, _pending: Pending) -> Result<Tensor<Owner>> {
        let array = super::numpy::as_array(object).map_err(|failure| refused(object.py(), "JAX", failure))?;
        super::numpy::read_array(&array)
    }

    fn write<'py>(&self, py: Python<'py>, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
        let state = state(py)?;
        let cpu = state.cpu.bind(py);
        if PACKED.contains(tensor.dtype()) {
            let array = super::numpy::write_array(py, tensor)?;
            let made = call::call2(state.device_put.bind(py), &array, cpu)
                .and_then(|made| call::method(&made, intern!(py, "block_until_ready")));
            return made.map_err(|error| refused(py, "JAX", error));
        }
        import_tensor(py, state, tensor)
    }
}

/// Makes an array over the memory of a tensor, by the quickest door there is.
fn import_tensor<'py>(py: Python<'py>, state: &State, tensor: Tensor<Owner>) -> Result<Bound<'py, PyAny>> {
    let capsule = crate::capsule::legacy(py, tensor)?;
    let Some((door, _)) = &state.doors else { return public(py, state, &capsule) };
    match call::call3(door.bind(py), &capsule, state.cpu.bind(py), py.None().bind(py)) {
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            forget(py, error);
            public(py, state, &capsule)
        }
        made => made.map_err(|error| refused(py, "JAX", error)),
    }
}

/// The public door, for a jaxlib whose own function takes other arguments than we know. It wants an object with
/// `__dlpack__`, not a capsule.
fn public<'py>(py: Python<'py>, state: &State, capsule: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let tensor = crate::capsule::take(capsule)?.map_owner(Owner::managed);
    let parcel = crate::parcel::Parcel::wrap(py, tensor, true)?;
    call::call1(state.from_dlpack.bind(py), &parcel).map_err(|error| refused(py, "JAX", error))
}

/// Exports by DLPack. A capsule of the array itself would make `x.delete()` abort the process, so jaxlib's function
/// gets a sibling over the same memory; `__dlpack__` sees to that by itself.
fn export(object: &Bound<'_, PyAny>) -> Result<Tensor<Owner>> {
    let py = object.py();
    let capsule = match &state(py)?.doors {
        Some((_, door)) => {
            call::call1(door.bind(py), &object.call_method1(intern!(py, "addressable_data"), (0,))?)?
        }
        None => call::method(object, intern!(py, "__dlpack__"))?,
    };
    Ok(crate::capsule::take(&capsule)?.map_owner(Owner::managed))
}

/// Whether the array lies on more than one device. jaxlib would export the first piece as if it were the whole.
fn is_spread(object: &Bound<'_, PyAny>) -> Result<bool> {
    let py = object.py();
    if let Ok(pieces) = object.getattr(intern!(py, "_arrays"))
        && let Ok(pieces) = pieces.cast::<PyList>()
    {
        return Ok(pieces.len() != 1);
    }
    // Deleted arrays have no pieces to count; the export says so.
    Ok(object.getattr("sharding")?.getattr("device_set")?.len()? != 1)
}

fn later<'py>(object: &Bound<'py, PyAny>, pending: Pending) -> Result<Source<'py>> {
    let dtype = named_type(object)?;
    let shape: Vec<i64> = object.getattr("shape")?.extract()?;
    let layout = Layout::dense(dtype.size(), &shape)?;
    Ok(Source {
        object: object.clone(),
        framework: "jax",
        memory: Memory::Later { pending, dtype, layout },
        nature: Nature::Immutable,
        requires_grad: false,
        through_array: false,
    })
}

fn named_type(object: &Bound<'_, PyAny>) -> Result<DType> {
    let name = object.getattr("dtype")?.to_string();
    DType::from_name(&name).ok_or_else(|| {
        fail(
            ErrorKind::UnsupportedDType,
            format!("JAX's {name} has no counterpart in other frameworks"),
            "cast it first: x.astype(\"int8\")",
        )
    })
}

fn is_deleted(object: &Bound<'_, PyAny>) -> bool {
    object.call_method0("is_deleted").and_then(|value| value.is_truthy()).unwrap_or(false)
}

fn deleted() -> Failure {
    fail(
        ErrorKind::NotATensor,
        "the JAX array was deleted, or donated to a jitted function, and has no memory any more",
        "carry it before it is donated, or leave it out of donate_argnums",
    )
}

/// An export that failed: packed types are unpacked by JAX itself, the rest is said in our words.
fn explain<'py>(object: &Bound<'py, PyAny>, failure: Failure) -> Result<Source<'py>> {
    if is_deleted(object) {
        return Err(deleted());
    }
    if PACKED.contains(named_type(object)?) {
        return later(object, Pending::Unpack);
    }
    if named_type(object)?.is_float8() {
        return Err(fail(
            ErrorKind::UnsupportedDType,
            "this version of JAX does not export its 8-bit floats",
            "pass jax.lax.bitcast_convert_type(x, \"uint8\") to carry the bytes, or update JAX",
        ));
    }
    Err(refused(object.py(), "JAX", failure))
}

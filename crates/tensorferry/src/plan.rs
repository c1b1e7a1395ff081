//! Conversions that share the memory where that is possible, and plans that say beforehand what they do and why.

use crate::error::{Error, Result};
use crate::tensor::Tensor;
use std::fmt;
use tensorferry_core::dtype::DTypes;
use tensorferry_core::plan::{
    self, Alignment, DTypeRequest, DeviceRequest, SourceDescription, SourceMutability, Strides,
    SupportedDevices, TargetCapabilities, TargetMutability,
};
use tensorferry_core::{DType, Device, Error as CoreError, ErrorKind};

/// What the result of [`Tensor::convert`] must be. By default every tensor is its own result.
///
/// ```
/// use tensorferry::{ConvertOptions, DType, Tensor};
///
/// let tensor = Tensor::from_vec(vec![1.0f64, 2.0], &[2])?;
/// let plan = tensor.plan(&ConvertOptions::new().dtype(DType::Float32))?;
/// assert_eq!((plan.shares(), plan.bytes()), (false, 8));
/// assert_eq!(plan.reasons().collect::<Vec<_>>(), ["the values are converted from float64 to float32"]);
/// # Ok::<(), tensorferry::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConvertOptions {
    dtype: Option<DType>,
    packed: bool,
    writable: bool,
    copy: Option<bool>,
    max_bytes: Option<usize>,
}

impl ConvertOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests this element type. The cast is that of [`Tensor::cast`], but a complex tensor becomes no real type.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Requests dense row-major memory, aligned for the element type and in native byte order, as
    /// [`as_slice`](Tensor::as_slice) needs it.
    #[must_use]
    pub fn packed(mut self) -> Self {
        self.packed = true;
        self
    }

    /// Requests memory that this handle may write: a copy, if the memory is read-only or has other handles.
    #[must_use]
    pub fn writable(mut self) -> Self {
        self.writable = true;
        self
    }

    /// Always copies, or never: an error instead of a copy.
    #[must_use]
    pub fn copy(mut self, copy: bool) -> Self {
        self.copy = Some(copy);
        self
    }

    /// Returns an error instead of allocating more than this.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = Some(bytes);
        self
    }

    fn for_planner(&self) -> plan::ConvertOptions {
        plan::ConvertOptions {
            dtype: self.dtype.map_or(DTypeRequest::Same, DTypeRequest::Type),
            copy: self.copy,
            writable: self.writable.then_some(true),
            budget: self.max_bytes,
            device: DeviceRequest::Nearest,
        }
    }

    /// An error of the planner, in terms of these options. The planner's facts name frameworks and its own options.
    fn reword(&self, error: CoreError) -> Error {
        let kind = error.kind();
        match (kind, self.max_bytes) {
            (ErrorKind::CopyRequired, _) => {
                let reason =
                    error.fact().split_once("needs a copy: ").map_or(error.fact(), |(_, reason)| reason);
                let fact = format!("the conversion needs a copy: {reason}");
                Error::new(kind, fact, "allow the copy: leave out copy(false)")
            }
            (ErrorKind::OutOfMemory, Some(limit)) => {
                let fact = error.fact().replace("the budget is", "max_bytes is");
                Error::new(
                    kind,
                    fact,
                    format!("pass more than max_bytes({limit}), or convert a slice at a time"),
                )
            }
            _ => Error::from_core(error),
        }
    }

    /// What the planner of the core knows a framework by. The name is part of sentences.
    fn target(&self) -> TargetCapabilities {
        TargetCapabilities {
            framework: "result",
            title: "the result",
            dtypes: DTypes::ALL,
            repacked: DTypes::NONE,
            host_only: DTypes::NONE,
            own_memory: None,
            keeps_64_bit: true,
            narrow_by_default: false,
            accepts_swapped_bytes: !self.packed,
            strides: if self.packed { Strides::Dense } else { Strides::Bytes },
            alignment: 1,
            max_rank: usize::MAX,
            mutability: TargetMutability::Flagged,
            devices: SupportedDevices::Both,
            default_device: Device::CPU,
            cpu_count: 1,
            default_cpu: 0,
            drops_on_own_threads: false,
        }
    }
}

/// What [`Tensor::convert`] does, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    dtype: DType,
    bytes: usize,
    /// A step for each reason to copy, in a word or two, and the reason.
    steps: Vec<(&'static str, String)>,
    notes: Vec<String>,
}

impl Plan {
    /// Whether the result uses the memory of the tensor.
    pub fn shares(&self) -> bool {
        self.steps.is_empty()
    }

    /// The element type of the result.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of new memory: 0 for a share.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Why the values are copied, one clause each; nothing for a share.
    pub fn reasons(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|(_, reason)| reason.as_str())
    }

    /// What else to know about the result, one clause each.
    pub fn notes(&self) -> impl Iterator<Item = &str> {
        self.notes.iter().map(String::as_str)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shares() {
            f.write_str("share the memory")?;
        } else {
            write!(f, "copy to {} bytes", self.bytes)?;
        }
        for (kind, reason) in &self.steps {
            write!(f, "\n  {kind}: {reason}")?;
        }
        for note in &self.notes {
            write!(f, "\n  note: {note}")?;
        }
        Ok(())
    }
}

impl Tensor {
    /// What [`convert`](Self::convert) would do with these options. No value is read.
    ///
    /// # Errors
    /// When `convert` would return an error instead of starting.
    pub fn plan(&self, options: &ConvertOptions) -> Result<Plan> {
        let core = self.core();
        let source = SourceDescription {
            framework: "tensor",
            dtype: core.dtype(),
            layout: core.layout(),
            device: core.device(),
            order: core.order(),
            address: core.data() as usize,
            alignment: Alignment::Guaranteed,
            access: core.access(),
            // A write through the result would be seen through other handles.
            mutability: match self.has_other_handles() {
                true => SourceMutability::Immutable,
                false => SourceMutability::Temporary,
            },
            pending: None,
            through_array: false,
            counts: None,
            drop_lock: false,
        };
        let target = options.target();
        let plan =
            plan::decide(&source, &target, &options.for_planner()).map_err(|error| options.reword(error))?;
        if !plan.shares() {
            self.check_host()?;
        }
        let sentence =
            |reason: &plan::Reason| (reason.kind(), reason.sentence(&source, &target).into_owned());
        Ok(Plan {
            dtype: plan.dtype,
            bytes: if plan.shares() { 0 } else { self.len() * plan.dtype.size() },
            steps: plan.reasons().iter().map(sentence).collect(),
            notes: plan.notes.iter().map(|note| note.sentence(&target).into_owned()).collect(),
        })
    }

    /// The same values as the options request them: the tensor itself, or a copy in dense memory if the memory does not
    /// allow that.
    ///
    /// ```
    /// use tensorferry::{ConvertOptions, Tensor};
    ///
    /// let matrix = Tensor::from_vec(vec![1u8, 2, 3, 4], &[2, 2])?;
    /// let packed = matrix.permute(&[1, 0])?.convert(&ConvertOptions::new().packed())?;
    /// assert_eq!(packed.as_slice::<u8>()?, [1, 3, 2, 4]);
    /// # Ok::<(), tensorferry::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the options forbid the copy that is needed, the tensor to copy is on a GPU, or memory runs out.
    pub fn convert(self, options: &ConvertOptions) -> Result<Self> {
        let plan = self.plan(options)?;
        if plan.shares() { Ok(self) } else { self.cast(plan.dtype()) }
    }
}

//! GPUs by UUID. A GPU's ordinal depends on the process, its UUID does not.

use crate::driver::{Driver, require};
use crate::gpu::Gpu;
use crate::hints;
use std::fmt;
use std::sync::OnceLock;
use tensorferry_core::{Error, ErrorKind, Result};

/// The UUID of a GPU, or of a MIG instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// As `nvidia-smi -L` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            let dash = if matches!(index, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The UUIDs of all GPUs that this process sees. The query creates no context.
fn all() -> Result<&'static [Uuid]> {
    static ALL: OnceLock<Vec<Uuid>> = OnceLock::new();
    let driver = Driver::get()?;
    if let Some(known) = ALL.get() {
        return Ok(known);
    }
    let uuid_of = |index: usize| {
        let (mut device, mut uuid) = (0, [0; 16]);
        driver.device(&mut device, index as i32)?;
        let queried = driver.uuid(&mut uuid, device);
        let queried = queried.or_else(|| driver.legacy_uuid(&mut uuid, device));
        require("cuDeviceGetUuid", queried)?;
        Ok(Uuid(uuid))
    };
    let found = (0..Gpu::count()?).map(uuid_of).collect::<Result<Vec<_>>>()?;
    Ok(ALL.get_or_init(|| found))
}

impl Gpu {
    /// Its UUID.
    ///
    /// # Errors
    /// If the driver does not report it.
    pub fn uuid(&self) -> Result<Uuid> {
        let known = all()?.get(self.index() as usize).copied();
        known.ok_or_else(|| Error::new(ErrorKind::DeviceFailed, format!("cuda:{} has no UUID", self.index())))
    }

    /// The GPU with this UUID, whatever its ordinal is in this process.
    ///
    /// # Errors
    /// If this process does not see the GPU, or the driver is missing.
    pub fn by_uuid(uuid: Uuid) -> Result<&'static Self> {
        match all()?.iter().position(|&other| other == uuid) {
            Some(index) => Self::get(index as i32),
            None => Err(Error::new(
                ErrorKind::UnsupportedDevice,
                format!("the memory is on {uuid}, which this process does not see"),
            )
            .with_hint(hints::EXPOSE_PRODUCER_GPU)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_as_nvidia_smi_does() {
        let uuid = Uuid(std::array::from_fn(|index| index as u8 * 0x11));
        assert_eq!(uuid.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}

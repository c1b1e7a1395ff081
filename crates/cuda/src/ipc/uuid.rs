//! Which GPU it is, in every process.

use crate::driver::{Driver, needed};
use crate::gpu::Gpu;
use std::fmt;
use std::sync::OnceLock;
use tensorferry_core::{Error, ErrorKind, Result};

/// The name of a GPU, or of a part of one (MIG), which is the same in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    /// As `nvidia-smi -L` writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU")?;
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 0 | 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// Those of all GPUs that this process sees. No context is made for it.
fn all() -> Result<&'static [Uuid]> {
    static ALL: OnceLock<Vec<Uuid>> = OnceLock::new();
    let driver = Driver::get()?;
    if let Some(known) = ALL.get() {
        return Ok(known);
    }
    let of = |index: usize| {
        let (mut device, mut uuid) = (0, [0; 16]);
        // SAFETY: places for the answers.
        unsafe {
            driver.device(&raw mut device, index as i32)?;
            let asked = driver.uuid(&raw mut uuid, device);
            let asked = asked.or_else(|| driver.uuid_of_old(&raw mut uuid, device));
            needed("cuDeviceGetUuid", asked)?;
        }
        Ok(Uuid(uuid))
    };
    let found = (0..Gpu::count()?).map(of).collect::<Result<Vec<_>>>()?;
    Ok(ALL.get_or_init(|| found))
}

impl Gpu {
    /// Its name in every process.
    ///
    /// # Errors
    /// When the driver does not tell.
    pub fn uuid(&self) -> Result<Uuid> {
        let known = all()?.get(self.index() as usize).copied();
        known.ok_or_else(|| Error::new(ErrorKind::DeviceFailed, format!("cuda:{} has no UUID", self.index())))
    }

    /// The GPU of this name, whatever its number is here.
    ///
    /// # Errors
    /// Where this process does not see it, or there is no driver.
    pub fn by_uuid(uuid: Uuid) -> Result<&'static Self> {
        match all()?.iter().position(|&other| other == uuid) {
            Some(index) => Self::get(index as i32),
            None => Err(Error::new(
                ErrorKind::UnsupportedDevice,
                format!("the memory is on {uuid}, which this process does not see"),
            )
            .with_advice("let CUDA_VISIBLE_DEVICES name that GPU here too; nvidia-smi -L lists them")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_the_tools_write_it() {
        let uuid = Uuid(std::array::from_fn(|at| at as u8 * 0x11));
        assert_eq!(uuid.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}

//! Which device, and why.

use crate::forward::Device;

use super::{DeviceChoice, EngineError};

/// A device that was opened, and the reason for taking it.
pub(super) struct Opened {
    pub device: Device,
    pub reason: String,
}

/// Opens what was asked for, or the first that works.
///
/// # Errors
/// A device that was named and cannot be opened, with the reason.
pub(super) fn open(choice: DeviceChoice) -> Result<Opened, EngineError> {
    let cpu = |reason: String| {
        Ok(Opened {
            device: Device::cpu(),
            reason,
        })
    };
    match choice {
        DeviceChoice::Cpu => cpu("asked for by --device cpu".to_owned()),
        DeviceChoice::Auto => cpu("no GPU backend is in this build".to_owned()),
        DeviceChoice::Rocm | DeviceChoice::Cuda | DeviceChoice::Simt => {
            Err(EngineError::Usage(format!(
                "device {choice:?}: this build has no such backend; --device cpu works everywhere"
            )))
        }
    }
}

//! The driver's part of opening a device, and what the driver's queues keep with the open device.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use rdmacm_kernel_abi::mlx5::{AllocUcontextReqV2, AllocUcontextResp, AllocUctxFlags, LibCaps};
use rdmacm_kernel_abi::siw::UrespAllocCtx;
use zerocopy::IntoBytes;

use super::{Device, Driver};
use crate::error::{Error, ErrorKind, Result};

/// Doorbell registers that are asked of mlx5.
pub(crate) const DOORBELL_REGISTERS: u32 = 16;
/// How many of them one queue pair is to have to itself.
pub(crate) const UNSHARED_DOORBELL_REGISTERS: u32 = 4;

/// What goes to the driver when a device is opened, and what it answers.
#[derive(Debug)]
pub(super) enum DriverContext {
    Rxe,
    Siw(UrespAllocCtx),
    Mlx5 {
        request: AllocUcontextReqV2,
        answer: AllocUcontextResp,
    },
}

impl DriverContext {
    /// # Errors
    ///
    /// A driver has structures of its own in many commands, which have to be known.
    pub(super) fn new(device: &Device) -> Result<Self> {
        match device.driver {
            Driver::Rxe => Ok(Self::Rxe),
            // It wants room to tell its number, which nothing asks for.
            Driver::Siw => Ok(Self::Siw(UrespAllocCtx::default())),
            Driver::Mlx5 => Ok(Self::Mlx5 {
                request: AllocUcontextReqV2 {
                    total_num_bfregs: DOORBELL_REGISTERS,
                    num_low_latency_bfregs: UNSHARED_DOORBELL_REGISTERS,
                    // Events of the device's own kind belong to such a context only.
                    flags: AllocUctxFlags::DEVX.bits(),
                    max_cqe_version: 1,
                    lib_caps: (LibCaps::UAR_4K | LibCaps::DYN_UAR).bits(),
                    ..Default::default()
                },
                answer: AllocUcontextResp::default(),
            }),
            other => Err(Error::new(
                "open_device",
                ErrorKind::NotSupported,
                format!(
                    "{} ({other}) is not supported by this crate yet",
                    device.name
                ),
            )),
        }
    }

    /// What goes to the driver, and room for its answer.
    pub(super) fn parts(&mut self) -> (&[u8], &mut [u8]) {
        match self {
            Self::Rxe => (&[], &mut []),
            Self::Siw(answer) => (&[], answer.as_mut_bytes()),
            Self::Mlx5 { request, answer } => (request.as_bytes(), answer.as_mut_bytes()),
        }
    }

    /// Asks for less, for a kernel that refused. False when there is nothing to leave out.
    pub(super) fn ask_for_less(&mut self) -> bool {
        match self {
            Self::Mlx5 { request, .. } if request.flags != 0 => {
                request.flags = 0;
                true
            }
            _ => false,
        }
    }

    /// mlx5's answer.
    pub(super) fn mlx5(&self) -> Option<&AllocUcontextResp> {
        match self {
            Self::Mlx5 { answer, .. } => Some(answer),
            Self::Rxe | Self::Siw(_) => None,
        }
    }
}

/// What the queues of a device share.
#[derive(Default)]
pub(super) struct DriverState(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl std::fmt::Debug for DriverState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DriverState")
    }
}

impl DriverState {
    /// The state, made at first use.
    pub(super) fn get_or_make<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        // Held while making it, so that two threads at first use get the same.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = state.clone().and_then(|state| state.downcast().ok());
        match known {
            Some(known) => Ok(known),
            None => {
                let made = Arc::new(make()?);
                *state = Some(made.clone());
                Ok(made)
            }
        }
    }
}

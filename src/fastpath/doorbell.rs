//! The doorbell of devices that are software.

use std::io;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;
use zerocopy::IntoBytes;

use crate::device::Context;
use crate::sys::{FixedCommand, Kernel};

/// The `write()` that makes the kernel look at a send queue.
#[derive(Debug)]
pub(crate) struct Doorbell {
    context: Context,
    /// The context's, one step nearer.
    kernel: Arc<dyn Kernel>,
    command: FixedCommand,
}

impl Doorbell {
    const LENGTH: usize = size_of::<uverbs::CmdHeader>() + size_of::<uverbs::PostSend>();
    /// What the kernel takes as the size of a request; it must be at least 56 and is not used.
    const WQE_SIZE: u32 = 128;

    pub(crate) fn new(context: &Context, qp_handle: u32) -> Self {
        let header = uverbs::CmdHeader {
            command: uverbs::Command::POST_SEND.0,
            in_words: (Self::LENGTH / 4) as u16,
            out_words: (size_of::<uverbs::PostSendResp>() / 4) as u16,
        };
        let body = uverbs::PostSend {
            qp_handle,
            wqe_size: Self::WQE_SIZE,
            ..Default::default()
        };
        let command = [header.as_bytes(), body.as_bytes()].concat();
        Self {
            context: context.clone(),
            kernel: Arc::clone(context.kernel()),
            // The body begins with the address of the answer.
            command: FixedCommand::new(&command, size_of_val(&header)),
        }
    }

    /// Rings; the errno when the kernel refuses. Repeated when a signal interrupts it.
    #[inline(always)]
    pub(super) fn ring(&self) -> Result<(), i32> {
        match self.kernel.write_fixed(self.context.fd(), &self.command) {
            Ok(()) => Ok(()),
            Err(error) => self.ring_again(error),
        }
    }

    #[cold]
    fn ring_again(&self, mut error: io::Error) -> Result<(), i32> {
        while error.raw_os_error() == Some(libc::EINTR) {
            match self.kernel.write_fixed(self.context.fd(), &self.command) {
                Ok(()) => return Ok(()),
                Err(another) => error = another,
            }
        }
        Err(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

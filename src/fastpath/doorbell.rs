//! The doorbell of devices that are software.

use std::io;
use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;
use zerocopy::IntoBytes;

use crate::device::Context;
use crate::sys::{DOORBELL_LENGTH, DoorbellCommand};

/// The `write()` that makes the kernel look at a send queue.
#[derive(Debug)]
pub(crate) struct Doorbell {
    context: Context,
    command: Box<dyn DoorbellCommand>,
}

impl Doorbell {
    /// What the kernel takes as the size of a request; it must be at least 56 and is not used.
    const WQE_SIZE: u32 = 128;

    pub(crate) fn new(context: &Context, qp_handle: u32) -> Self {
        let header = uverbs::CmdHeader {
            command: uverbs::Command::POST_SEND.0,
            in_words: (DOORBELL_LENGTH / 4) as u16,
            out_words: (size_of::<uverbs::PostSendResp>() / 4) as u16,
        };
        let body = uverbs::PostSend {
            qp_handle,
            wqe_size: Self::WQE_SIZE,
            ..Default::default()
        };
        let mut command = [0; DOORBELL_LENGTH];
        let (head, tail) = command.split_at_mut(size_of_val(&header));
        head.copy_from_slice(header.as_bytes());
        tail.copy_from_slice(body.as_bytes());
        // The body begins with the address of the answer.
        let answer_at = size_of_val(&header);
        Self {
            context: context.clone(),
            command: Arc::clone(context.kernel()).doorbell(command, answer_at),
        }
    }

    /// Rings; the errno when the kernel refuses. Repeated when a signal interrupts it.
    #[inline(always)]
    pub(super) fn ring(&self) -> Result<(), i32> {
        match self.command.send(self.context.fd()) {
            Ok(()) => Ok(()),
            Err(error) => self.ring_again(error),
        }
    }

    #[cold]
    fn ring_again(&self, mut error: io::Error) -> Result<(), i32> {
        while error.raw_os_error() == Some(libc::EINTR) {
            match self.command.send(self.context.fd()) {
                Ok(()) => return Ok(()),
                Err(another) => error = another,
            }
        }
        Err(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

//! The doorbell of devices that are software.

use std::sync::Arc;

use rdmacm_kernel_abi::uverbs;
use zerocopy::IntoBytes;

use crate::device::Context;
use crate::sys::{DOORBELL_LENGTH, DoorbellCommand, doorbell_refusal};

/// The `write()` that makes the kernel look at a send queue.
#[derive(Debug)]
pub(crate) struct Doorbell {
    context: Context,
    command: Box<dyn DoorbellCommand>,
}

impl Doorbell {
    /// What the kernel takes as the size of a request; it must be at least 56 and is not used.
    const WQE_SIZE: u32 = 128;

    /// What `write()` returns of a command that was carried out.
    const TAKEN: isize = DOORBELL_LENGTH as isize;

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
            Self::TAKEN => Ok(()),
            refused => self.ring_again(refused),
        }
    }

    #[cold]
    fn ring_again(&self, mut refused: isize) -> Result<(), i32> {
        loop {
            match doorbell_refusal(refused) {
                libc::EINTR => {}
                errno => return Err(errno),
            }
            refused = match self.command.send(self.context.fd()) {
                Self::TAKEN => return Ok(()),
                refused => refused,
            };
        }
    }
}

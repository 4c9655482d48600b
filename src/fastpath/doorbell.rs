//! The doorbell of devices that are software.

use rdmacm_kernel_abi::uverbs;

use crate::device::Context;
use crate::sys::WriteCommand;

/// The `write()` that makes the kernel look at a send queue.
#[derive(Debug)]
pub(crate) struct Doorbell {
    context: Context,
    command: [u8; Self::LENGTH],
}

impl Doorbell {
    const LENGTH: usize = size_of::<uverbs::CmdHeader>() + size_of::<uverbs::PostSend>();
    /// What the kernel takes as the size of a request; it must be at least 56 and is not used.
    const WQE_SIZE: u32 = 128;

    pub(crate) fn new(context: &Context, qp_handle: u32) -> Self {
        use zerocopy::IntoBytes;
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
        let mut command = [0; Self::LENGTH];
        let (head, tail) = command.split_at_mut(size_of_val(&header));
        head.copy_from_slice(header.as_bytes());
        tail.copy_from_slice(body.as_bytes());
        Self {
            context: context.clone(),
            command,
        }
    }

    /// Rings; the errno when the kernel refuses. Repeated when a signal interrupts it.
    pub(super) fn ring(&mut self) -> Result<(), i32> {
        loop {
            let mut response = [0; size_of::<uverbs::PostSendResp>()];
            let command = WriteCommand {
                request: &mut self.command,
                response: Some((size_of::<uverbs::CmdHeader>(), &mut response)),
                indirect: None,
            };
            match self
                .context
                .kernel()
                .write_command(self.context.fd(), command)
            {
                Ok(()) => return Ok(()),
                Err(error) => match error.raw_os_error().unwrap_or(libc::EIO) {
                    libc::EINTR => {}
                    errno => return Err(errno),
                },
            }
        }
    }
}

//! What can be changed of a completion queue.

use std::io;
use std::time::Duration;

use rdmacm_kernel_abi::uverbs::{self, CqModeration};

use super::Cq;
use super::cq::check_entries;
use crate::error::{Error, ErrorKind, Result};
use crate::fastpath::CqResize;

impl Cq {
    /// Changes the queue's room to at least `entries` completions. What it holds stays in it, and
    /// the queue pairs that report to it go on meanwhile.
    ///
    /// # Errors
    ///
    /// No entries, or more than the device allows; fewer than the queue holds: poll first.
    /// [`ErrorKind::NotSupported`] where the queues of the device keep their depth, as siw's. When
    /// the kernel has resized the queue and it cannot be mapped (`map_queue`, for want of memory),
    /// it gives no completions until `resize` succeeds once more; then none is lost.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, entries: u32) -> Result<()> {
        let operation = "resize_cq";
        let context = self.context().clone();
        check_entries(operation, &context, entries)?;
        let mut driver = CqResize::new(&context, entries)?;
        let waiting = self.queue.any().waiting();
        if entries < waiting {
            let text =
                format!("{entries} entries asked for; the queue holds {waiting} completions");
            return Err(Error::invalid(operation, text));
        }
        if !driver.changes(self.queue.any()) {
            return Ok(());
        }
        // In a forked child the places are the parent's to give back.
        let refused = |error| Error::from_os(operation, &error);
        context.check_own().map_err(refused)?;
        let directory = self.queue.any().directory();
        let mut held = directory.as_ref().map(|directory| directory.hold());
        self.queue.change(|queue| {
            queue.catch_up(held.as_mut());
            // The kernel moves what it was not told is taken.
            queue.give_back();
        });
        let cqe = driver.entries();
        let _: uverbs::ResizeCqResp = self.object().with_handle(operation, |cq_handle| {
            let request = uverbs::ResizeCq {
                cq_handle,
                cqe,
                ..Default::default()
            };
            context
                .command_with_driver(uverbs::Command::RESIZE_CQ, &request, driver.part())
                .map_err(|error| explain_resize(operation, entries, &error))
        })?;
        self.queue
            .change(|queue| driver.finish(&context, queue, held))
    }

    /// Has an event of the channel wait for `completions` completions, or for `period` after the
    /// first. The period is in whole microseconds.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotSupported`] where the device cannot do that, as rxe and siw; more than
    /// [`DeviceAttr::max_moderation`](crate::DeviceAttr::max_moderation) says.
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&self, completions: u16, period: Duration) -> Result<()> {
        let operation = "modify_cq";
        let context = self.context();
        let (most, longest) = context.attr()?.max_moderation();
        if most == 0 && longest.is_zero() {
            let name = context.device().name();
            let text = format!("{name} raises each event at once");
            return Err(Error::new(operation, ErrorKind::NotSupported, text));
        }
        if completions > most || period > longest {
            let text = format!(
                "{completions} completions and {period:?} asked for; the device allows {most} and \
                 {longest:?}"
            );
            return Err(Error::invalid(operation, text));
        }
        self.object().with_handle(operation, |cq_handle| {
            let request = uverbs::ExModifyCq {
                cq_handle,
                attr_mask: MODERATE,
                attr: CqModeration {
                    cq_count: completions,
                    cq_period: period.as_micros() as u16,
                },
                reserved: 0,
            };
            let command = uverbs::ExCommand::MODIFY_CQ.0 | uverbs::CMD_FLAG_EXTENDED;
            context
                .command_without_answer(uverbs::Command(command), &request)
                .map_err(|error| Error::from_os(operation, &error))
        })
    }
}

/// The one attribute of a completion queue that there is.
const MODERATE: u32 = 1;

fn explain_resize(operation: &'static str, entries: u32, error: &io::Error) -> Error {
    let described = Error::from_os(operation, error);
    match error.raw_os_error() {
        Some(libc::EINVAL) => described.because(format!(
            "the queue holds more than {entries} completions by now; poll first"
        )),
        _ => described,
    }
}

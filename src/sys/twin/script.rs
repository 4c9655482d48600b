//! What a test told the twin to do wrong.

use std::fmt;
use std::io;
use std::thread::{self, ThreadId};

use rdmacm_kernel_abi::rxe::QueueHeader;

use super::Call;

/// Refusals and tampered answers.
#[derive(Default)]
pub(super) struct Script {
    faults: Vec<Fault>,
    tampering: Vec<Box<Tamper>>,
    ring_tampering: Vec<Box<RingTamper>>,
    netlink_tampering: Vec<Box<NetlinkTamper>>,
    service: Option<Box<Service>>,
    /// The calls that were refused because a test said so.
    pub refused: Vec<Call>,
}

/// Changes an answer: the call, the attribute's id (0 for a command that is written), its bytes.
type Tamper = dyn FnMut(&Call, u16, &mut [u8]) + Send;
/// Changes a ring's header before the ring is handed out.
type RingTamper = dyn FnMut(&mut QueueHeader) + Send;
/// Changes the payload of a netlink message.
type NetlinkTamper = dyn FnMut(&mut Vec<u8>) + Send;
/// Answers what local services are asked.
type Service = dyn FnMut(&[u8]) -> io::Result<Vec<u8>> + Send;

struct Fault {
    matches: Box<dyn FnMut(&Call) -> bool + Send>,
    thread: Option<ThreadId>,
    /// Matching calls that still pass.
    skip: usize,
    /// Matching calls that are refused after those.
    times: usize,
    errno: i32,
}

impl Script {
    /// Puts a service in place of the machine's, which has none.
    pub(super) fn set_service(
        &mut self,
        service: impl FnMut(&[u8]) -> io::Result<Vec<u8>> + Send + 'static,
    ) {
        self.service = Some(Box::new(service));
    }

    pub(super) fn serve(&mut self, request: &[u8]) -> io::Result<Vec<u8>> {
        let service = self.service.as_mut().ok_or(io::ErrorKind::NotFound)?;
        service(request)
    }

    pub(super) fn add_fault(
        &mut self,
        skip: usize,
        times: usize,
        errno: i32,
        thread: Option<ThreadId>,
        matches: impl FnMut(&Call) -> bool + Send + 'static,
    ) {
        self.faults.push(Fault {
            matches: Box::new(matches),
            thread,
            skip,
            times,
            errno,
        });
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
        self.tampering.clear();
        self.ring_tampering.clear();
        self.netlink_tampering.clear();
    }

    pub(super) fn tamper(&mut self, change: impl FnMut(&Call, u16, &mut [u8]) + Send + 'static) {
        self.tampering.push(Box::new(change));
    }

    pub(super) fn tamper_rings(&mut self, change: impl FnMut(&mut QueueHeader) + Send + 'static) {
        self.ring_tampering.push(Box::new(change));
    }

    pub(super) fn tamper_netlink(&mut self, change: impl FnMut(&mut Vec<u8>) + Send + 'static) {
        self.netlink_tampering.push(Box::new(change));
    }

    /// The errno that this call is to fail with, if it is.
    pub(super) fn refuse(&mut self, call: &Call) -> Option<i32> {
        let here = thread::current().id();
        for fault in &mut self.faults {
            let applies = fault.times > 0
                && fault.thread.is_none_or(|thread| thread == here)
                && (fault.matches)(call);
            if applies && fault.skip > 0 {
                fault.skip -= 1;
            } else if applies {
                fault.times -= 1;
                self.refused.push(call.clone());
                return Some(fault.errno);
            }
        }
        None
    }

    pub(super) fn change(&mut self, call: &Call, attr: u16, answer: &mut [u8]) {
        for change in &mut self.tampering {
            change(call, attr, answer);
        }
    }

    pub(super) fn change_ring(&mut self, header: &mut QueueHeader) {
        for change in &mut self.ring_tampering {
            change(header);
        }
    }

    pub(super) fn change_netlink(&mut self, payload: &mut Vec<u8>) {
        for change in &mut self.netlink_tampering {
            change(payload);
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}

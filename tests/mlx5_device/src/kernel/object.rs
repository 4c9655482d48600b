//! Destroying what there is.

use rdmacm_kernel_abi::mlx5::uar_ids;
use rdmacm_kernel_abi::uverbs::ioctl::object;

use crate::world::{FileId, Object, Outcome, World};

impl World {
    /// Destroys an object that must be of this kind. The answer are the counts of events that were
    /// read.
    pub(super) fn destroy_of_kind(
        &mut self,
        file: FileId,
        handle: u32,
        kind: u16,
    ) -> Outcome<Vec<u8>> {
        let found = match self.object(file, handle)? {
            Object::Pd(_) => object::PD,
            Object::Mr(_) => object::MR,
            Object::Mw(_) => object::MW,
            Object::Ah { .. } => object::AH,
            Object::Uar(_) => uar_ids::OBJECT_UAR,
            Object::Cq(_) => object::CQ,
            Object::Srq(_) => object::SRQ,
            Object::Qp(_) => object::QP,
        };
        if found != kind {
            return Err(libc::EINVAL);
        }
        self.destroy(file, handle)
    }

    pub(super) fn destroy(&mut self, file: FileId, handle: u32) -> Outcome<Vec<u8>> {
        let object = self.object(file, handle)?;
        if self.is_busy(object) {
            return Err(libc::EBUSY);
        }
        self.objects.remove(&(file, handle));
        Ok(match object {
            Object::Pd(_) | Object::Ah { .. } => Vec::new(),
            Object::Mr(index) | Object::Mw(index) => {
                self.keys.remove(&index);
                Vec::new()
            }
            Object::Uar(number) => {
                let uar = self.uars.remove(&number).expect("it was found");
                // It stays mapped until the program unmaps it; then the page is not known any
                // more, and is the program's to unmap.
                drop(uar);
                Vec::new()
            }
            Object::Cq(number) => self.remove_cq(number),
            Object::Srq(number) => self.remove_srq(number),
            Object::Qp(number) => self.remove_qp(number),
        })
    }

    fn is_busy(&self, object: Object) -> bool {
        match object {
            Object::Pd(pd) => {
                self.keys.values().any(|key| key.pd == pd)
                    || self.qps.values().any(|qp| qp.pd == pd)
                    || self.srqs.values().any(|srq| srq.pd == pd)
                    || self.objects.values().any(|o| *o == Object::Ah { pd })
            }
            Object::Uar(number) => {
                self.qps.values().any(|qp| qp.uar == number)
                    || self.cqs.values().any(|cq| cq.uar == number)
            }
            Object::Cq(number) => {
                let uses = |qp: &crate::world::Qp| [qp.send_cq, qp.recv_cq].contains(&number);
                self.qps.values().any(uses)
            }
            Object::Srq(number) => self.qps.values().any(|qp| qp.srq == Some(number)),
            Object::Mr(_) | Object::Mw(_) | Object::Ah { .. } | Object::Qp(_) => false,
        }
    }

    fn remove_cq(&mut self, number: u32) -> Vec<u8> {
        self.look_at_pages();
        let cq = self.cqs.remove(&number).expect("it was found");
        self.bury(number);
        let completions = self.take_back(cq.channel, cq.user_handle, cq.events);
        let mut counts = completions.to_ne_bytes().to_vec();
        counts.extend([0; 4]);
        counts
    }

    fn remove_srq(&mut self, number: u32) -> Vec<u8> {
        let srq = self.srqs.remove(&number).expect("it was found");
        let read = self.take_back(srq.async_channel, srq.user_handle, srq.events);
        read.to_ne_bytes().to_vec()
    }

    fn remove_qp(&mut self, number: u32) -> Vec<u8> {
        // What was rung before is not rung after.
        self.look_at_pages();
        let qp = self.qps.remove(&number).expect("it was found");
        self.bury(number);
        if let Some(register) = qp.register {
            self.release_register(qp.file, register);
        }
        let read = self.take_back(qp.async_channel, qp.user_handle, qp.events);
        read.to_ne_bytes().to_vec()
    }

    /// Remembers the number of an object that is no more, for a while.
    fn bury(&mut self, number: u32) {
        self.buried.push_back(number);
        if self.buried.len() > 1000 {
            self.buried.pop_front();
        }
    }
}

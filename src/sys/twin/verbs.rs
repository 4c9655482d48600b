//! The commands about a device's objects, as rxe carries them out.

use rdmacm_kernel_abi::rxe;
use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::attrs::{Answers, Inputs};
use super::discovery::TwinDevice;
use super::files::{FileId, Kind};
use super::objects::{Ah, Object, ObjectId};
use super::{Outcome, World};
use crate::sys::{Attr, IoctlCommand};

impl World {
    /// Carries a uverbs ioctl out.
    pub(super) fn verbs(&mut self, file: FileId, command: &mut IoctlCommand<'_, '_>) -> Outcome {
        let device = self.device_of(file)?;
        if Inputs(command.attrs).is_too_long() {
            self.violation("an attribute of more than 65535 bytes does not fit its record");
            return Err(libc::EINVAL);
        }
        if command.driver_id != device.driver.0 {
            return Err(libc::EINVAL);
        }
        use ioctl::object as o;
        let method = (command.object, command.method);
        if device.is_gone && !is_allowed_after_removal(method) {
            return Err(libc::EIO);
        }
        let is_context = method == (o::DEVICE, ioctl::device::GET_CONTEXT);
        if self.has_context(file) == is_context {
            return Err(libc::EINVAL);
        }
        let attrs = &mut *command.attrs;
        match method {
            (o::DEVICE, ioctl::device::GET_CONTEXT) => self.get_context(file, &device, attrs),
            (o::DEVICE, ioctl::device::INVOKE_WRITE) => self.invoke_write(file, attrs),
            (o::DEVICE, ioctl::device::QUERY_PORT) => query_port(&device, attrs),
            (o::DEVICE, ioctl::device::QUERY_GID_TABLE) => query_gids(&device, attrs),
            (o::DEVICE, ioctl::device::QUERY_GID_ENTRY) => query_gid(&device, attrs),
            (o::CQ, ioctl::cq::CREATE) => self.create_cq(file, &device, attrs),
            (o::SRQ, ioctl::srq::CREATE) => self.create_srq(file, &device, attrs),
            (o::QP, ioctl::qp::CREATE) => self.create_qp(file, &device, attrs),
            (o::ASYNC_EVENT, ioctl::async_event::ALLOC) => {
                let (_, fd) = self.open_file(Kind::AsyncEvents {
                    device_file: file,
                    waiting: Default::default(),
                })?;
                Answers(attrs).put_fd(ioctl::async_event::alloc::FD_HANDLE, fd)
            }
            (o::MR, ioctl::mr::REG_DMABUF) if device.has_dmabuf => self.reg_dmabuf(file, attrs),
            (o::MR, ioctl::mr::REG_DMABUF) => Err(libc::EPROTONOSUPPORT),
            // The handle is attribute 0 and the answer 1, whatever is destroyed.
            (o::PD | o::MR | o::MW | o::AH | o::CQ | o::SRQ | o::QP | o::XRCD, _) => {
                self.destroy(file, command.object, attrs)
            }
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }

    fn has_context(&self, file: FileId) -> bool {
        matches!(
            self.files.kind(file),
            Kind::Uverbs {
                has_context: true,
                ..
            }
        )
    }

    fn get_context(
        &mut self,
        file: FileId,
        device: &TwinDevice,
        attrs: &mut [Attr<'_>],
    ) -> Outcome {
        use ioctl::device::get_context as attr;
        let mut answers = Answers(attrs);
        answers.put(attr::NUM_COMP_VECTORS, &device.completion_vectors)?;
        answers.put(attr::CORE_SUPPORT, &device.core_support)?;
        if let Kind::Uverbs { has_context, .. } = self.files.kind_mut(file) {
            *has_context = true;
        }
        Ok(())
    }

    /// A write command that is wrapped in an ioctl.
    fn invoke_write(&mut self, file: FileId, attrs: &mut [Attr<'_>]) -> Outcome {
        use ioctl::device::invoke_write as attr;
        let number = Inputs(attrs).number(attr::WRITE_CMD)?;
        let request = Inputs(attrs).input(attr::CORE_IN)?.to_vec();
        let mut answer = Answer(Vec::new());
        use uverbs::Command as C;
        match C(number as u32) {
            C::ALLOC_PD => self.alloc_pd(file, &mut answer),
            C::ALLOC_MW => self.alloc_mw(file, &parse(&request)?, &mut answer),
            C::REG_MR => self.reg_mr(file, parse(&request)?, &mut answer),
            C::REREG_MR => self.rereg_mr(file, &parse(&request)?, &mut answer),
            C::CREATE_COMP_CHANNEL => {
                let (_, fd) = self.open_file(Kind::Completions(Default::default()))?;
                use std::os::fd::IntoRawFd;
                answer.put(&uverbs::CreateCompChannelResp {
                    fd: fd.into_raw_fd() as u32,
                })
            }
            C::REQ_NOTIFY_CQ => self.req_notify(file, &parse(&request)?),
            C::CREATE_AH => {
                let number = self.create_ah(file, &parse(&request)?, &mut answer)?;
                // The reserved word is not written.
                Answers(attrs).put(ioctl::UHW_OUT, &number)
            }
            C::OPEN_XRCD => self.open_xrcd(file, &parse(&request)?, &mut answer),
            C::RESIZE_CQ => {
                let driver = self.resize_cq(file, &parse(&request)?, &mut answer)?;
                Answers(attrs).put(ioctl::UHW_OUT, &driver)
            }
            C(extended) if extended == MODIFY_CQ_EX => self.modify_cq(file, &parse(&request)?),
            C::MODIFY_SRQ => {
                let request: uverbs::ModifySrq = parse(&request)?;
                if request.attr_mask == uverbs::SrqAttrMask::LIMIT.bits() {
                    Inputs(attrs).typed::<rxe::ModifySrqCmd>(ioctl::UHW_IN)?;
                }
                match self.modify_srq(file, &request)? {
                    Some(info) => Answers(attrs).put(ioctl::UHW_IN, &info),
                    None => Ok(()),
                }
            }
            C::QUERY_SRQ => self.query_srq(file, &parse(&request)?, &mut answer),
            C::ATTACH_MCAST => self.attach(file, &parse(&request)?),
            C::DETACH_MCAST => self.detach(file, &parse(&request)?),
            C::MODIFY_QP => self.modify_qp(file, &parse(&request)?),
            C::QUERY_QP => self.query_qp(file, &parse(&request)?, &mut answer),
            C(extended) if extended == QUERY_DEVICE_EX => {
                let device = self.device_of(file)?;
                answer.put(&uverbs::ExQueryDeviceResp {
                    base: device.attributes(),
                    device_cap_flags_ex: device.capabilities.bits(),
                    odp_caps: device.paging(),
                    cq_moderation_caps: uverbs::CqModerationCaps {
                        max_cq_moderation_count: device.moderation.0,
                        max_cq_moderation_period: device.moderation.1,
                        reserved: 0,
                    },
                    ..FromZeros::new_zeroed()
                })
            }
            _ => Err(libc::EOPNOTSUPP),
        }?;
        match answer.0.as_slice() {
            [] => Ok(()),
            bytes => Answers(attrs).put(attr::CORE_OUT, bytes),
        }
    }

    fn alloc_pd(&mut self, file: FileId, answer: &mut Answer) -> Outcome {
        let pd_handle = self.objects.insert(file, Object::Pd);
        answer.put(&uverbs::AllocPdResp { pd_handle })
    }

    fn create_ah(
        &mut self,
        file: FileId,
        request: &uverbs::CreateAh,
        answer: &mut Answer,
    ) -> Outcome<u32> {
        let pd = (file, request.pd_handle);
        self.objects.check_pd(pd)?;
        let device = self.device_of(file)?;
        let attr = request.attr;
        let is_port = (1..=device.ports).contains(&attr.port_num);
        let has_gid = usize::from(attr.grh.sgid_index) < device.gids().len();
        if attr.is_global != 1 || !is_port || !has_gid {
            return Err(libc::EINVAL);
        }
        let number = self.objects.next_number();
        let ah = Ah { pd, number, attr };
        let ah_handle = self.objects.insert(file, Object::Ah(ah));
        answer.put(&uverbs::CreateAhResp { ah_handle })?;
        Ok(number)
    }

    fn open_xrcd(
        &mut self,
        file: FileId,
        request: &uverbs::OpenXrcd,
        answer: &mut Answer,
    ) -> Outcome {
        if !self.device_of(file)?.has_xrc {
            return Err(libc::EOPNOTSUPP);
        }
        if (request.fd, request.oflags) != (u32::MAX, libc::O_CREAT as u32) {
            return Err(libc::EINVAL);
        }
        let xrcd_handle = self.objects.insert(file, Object::Xrcd);
        answer.put(&uverbs::OpenXrcdResp { xrcd_handle })
    }

    fn destroy(&mut self, file: FileId, object: u16, attrs: &mut [Attr<'_>]) -> Outcome {
        let id = (file, Inputs(attrs).handle(0)?);
        let found = self.objects.all.get(&id).ok_or(libc::ENOENT)?;
        let events = match (object, found) {
            (ioctl::object::PD, Object::Pd)
            | (ioctl::object::MR, Object::Mr(_))
            | (ioctl::object::MW, Object::Mw(_))
            | (ioctl::object::AH, Object::Ah(_))
            | (ioctl::object::XRCD, Object::Xrcd) => None,
            (ioctl::object::CQ, Object::Cq(cq)) => Some(u64::from(cq.events).to_ne_bytes()),
            (ioctl::object::QP, Object::Qp(_)) | (ioctl::object::SRQ, Object::Srq(_)) => {
                Some([0; 8])
            }
            _ => return Err(libc::EINVAL),
        };
        if self.objects.is_busy(id) {
            return Err(libc::EBUSY);
        }
        if self.objects.has_windows(id) {
            return Err(libc::EINVAL);
        }
        if self.objects.is_used_by_windows(id) {
            self.violation("a queue pair is destroyed before a window that is open through it");
            return Err(libc::ETIMEDOUT);
        }
        self.remove_object(id);
        match (events, object) {
            (Some(counts), ioctl::object::CQ) => Answers(attrs).put(1, &counts),
            (Some(counts), _) => Answers(attrs).put(1, &counts[..4]),
            (None, _) => Ok(()),
        }
    }

    fn remove_object(&mut self, id: ObjectId) {
        match self.objects.all.remove(&id) {
            Some(Object::Cq(cq)) => cq.ring.destroy(&mut self.memory),
            Some(Object::Srq(srq)) => srq.ring.destroy(&mut self.memory),
            Some(Object::Qp(qp)) => {
                for ring in [qp.send_ring, qp.recv_ring].into_iter().flatten() {
                    ring.destroy(&mut self.memory);
                }
            }
            Some(Object::Pd | Object::Mr(_) | Object::Mw(_) | Object::Ah(_) | Object::Xrcd)
            | None => {}
        }
    }

    /// A device's file was closed: the kernel takes back what is left.
    pub(super) fn close_uverbs(&mut self, file: FileId) {
        let left: Vec<_> = self
            .objects
            .all
            .keys()
            .filter(|id| id.0 == file)
            .copied()
            .collect();
        // The library leaves its default protection domain to the kernel.
        let is_pd = |id: &&ObjectId| matches!(self.objects.all[*id], Object::Pd);
        let default = left.iter().find(is_pd).copied();
        for id in left {
            if Some(id) != default {
                let text = format!("a file was closed with {:?}", self.objects.all[&id]);
                self.reclaimed.push(text);
            }
            self.remove_object(id);
        }
    }
}

const QUERY_DEVICE_EX: u32 = uverbs::ExCommand::QUERY_DEVICE.0 | uverbs::CMD_FLAG_EXTENDED;

const MODIFY_CQ_EX: u32 = uverbs::ExCommand::MODIFY_CQ.0 | uverbs::CMD_FLAG_EXTENDED;

/// The bytes of an answer to a write command.
pub(super) struct Answer(Vec<u8>);

impl Answer {
    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, answer: &T) -> Outcome {
        self.0.extend(answer.as_bytes());
        Ok(())
    }
}

/// A request shorter than its structure has no room for what the kernel reads.
fn parse<T: FromBytes>(request: &[u8]) -> Outcome<T> {
    T::read_from_bytes(request).map_err(|_| libc::ENOSPC)
}

fn is_allowed_after_removal((object, method): (u16, u16)) -> bool {
    // DESTROY is 0 where there is no CREATE, else 1.
    match object {
        ioctl::object::PD | ioctl::object::MW | ioctl::object::AH | ioctl::object::XRCD => {
            method == 0
        }
        ioctl::object::MR | ioctl::object::CQ | ioctl::object::SRQ | ioctl::object::QP => {
            method == 1
        }
        _ => false,
    }
}

fn query_port(device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
    use ioctl::device::query_port as attr;
    let port: u64 = Inputs(attrs).typed(attr::PORT_NUM)?;
    if !(1..=u64::from(device.ports)).contains(&port) {
        return Err(libc::EINVAL);
    }
    let legacy_resp = uverbs::QueryPortResp {
        max_msg_sz: 0x8000_0000,
        gid_tbl_len: device.gid_table_length,
        pkey_tbl_len: 1,
        state: 4,
        max_mtu: 5,
        active_mtu: 3,
        link_layer: 2,
        phys_state: 5,
        active_width: 2,
        active_speed: 1,
        ..FromZeros::new_zeroed()
    };
    Answers(attrs).put(
        attr::RESP,
        &ioctl::QueryPortRespEx {
            legacy_resp,
            ..Default::default()
        },
    )
}

fn query_gids(device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
    use ioctl::device::query_gid_table as attr;
    if Inputs(attrs).typed::<u64>(attr::ENTRY_SIZE)? != size_of::<ioctl::GidEntry>() as u64 {
        return Err(libc::EINVAL);
    }
    let entries = device.gids();
    let mut answers = Answers(attrs);
    answers.put(attr::RESP_ENTRIES, entries.as_slice())?;
    answers.put(attr::RESP_NUM_ENTRIES, &(entries.len() as u64))
}

fn query_gid(device: &TwinDevice, attrs: &mut [Attr<'_>]) -> Outcome {
    use ioctl::device::query_gid_entry as attr;
    let inputs = Inputs(attrs);
    let (port, index): (u64, u64) = (inputs.typed(attr::PORT)?, inputs.typed(attr::GID_INDEX)?);
    inputs.typed::<u32>(attr::FLAGS)?;
    let in_table = index < u64::from(device.gid_table_length);
    if !(1..=u64::from(device.ports)).contains(&port) || !in_table {
        return Err(libc::EINVAL);
    }
    let gids = device.gids();
    let found = gids
        .iter()
        .find(|entry| u64::from(entry.gid_index) == index);
    let entry = found.ok_or(libc::ENODATA)?;
    Answers(attrs).put(attr::RESP_ENTRY, entry)
}

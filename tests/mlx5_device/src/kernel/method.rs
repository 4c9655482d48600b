//! Commands in the form of the ioctl.

use std::ptr::NonNull;

use rdmacm_kernel_abi::mlx5::uar_ids;
use rdmacm_kernel_abi::uverbs::DriverId;
use rdmacm_kernel_abi::uverbs::ioctl::{self, device, object};

use super::packet::{Attrs, Packet};
use crate::world::{FileId, Outcome, World};

impl World {
    /// # Safety
    ///
    /// The command must be complete and its pointers valid.
    pub(crate) unsafe fn ioctl(&mut self, file: FileId, command: NonNull<u8>) -> Outcome {
        if self.config.has_write_abi_only {
            return Err(libc::ENOTTY);
        }
        // SAFETY: the caller's promise.
        let Packet { header, mut attrs } = unsafe { Packet::read(command) }?;
        if header.driver_id != DriverId::MLX5.0 {
            return Err(libc::EINVAL);
        }
        let method = (header.object_id, header.method_id);
        if method != (object::DEVICE, device::GET_CONTEXT) {
            let is_probe = method == (object::DEVICE, device::INVOKE_WRITE)
                && !attrs.has(device::invoke_write::CORE_IN);
            if !is_probe {
                self.check_context(file)?;
            }
        }
        self.call_method(file, method, &mut attrs)
    }

    fn call_method(&mut self, file: FileId, method: (u16, u16), attrs: &mut Attrs) -> Outcome {
        match method {
            (object::DEVICE, device::GET_CONTEXT) => self.get_context_method(file, attrs),
            (object::DEVICE, device::INVOKE_WRITE) => self.invoke_write(file, attrs),
            (object::DEVICE, device::QUERY_PORT) => self.query_port_method(attrs),
            (object::DEVICE, device::QUERY_GID_TABLE) => self.query_gid_table(attrs),
            (object::DEVICE, device::QUERY_GID_ENTRY) => self.query_gid_entry(attrs),
            (object::CQ, ioctl::cq::CREATE) => self.create_cq_method(file, attrs),
            (object::SRQ, ioctl::srq::CREATE) => self.create_srq_method(file, attrs),
            (object::QP, ioctl::qp::CREATE) => self.create_qp_method(file, attrs),
            (object::ASYNC_EVENT, ioctl::async_event::ALLOC) => {
                let fd = self.new_async_file(file)?;
                attrs.put_handle(ioctl::async_event::alloc::FD_HANDLE, fd)
            }
            (uar_ids::OBJECT_UAR, uar_ids::ALLOC) => self.alloc_uar(file, attrs),
            (uar_ids::OBJECT_UAR, uar_ids::DESTROY) => {
                attrs.check_known(&[uar_ids::DESTROY_HANDLE])?;
                let handle = attrs.handle(uar_ids::DESTROY_HANDLE)?;
                self.destroy_of_kind(file, handle, uar_ids::OBJECT_UAR)
                    .map(drop)
            }
            (kind, number) if is_destroy(kind, number) => {
                // The handle is attribute 0 and the answer 1, whatever is destroyed.
                attrs.check_known(&[0, 1])?;
                let room = match kind {
                    object::CQ => 8,
                    object::QP | object::SRQ => 4,
                    _ => 0,
                };
                if attrs.room(1) != room {
                    return Err(libc::EINVAL);
                }
                let counts = self.destroy_of_kind(file, attrs.handle(0)?, kind)?;
                attrs.put_some(1, &counts)
            }
            _ => Err(libc::EPROTONOSUPPORT),
        }
    }

    fn get_context_method(&mut self, file: FileId, attrs: &mut Attrs) -> Outcome {
        use device::get_context as id;
        let known = [
            id::NUM_COMP_VECTORS,
            id::CORE_SUPPORT,
            ioctl::UHW_IN,
            ioctl::UHW_OUT,
        ];
        attrs.check_known(&known)?;
        let mut driver = attrs.driver();
        self.get_context(file, &mut driver)?;
        attrs.put_some(id::NUM_COMP_VECTORS, &VECTORS.to_ne_bytes())?;
        attrs.put_some(id::CORE_SUPPORT, &1u64.to_ne_bytes())?;
        attrs.put_some(ioctl::UHW_OUT, &driver.answer)
    }

    fn invoke_write(&mut self, file: FileId, attrs: &mut Attrs) -> Outcome {
        use device::invoke_write as id;
        let known = [
            id::CORE_IN,
            id::CORE_OUT,
            id::WRITE_CMD,
            ioctl::UHW_IN,
            ioctl::UHW_OUT,
        ];
        attrs.check_known(&known)?;
        let number = attrs.typed::<u64>(id::WRITE_CMD)? as u32;
        let request = attrs.bytes(id::CORE_IN);
        let mut driver = attrs.driver();
        let room = attrs.room(id::CORE_OUT);
        let answer = self.command(file, number, &request, room, &mut driver)?;
        attrs.put_some(id::CORE_OUT, &answer)?;
        match driver.answer.is_empty() {
            true => Ok(()),
            false => attrs.put_some(ioctl::UHW_OUT, &driver.answer),
        }
    }

    pub(super) fn new_async_file(&mut self, file: FileId) -> Outcome<u32> {
        let (channel, fd) = self.new_channel(file)?;
        let open = self.files.get_mut(&file).ok_or(libc::EBADF)?;
        open.async_channel.get_or_insert(channel);
        Ok(fd as u32)
    }
}

/// Completion vectors.
pub(super) const VECTORS: u32 = 8;

/// DESTROY is 0 where there is no CREATE, else 1.
fn is_destroy(kind: u16, method: u16) -> bool {
    match kind {
        object::PD | object::MW | object::AH => method == 0,
        object::MR | object::CQ | object::SRQ | object::QP => method == 1,
        _ => false,
    }
}

//! Commands in the form of `write()`, also those that come in an ioctl.

use rdmacm_kernel_abi::uverbs::{self, CmdHeader, Command, ExCmdHeader, ExCommand};
use zerocopy::{FromBytes, IntoBytes};

use super::Driver;
use super::method::VECTORS;
use crate::memory;
use crate::world::{FileId, Outcome, World};

impl World {
    /// # Safety
    ///
    /// The pointers in the command must be valid.
    pub(crate) unsafe fn write(&mut self, file: FileId, bytes: &[u8]) -> Outcome {
        let (header, body) = CmdHeader::read_from_prefix(bytes).map_err(|_| libc::EINVAL)?;
        if header.command & uverbs::CMD_FLAG_EXTENDED != 0 {
            return self.write_extended(file, header, body);
        }
        if usize::from(header.in_words) * 4 != bytes.len() {
            return Err(libc::EINVAL);
        }
        let command = Command(header.command);
        if command != Command::GET_CONTEXT {
            self.check_context(file)?;
        }
        let (request_size, answer_size) = sizes(command).ok_or(libc::EOPNOTSUPP)?;
        let room = usize::from(header.out_words) * 4;
        if body.len() < request_size || room < answer_size {
            return Err(libc::ENOSPC);
        }
        let (request, driver_request) = body.split_at(request_size);
        let mut driver = Driver {
            request: driver_request.into(),
            room: room - answer_size,
            answer: Vec::new(),
        };
        let answer = self.command(file, header.command, request, answer_size, &mut driver)?;
        if answer_size != 0 {
            let at = u64::read_from_prefix(request).expect("it begins so").0;
            memory::write(at, &answer);
            let length = driver.answer.len().min(driver.room);
            memory::write(at + answer_size as u64, &driver.answer[..length]);
        }
        Ok(())
    }

    fn write_extended(&mut self, file: FileId, header: CmdHeader, body: &[u8]) -> Outcome {
        let (more, body) = ExCmdHeader::read_from_prefix(body).map_err(|_| libc::EINVAL)?;
        let length = usize::from(header.in_words) * 8;
        let driver_length = usize::from(more.provider_in_words) * 8;
        if more.cmd_hdr_reserved != 0 || length + driver_length != body.len() {
            return Err(libc::EINVAL);
        }
        let room = usize::from(header.out_words) * 8;
        let driver_room = usize::from(more.provider_out_words) * 8;
        if (more.response == 0) != (room + driver_room == 0) {
            return Err(libc::EINVAL);
        }
        self.check_context(file)?;
        let (request, driver_request) = body.split_at(length);
        let mut driver = Driver {
            request: driver_request.into(),
            room: driver_room,
            answer: Vec::new(),
        };
        let mut answer = self.command(file, header.command, request, room, &mut driver)?;
        answer.truncate(room);
        driver.answer.truncate(driver_room);
        if more.response != 0 {
            memory::write(more.response, &answer);
            memory::write(more.response + room as u64, &driver.answer);
        }
        Ok(())
    }

    /// Carries a command out. The answer is at most as long as there is room.
    pub(super) fn command(
        &mut self,
        file: FileId,
        number: u32,
        request: &[u8],
        room: usize,
        driver: &mut Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        if number & uverbs::CMD_FLAG_EXTENDED != 0 {
            let number = ExCommand(number & !uverbs::CMD_FLAG_EXTENDED);
            return self.extended_command(file, number, request, room, driver);
        }
        let command = Command(number);
        let (request_size, answer_size) = sizes(command).ok_or(libc::EOPNOTSUPP)?;
        if request.len() < request_size || room < answer_size {
            return Err(libc::ENOSPC);
        }
        use Command as C;
        match command {
            C::GET_CONTEXT => {
                self.get_context(file, driver)?;
                let async_fd = self.new_async_file(file)?;
                answer(&uverbs::GetContextResp {
                    async_fd,
                    num_comp_vectors: VECTORS,
                })
            }
            C::QUERY_DEVICE => answer(&self.device_attributes()),
            C::QUERY_PORT => {
                let request: uverbs::QueryPort = parse(request)?;
                answer(&self.port_attributes(request.port_num.into())?.legacy_resp)
            }
            C::ALLOC_PD => self.alloc_pd(file, driver),
            C::CREATE_AH => self.create_ah(file, &parse(request)?, driver),
            C::REG_MR => self.reg_mr(file, &parse(request)?),
            C::REREG_MR => self.rereg_mr(file, &parse(request)?),
            C::ALLOC_MW => self.alloc_mw(file, &parse(request)?, driver),
            C::CREATE_COMP_CHANNEL => {
                let (_, fd) = self.new_channel(file)?;
                answer(&uverbs::CreateCompChannelResp { fd: fd as u32 })
            }
            C::CREATE_CQ => self.create_cq_command(file, &parse(request)?, driver),
            C::RESIZE_CQ => self.resize_cq(file, &parse(request)?, driver),
            C::CREATE_QP => self.create_qp_command(file, &parse(request)?, driver),
            C::QUERY_QP => self.query_qp(file, &parse(request)?),
            C::MODIFY_QP => self.modify_qp(file, &parse(request)?).map(|()| Vec::new()),
            C::CREATE_SRQ => self.create_srq_command(file, &parse(request)?, driver),
            C::MODIFY_SRQ => self.modify_srq(file, &parse(request)?),
            C::QUERY_SRQ => self.query_srq(file, &parse(request)?),
            C::ATTACH_MCAST => self.attach(file, &parse(request)?),
            C::DETACH_MCAST => self.detach(file, &parse(request)?),
            _ => self.destroy_command(file, command, request),
        }
    }

    fn destroy_command(
        &mut self,
        file: FileId,
        command: Command,
        request: &[u8],
    ) -> Outcome<Vec<u8>> {
        use Command as C;
        use uverbs::ioctl::object;
        // Behind the address of an answer, where there is one.
        let (kind, offset) = match command {
            C::DEALLOC_PD => (object::PD, 0),
            C::DESTROY_AH => (object::AH, 0),
            C::DEREG_MR => (object::MR, 0),
            C::DEALLOC_MW => (object::MW, 0),
            C::DESTROY_CQ => (object::CQ, 8),
            C::DESTROY_QP => (object::QP, 8),
            C::DESTROY_SRQ => (object::SRQ, 8),
            _ => return Err(libc::EOPNOTSUPP),
        };
        let handle = request[offset..offset + 4].try_into().expect("four bytes");
        self.destroy_of_kind(file, u32::from_ne_bytes(handle), kind)
    }

    fn extended_command(
        &mut self,
        file: FileId,
        command: ExCommand,
        request: &[u8],
        room: usize,
        driver: &mut Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        match command {
            ExCommand::QUERY_DEVICE => {
                let asked: uverbs::ExQueryDevice = parse(request)?;
                if asked.comp_mask != 0 || asked.reserved != 0 {
                    return Err(libc::EINVAL);
                }
                let mut bytes = self.query_device_extended(driver)?;
                bytes.truncate(room);
                Ok(bytes)
            }
            ExCommand::MODIFY_QP => {
                let asked: uverbs::ExModifyQp = parse(request)?;
                self.modify_qp(file, &asked.base)?;
                let mut bytes = answer(&uverbs::ExModifyQpResp {
                    comp_mask: 0,
                    response_length: 8,
                })?;
                bytes.truncate(room);
                Ok(bytes)
            }
            ExCommand::MODIFY_CQ => self.modify_cq(file, &parse(request)?),
            _ => Err(libc::EOPNOTSUPP),
        }
    }
}

pub(super) fn answer<T: IntoBytes + zerocopy::Immutable>(answer: &T) -> Outcome<Vec<u8>> {
    Ok(answer.as_bytes().to_vec())
}

fn parse<T: FromBytes>(request: &[u8]) -> Outcome<T> {
    let (parsed, _) = T::read_from_prefix(request).map_err(|_| libc::ENOSPC)?;
    Ok(parsed)
}

/// How long a command is, and its answer; without the driver's parts.
fn sizes(command: Command) -> Option<(usize, usize)> {
    use Command as C;
    Some(match command {
        C::GET_CONTEXT => (8, 8),
        C::QUERY_DEVICE => (8, 176),
        C::QUERY_PORT => (16, 40),
        C::ALLOC_PD => (8, 4),
        C::CREATE_AH => (56, 4),
        C::DEALLOC_PD | C::DESTROY_AH | C::DEREG_MR | C::DEALLOC_MW => (4, 0),
        C::REG_MR => (40, 12),
        C::REREG_MR => (48, 8),
        C::ALLOC_MW => (16, 8),
        C::CREATE_COMP_CHANNEL => (8, 4),
        C::CREATE_CQ => (32, 8),
        C::RESIZE_CQ => (16, 8),
        C::DESTROY_CQ => (16, 8),
        C::CREATE_QP => (56, 32),
        C::QUERY_QP => (16, 128),
        C::MODIFY_QP => (112, 0),
        C::DESTROY_QP => (16, 4),
        C::ATTACH_MCAST | C::DETACH_MCAST => (24, 0),
        C::CREATE_SRQ => (32, 16),
        C::MODIFY_SRQ => (16, 0),
        C::QUERY_SRQ => (16, 16),
        C::DESTROY_SRQ => (16, 4),
        _ => return None,
    })
}

//! What a kernel that is as it should be answers of an mlx5 device, and what the input makes of it.

use rdmacm_kernel_abi::mlx5::{AllocUcontextResp, CmdsSuppUhw, CreateAhResp, uar_ids};
use rdmacm_kernel_abi::uverbs::{
    Command, CreateAhResp as CreateAhCoreResp, CreateQpResp as CreateQpCoreResp, GetContextResp,
    QueryPortResp, ioctl,
};
use zerocopy::{FromZeros, IntoBytes};

use super::State;

/// From here on a byte of the input changes the answer that it is read for.
const CHANGE: u8 = 0xc0;

impl State {
    /// Gives the right answer, as far as there is room, or what the input says instead: the right one
    /// with a few other bytes, with an end that is missing, or any bytes.
    pub(super) fn distort(&mut self, right: &[u8], answer: &mut [u8]) {
        let length = right.len().min(answer.len());
        answer[..length].copy_from_slice(&right[..length]);
        if answer.is_empty() {
            return;
        }
        match self.byte() {
            0..CHANGE => {}
            shape @ CHANGE..0xe0 => {
                let at = usize::from(self.byte()) % answer.len();
                let end = answer.len().min(at + (1 << (shape & 3)));
                self.fill(&mut answer[at..end]);
            }
            0xe0..0xf0 => {
                let end = usize::from(self.byte()) % answer.len();
                answer[end..].fill(0);
            }
            0xf0.. => self.fill(answer),
        }
    }
}

/// Whether a written command destroys an object.
pub(super) fn destroys(command: Command) -> bool {
    [
        Command::DEALLOC_PD,
        Command::DEREG_MR,
        Command::DESTROY_AH,
        Command::DESTROY_CQ,
        Command::DESTROY_SRQ,
        Command::DESTROY_QP,
    ]
    .contains(&command)
}

/// Whether a method destroys an object.
pub(super) fn is_destroyed_by(method: (u16, u16)) -> bool {
    use ioctl::object;
    [
        (object::PD, ioctl::pd::DESTROY),
        (object::MR, ioctl::mr::DESTROY),
        (object::AH, ioctl::ah::DESTROY),
        (object::CQ, ioctl::cq::DESTROY),
        (object::SRQ, ioctl::srq::DESTROY),
        (object::QP, ioctl::qp::DESTROY),
    ]
    .contains(&method)
}

/// What the kernel grants with a context.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Card {
    /// 16 doorbell registers come with the context. Otherwise they are to be asked for.
    pub has_static_registers: bool,
    /// Completions name queue pairs by a number of the library's.
    pub has_user_index: bool,
}

impl Card {
    /// The right answer of one attribute; of most it is the number of the new object, or any number.
    pub(super) fn answer(
        self,
        method: (u16, u16),
        written: Command,
        attr: u16,
        number: u32,
    ) -> Vec<u8> {
        use ioctl::device::{self, get_context, query_port};
        use ioctl::object::{DEVICE, QP};
        match (method, attr) {
            ((DEVICE, device::GET_CONTEXT), get_context::NUM_COMP_VECTORS) => {
                1u32.to_ne_bytes().into()
            }
            ((DEVICE, device::GET_CONTEXT), ioctl::UHW_OUT) => self.context().as_bytes().into(),
            ((DEVICE, device::QUERY_PORT), query_port::RESP) => port().as_bytes().into(),
            ((DEVICE, device::INVOKE_WRITE), ioctl::UHW_OUT) if written == Command::CREATE_AH => {
                next_hop().as_bytes().into()
            }
            ((QP, ioctl::qp::CREATE), ioctl::UHW_OUT) => register(number).to_ne_bytes().into(),
            ((uar_ids::OBJECT_UAR, uar_ids::ALLOC), uar_ids::ALLOC_MMAP_LENGTH) => {
                4096u32.to_ne_bytes().into()
            }
            _ => numbers(number),
        }
    }

    /// The right answer to a written command, with the driver's part.
    pub(super) fn written(self, command: Command, number: u32) -> Vec<u8> {
        let with = |core: &[u8], driver: &[u8]| [core, driver].concat();
        match command {
            Command::GET_CONTEXT => {
                let core = GetContextResp {
                    num_comp_vectors: 1,
                    ..Default::default()
                };
                with(core.as_bytes(), self.context().as_bytes())
            }
            Command::QUERY_PORT => port().as_bytes().into(),
            Command::CREATE_AH => {
                let core = CreateAhCoreResp { ah_handle: number };
                with(core.as_bytes(), next_hop().as_bytes())
            }
            Command::CREATE_QP => {
                let core = CreateQpCoreResp {
                    qp_handle: number,
                    qpn: number,
                    ..Default::default()
                };
                with(core.as_bytes(), &register(number).to_ne_bytes())
            }
            _ => numbers(number),
        }
    }

    /// What comes with a context.
    fn context(self) -> AllocUcontextResp {
        AllocUcontextResp {
            bf_reg_size: 512,
            tot_bfregs: if self.has_static_registers { 16 } else { 0 },
            max_sq_desc_sz: 1024,
            max_rq_desc_sz: 512,
            max_send_wqebb: 1 << 15,
            max_recv_wr: 1 << 15,
            max_srq_recv_wr: 1 << 15,
            num_ports: 1,
            response_length: size_of::<AllocUcontextResp>() as u32,
            cqe_version: u8::from(self.has_user_index),
            cmds_supp_uhw: CmdsSuppUhw::all().bits(),
            log_uar_size: 12,
            num_uars_per_page: 1,
            ..Default::default()
        }
    }
}

/// One of 16 registers, two a page of four numbers.
fn register(number: u32) -> u32 {
    number % 8 * 4 + number % 2
}

fn next_hop() -> CreateAhResp {
    CreateAhResp {
        response_length: size_of::<CreateAhResp>() as u32,
        dmac: [2; 6],
        ..FromZeros::new_zeroed()
    }
}

/// A port of Ethernet.
fn port() -> QueryPortResp {
    QueryPortResp {
        link_layer: 2,
        active_mtu: 3,
        max_mtu: 5,
        gid_tbl_len: 1,
        ..FromZeros::new_zeroed()
    }
}

fn numbers(number: u32) -> Vec<u8> {
    number.to_ne_bytes().repeat(4)
}

//! Contexts, and what the device says of itself.

use rdmacm_kernel_abi::mlx5;
use rdmacm_kernel_abi::uverbs::{self, DeviceCapFlags};
use zerocopy::{FromZeros, IntoBytes};

use super::Driver;
use crate::world::{FileId, Outcome, UserContext, World};

/// Bytes of a send request.
pub(super) const MAX_SEND_BYTES: u32 = 1024;
/// Bytes of a receive request.
pub(super) const MAX_RECV_BYTES: u32 = 512;
/// Basic blocks of a send queue, and requests of a receive queue.
pub(super) const MAX_QUEUE: u32 = 0x8000;
/// Requests of a shared receive queue, one more than can be used.
pub(super) const MAX_SRQ: u32 = 0x8000;
pub(super) const MAX_SRQ_SEGMENTS: u32 = 31;
pub(super) const MAX_CQE: u32 = 0x3f_ffff;

impl World {
    pub(super) fn get_context(&mut self, file: FileId, driver: &mut Driver<'_>) -> Outcome {
        let open = self.files.get(&file).ok_or(libc::EBADF)?;
        if open.context.is_some() {
            return Err(libc::EINVAL);
        }
        let is_old = driver.request.len() == size_of::<mlx5::AllocUcontextReq>();
        let least = if is_old { 8 } else { 16 };
        let request: mlx5::AllocUcontextReqV2 = driver.parse(least)?;
        if request.comp_mask != 0
            || request.reserved0 != 0
            || request.reserved1 != 0
            || request.reserved2 != 0
        {
            return Err(libc::EOPNOTSUPP);
        }
        let flags = mlx5::AllocUctxFlags::from_bits_retain(request.flags);
        let total = request.total_num_bfregs.next_multiple_of(2);
        if request.total_num_bfregs == 0
            || !(flags - mlx5::AllocUctxFlags::DEVX).is_empty()
            || request.num_low_latency_bfregs > total - 1
            || total > 512
        {
            return Err(libc::EINVAL);
        }
        let caps = mlx5::LibCaps::from_bits_retain(request.lib_caps);
        let is_dynamic = caps.contains(mlx5::LibCaps::DYN_UAR) && !self.config.has_static_uars;
        let static_uars = match is_dynamic {
            true => Vec::new(),
            false => self.add_static_uars(file, total / 2),
        };
        let context = UserContext {
            registers: vec![0; static_uars.len() * 2],
            first_own: (total - request.num_low_latency_bfregs) as usize,
            static_uars,
            is_dynamic,
        };
        self.files.entry(file).or_default().context = Some(context);
        let cqe_version = self.config.cqe_version.min(request.max_cqe_version);
        // What the program can not handle the card does not do either.
        self.config.cqe_version = cqe_version;
        let answer = mlx5::AllocUcontextResp {
            qp_tab_size: 1 << 18,
            bf_reg_size: self.config.bf_reg_size,
            tot_bfregs: if is_dynamic { 0 } else { total },
            cache_line_size: 64,
            max_sq_desc_sz: MAX_SEND_BYTES as u16,
            max_rq_desc_sz: MAX_RECV_BYTES as u16,
            max_send_wqebb: MAX_QUEUE,
            max_recv_wr: MAX_QUEUE,
            max_srq_recv_wr: MAX_SRQ,
            num_ports: 1,
            flow_action_flags: 0,
            comp_mask: (mlx5::AllocUcontextRespMask::CORE_CLOCK_OFFSET
                | mlx5::AllocUcontextRespMask::DUMP_FILL_MKEY
                | mlx5::AllocUcontextRespMask::ECE
                | mlx5::AllocUcontextRespMask::SQD2RTS)
                .bits(),
            response_length: size_of::<mlx5::AllocUcontextResp>().min(driver.room) as u32,
            cqe_version,
            cmds_supp_uhw: (mlx5::CmdsSuppUhw::QUERY_DEVICE | mlx5::CmdsSuppUhw::CREATE_AH).bits(),
            eth_min_inline: mlx5::InlineMode::NONE.0,
            clock_info_versions: 1,
            hca_core_clock_offset: 0,
            log_uar_size: 12,
            num_uars_per_page: 1,
            num_dyn_bfregs: if is_dynamic { 0 } else { 1024 - total },
            dump_fill_mkey: 0x123,
        };
        driver.answer = answer.as_bytes().to_vec();
        Ok(())
    }

    pub(super) fn device_attributes(&self) -> uverbs::QueryDeviceResp {
        use DeviceCapFlags as F;
        let guid = 0xbabe_ef00_0000_0001u64;
        let caps = F::CURR_QP_STATE_MOD
            | F::PORT_ACTIVE_EVENT
            | F::SYS_IMAGE_GUID
            | F::RC_RNR_NAK_GEN
            | F::MEM_WINDOW
            | F::MEM_MGT_EXTENSIONS
            | F::MEM_WINDOW_TYPE_2B;
        uverbs::QueryDeviceResp {
            fw_ver: 0x10_0023_03f4,
            node_guid: guid.into(),
            sys_image_guid: guid.into(),
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_ffff_ffff_f000,
            vendor_id: 0x2c9,
            vendor_part_id: 0x1017,
            hw_ver: 0,
            max_qp: 1 << 17,
            max_qp_wr: MAX_QUEUE,
            device_cap_flags: caps.bits() as u32,
            max_sge: 30,
            max_sge_rd: 30,
            max_cq: 1 << 24,
            max_cqe: MAX_CQE,
            max_mr: 1 << 24,
            max_pd: 1 << 23,
            max_qp_rd_atom: 16,
            max_res_rd_atom: 1 << 21,
            max_qp_init_rd_atom: 16,
            // Of the card, not of the machine.
            atomic_cap: 1,
            max_mw: 1 << 24,
            max_mcast_grp: 1 << 21,
            max_mcast_qp_attach: 240,
            max_total_mcast_qp_attach: 240 << 21,
            max_ah: 0x7fff_ffff,
            max_srq: 1 << 23,
            max_srq_wr: MAX_SRQ - 1,
            max_srq_sge: MAX_SRQ_SEGMENTS,
            max_pkeys: 128,
            local_ca_ack_delay: 16,
            phys_port_cnt: 1,
            ..Default::default()
        }
    }

    pub(super) fn query_device_extended(&self, driver: &mut Driver<'_>) -> Outcome<Vec<u8>> {
        if !driver.request.is_empty() {
            return Err(libc::EINVAL);
        }
        let base = self.device_attributes();
        let answer = uverbs::ExQueryDeviceResp {
            base,
            response_length: size_of::<uverbs::ExQueryDeviceResp>() as u32,
            timestamp_mask: u64::MAX,
            hca_core_clock: 156_250,
            device_cap_flags_ex: base.device_cap_flags.into(),
            cq_moderation_caps: uverbs::CqModerationCaps {
                max_cq_moderation_count: 0xffff,
                max_cq_moderation_period: 0xfff,
                reserved: 0,
            },
            ..FromZeros::new_zeroed()
        };
        if driver.room >= 8 {
            let own = mlx5::QueryDeviceResp {
                response_length: size_of::<mlx5::QueryDeviceResp>().min(driver.room) as u32,
                flags: mlx5::QueryDeviceFlags::CQE_128B_PAD.bits(),
                ..Default::default()
            };
            driver.answer = own.as_bytes().to_vec();
        }
        Ok(answer.as_bytes().to_vec())
    }
}

//! What the kernel granted with the context, checked, and how the program wants the device used.

use std::env;

use rdmacm_kernel_abi::mlx5::{AllocUcontextResp, CmdsSuppUhw, MAX_WQE_BYTES, UAR_SIZE};

use crate::device::UNSHARED_DOORBELL_REGISTERS;
use crate::error::{Error, ErrorKind, Result};
use crate::sys::page_size;

/// More registers than this no kernel gives.
const MOST_REGISTERS: u32 = 512;

/// What the kernel granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grant {
    /// Bytes of a half of a BlueFlame register; 0 where there are none.
    pub half: u32,
    /// Registers that came with the context; 0 where they are to be asked for.
    pub static_registers: u32,
    /// Doorbell pages in a page of the system.
    pub uars_per_page: u32,
    /// Bytes of a send request.
    pub max_send_bytes: u32,
    /// Bytes of a receive.
    pub max_recv_bytes: u32,
    /// Blocks of 64 bytes of a send queue.
    pub max_send_blocks: u32,
    /// Receives of a queue.
    pub max_recv_wr: u32,
    /// Receives of a shared queue.
    pub max_srq_wr: u32,
    /// Whether completions name queue pairs by a number of ours, and not by their own.
    pub has_user_index: bool,
    /// Whether the kernel tells the MAC address of an address handle.
    pub tells_mac: bool,
}

impl Grant {
    /// # Errors
    ///
    /// For what cannot be so.
    pub(super) fn new(answer: &AllocUcontextResp) -> Result<Self> {
        let uars_in_page = (page_size() / UAR_SIZE).max(1) as u32;
        let checks = [
            (
                answer.cqe_version <= 1,
                "a form of completions that this crate does not know",
            ),
            (
                matches!(answer.bf_reg_size, 0 | 128 | 256 | 512),
                "doorbell registers of an impossible size",
            ),
            (
                (1..=uars_in_page).contains(&answer.num_uars_per_page),
                "an impossible number of doorbell pages in a page",
            ),
            (
                answer.tot_bfregs <= MOST_REGISTERS,
                "an impossible number of doorbell registers",
            ),
            (
                answer.max_sq_desc_sz >= 64 && answer.max_rq_desc_sz >= 16,
                "no room for requests",
            ),
        ];
        if let Some((_, what)) = checks.into_iter().find(|(is_so, _)| !is_so) {
            return Err(Error::new(
                "open_device",
                ErrorKind::Protocol,
                format!("the kernel granted {what}: {answer:?}"),
            ));
        }
        let commands = CmdsSuppUhw::from_bits_retain(answer.cmds_supp_uhw);
        Ok(Self {
            half: answer.bf_reg_size / 2,
            static_registers: answer.tot_bfregs,
            uars_per_page: answer.num_uars_per_page,
            max_send_bytes: u32::from(answer.max_sq_desc_sz).min(MAX_WQE_BYTES),
            max_recv_bytes: u32::from(answer.max_rq_desc_sz),
            max_send_blocks: answer.max_send_wqebb,
            max_recv_wr: answer.max_recv_wr,
            max_srq_wr: answer.max_srq_recv_wr,
            has_user_index: answer.cqe_version == 1,
            tells_mac: commands.contains(CmdsSuppUhw::CREATE_AH),
        })
    }

    /// How a register that came with the context is used, of `count` that did. The first is for
    /// everybody's doorbells; the last ones the kernel gives to one queue pair each.
    pub(super) fn use_of_static(
        &self,
        index: u32,
        count: u32,
        settings: Settings,
    ) -> super::register::Use {
        use super::register::Use;
        if index == 0 || settings.no_blue_flame || self.half == 0 {
            return Use::Doorbells;
        }
        match index.div_ceil(2) >= count.saturating_sub(UNSHARED_DOORBELL_REGISTERS) {
            true => Use::Alone,
            false => Use::Shared,
        }
    }
}

/// What the program's environment says, by the names that the C library reads as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    /// Doorbells only.
    pub no_blue_flame: bool,
    /// Requests that are not inline are stored into the register, too.
    pub prefers_blue_flame: bool,
    /// Short messages may arrive in their completion.
    pub scatters_to_completions: bool,
    /// Bytes of a completion: 64 or 128.
    pub completion_bytes: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            no_blue_flame: false,
            prefers_blue_flame: true,
            scatters_to_completions: true,
            completion_bytes: 64,
        }
    }
}

impl Settings {
    /// # Errors
    ///
    /// For a size of completions that there is not.
    pub(super) fn from_environment() -> Result<Self> {
        #[cfg(test)]
        if let Some(settings) = STAND_IN.get() {
            return Ok(settings);
        }
        let is_off = |name| env::var_os(name).is_some_and(|value| value == "0");
        let is_on = |name| env::var_os(name).is_some_and(|value| value != "0");
        let completion_bytes = match env::var("MLX5_CQE_SIZE").as_deref() {
            Err(_) | Ok("64") => 64,
            Ok("128") => 128,
            Ok(other) => {
                let text = format!("MLX5_CQE_SIZE is {other:?}; a completion has 64 or 128 bytes");
                return Err(Error::invalid("create_cq", text));
            }
        };
        Ok(Self {
            no_blue_flame: is_on("MLX5_SHUT_UP_BF"),
            prefers_blue_flame: !is_off("MLX5_POST_SEND_PREFER_BF"),
            scatters_to_completions: !is_off("MLX5_SCATTER_TO_CQE"),
            completion_bytes,
        })
    }
}

#[cfg(test)]
thread_local! {
    /// Settings in place of those of the environment, which belongs to all threads of the tests.
    pub(super) static STAND_IN: std::cell::Cell<Option<Settings>> =
        const { std::cell::Cell::new(None) };
}

//! Making completion queues, queue pairs and shared receive queues.

use std::io;

use rdmacm_kernel_abi::uverbs::{self, Command, ExCommand, QpCreateFlags, QpType, SrqType, ioctl};

use super::attributes::Attributes;
use super::{Destination, cannot_be_written, extended};

// The descriptor for a queue's asynchronous events has no place in these commands. The kernel takes
// the one that it made with the context, and there is no other.

pub(super) fn create_cq(to: Destination<'_>, mut attributes: Attributes<'_, '_>) -> io::Result<()> {
    use ioctl::cq::create as id;
    attributes.allow(&[
        id::HANDLE,
        id::CQE,
        id::USER_HANDLE,
        id::COMP_CHANNEL,
        id::COMP_VECTOR,
        id::RESP_CQE,
        id::EVENT_FD,
        ioctl::UHW_IN,
        ioctl::UHW_OUT,
    ])?;
    let request = uverbs::CreateCq {
        response: 0,
        user_handle: attributes.input(id::USER_HANDLE)?,
        cqe: attributes.input(id::CQE)?,
        comp_vector: attributes.input(id::COMP_VECTOR)?,
        comp_channel: attributes.fd(id::COMP_CHANNEL),
        reserved: 0,
    };
    let made: uverbs::CreateCqResp = attributes.send(to, Command::CREATE_CQ, &request)?;
    attributes.put_handle(id::HANDLE, made.cq_handle);
    attributes.put(id::RESP_CQE, &made.cqe);
    Ok(())
}

pub(super) fn create_qp(to: Destination<'_>, mut attributes: Attributes<'_, '_>) -> io::Result<()> {
    use ioctl::qp::create as id;
    attributes.allow(&[
        id::HANDLE,
        id::XRCD_HANDLE,
        id::PD_HANDLE,
        id::SRQ_HANDLE,
        id::SEND_CQ_HANDLE,
        id::RECV_CQ_HANDLE,
        id::USER_HANDLE,
        id::CAP,
        id::TYPE,
        id::FLAGS,
        id::EVENT_FD,
        id::RESP_CAP,
        id::RESP_QP_NUM,
        ioctl::UHW_IN,
        ioctl::UHW_OUT,
    ])?;
    let kind: u64 = attributes.input(id::TYPE)?;
    let flags = QpCreateFlags::from_bits_retain(attributes.input(id::FLAGS)?);
    let cap: ioctl::QpCap = attributes.input(id::CAP)?;
    let srq = attributes.handle(id::SRQ_HANDLE);
    // The domain that the queue pair belongs to has one place, whatever its kind.
    let domain = match kind == u64::from(QpType::XRC_TGT.0) {
        true => attributes.handle(id::XRCD_HANDLE),
        false => attributes.handle(id::PD_HANDLE),
    };
    let plain = uverbs::CreateQp {
        response: 0,
        user_handle: attributes.input(id::USER_HANDLE)?,
        pd_handle: domain.unwrap_or(0),
        send_cq_handle: attributes.handle(id::SEND_CQ_HANDLE).unwrap_or(0),
        recv_cq_handle: attributes.handle(id::RECV_CQ_HANDLE).unwrap_or(0),
        srq_handle: srq.unwrap_or(0),
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
        sq_sig_all: u8::from(flags.contains(QpCreateFlags::SQ_SIG_ALL)),
        qp_type: u8::try_from(kind).map_err(|_| cannot_be_written())?,
        is_srq: u8::from(srq.is_some()),
        reserved: 0,
    };
    let further = flags - QpCreateFlags::SQ_SIG_ALL;
    let made: uverbs::CreateQpResp = match further.is_empty() {
        true => attributes.send(to, Command::CREATE_QP, &plain)?,
        false => {
            let request = with_flags(&plain, further);
            let command = extended(ExCommand::CREATE_QP);
            let made: uverbs::ExCreateQpResp = attributes.send(to, command, &request)?;
            made.base
        }
    };
    attributes.put_handle(id::HANDLE, made.qp_handle);
    attributes.put(id::RESP_QP_NUM, &made.qpn);
    let granted = ioctl::QpCap {
        max_send_wr: made.max_send_wr,
        max_recv_wr: made.max_recv_wr,
        max_send_sge: made.max_send_sge,
        max_recv_sge: made.max_recv_sge,
        max_inline_data: made.max_inline_data,
    };
    attributes.put(id::RESP_CAP, &granted);
    Ok(())
}

/// The newer command, which has room for flags.
fn with_flags(plain: &uverbs::CreateQp, flags: QpCreateFlags) -> uverbs::ExCreateQp {
    uverbs::ExCreateQp {
        user_handle: plain.user_handle,
        pd_handle: plain.pd_handle,
        send_cq_handle: plain.send_cq_handle,
        recv_cq_handle: plain.recv_cq_handle,
        srq_handle: plain.srq_handle,
        max_send_wr: plain.max_send_wr,
        max_recv_wr: plain.max_recv_wr,
        max_send_sge: plain.max_send_sge,
        max_recv_sge: plain.max_recv_sge,
        max_inline_data: plain.max_inline_data,
        sq_sig_all: plain.sq_sig_all,
        qp_type: plain.qp_type,
        is_srq: plain.is_srq,
        create_flags: flags.bits(),
        ..Default::default()
    }
}

pub(super) fn create_srq(
    to: Destination<'_>,
    mut attributes: Attributes<'_, '_>,
) -> io::Result<()> {
    use ioctl::srq::create as id;
    attributes.allow(&[
        id::HANDLE,
        id::PD_HANDLE,
        id::XRCD_HANDLE,
        id::CQ_HANDLE,
        id::USER_HANDLE,
        id::MAX_WR,
        id::MAX_SGE,
        id::LIMIT,
        id::TYPE,
        id::EVENT_FD,
        id::RESP_MAX_WR,
        id::RESP_MAX_SGE,
        id::RESP_SRQ_NUM,
        ioctl::UHW_IN,
        ioctl::UHW_OUT,
    ])?;
    let kind: u64 = attributes.input(id::TYPE)?;
    let plain = uverbs::CreateSrq {
        response: 0,
        user_handle: attributes.input(id::USER_HANDLE)?,
        pd_handle: attributes.handle(id::PD_HANDLE).unwrap_or(0),
        max_wr: attributes.input(id::MAX_WR)?,
        max_sge: attributes.input(id::MAX_SGE)?,
        srq_limit: attributes.input(id::LIMIT)?,
    };
    let made: uverbs::CreateSrqResp = match kind == u64::from(SrqType::BASIC.0) {
        true => attributes.send(to, Command::CREATE_SRQ, &plain)?,
        false => {
            let request = uverbs::CreateXsrq {
                user_handle: plain.user_handle,
                srq_type: u32::try_from(kind).map_err(|_| cannot_be_written())?,
                pd_handle: plain.pd_handle,
                max_wr: plain.max_wr,
                max_sge: plain.max_sge,
                srq_limit: plain.srq_limit,
                xrcd_handle: attributes.handle(id::XRCD_HANDLE).unwrap_or(0),
                cq_handle: attributes.handle(id::CQ_HANDLE).unwrap_or(0),
                ..Default::default()
            };
            attributes.send(to, Command::CREATE_XSRQ, &request)?
        }
    };
    attributes.put_handle(id::HANDLE, made.srq_handle);
    attributes.put(id::RESP_MAX_WR, &made.max_wr);
    attributes.put(id::RESP_MAX_SGE, &made.max_sge);
    attributes.put(id::RESP_SRQ_NUM, &made.srqn);
    Ok(())
}

//! Commands by `write()`: where they name an object.

use std::mem::offset_of;

use rdmacm_kernel_abi::uverbs::{self, CMD_FLAG_EXTENDED, Command, ExCommand};
use zerocopy::FromBytes;

use super::{Action, Answer, Form, VerbsCommand, object};
use crate::tracer::remote;

/// Where a command's object is.
pub struct Place {
    object: u16,
    action: Action,
    /// In the answer if the action is [`Action::Create`], else in the request.
    offset: usize,
}

/// Decodes what is about to be written.
pub fn decode(tid: i32, address: u64, length: u64) -> Option<(VerbsCommand, Answer)> {
    let message = remote::bytes(tid, address, length);
    let (header, rest) = uverbs::CmdHeader::read_from_prefix(&message).ok()?;
    if header.command & CMD_FLAG_EXTENDED == 0 {
        // A request that has an answer begins with the answer's address.
        let response = u64::read_from_prefix(rest).map_or(0, |(address, _)| address);
        return Some(command(
            Form::Write(header.command),
            header.command,
            rest,
            response,
        ));
    }
    let (extended, rest) = uverbs::ExCmdHeader::read_from_prefix(rest).ok()?;
    Some(command(
        Form::Write(header.command),
        header.command,
        rest,
        extended.response,
    ))
}

/// A command from its parts: `request` is its structure, `response` the address of the answer.
pub fn command(form: Form, number: u32, request: &[u8], response: u64) -> (VerbsCommand, Answer) {
    let Some(Place {
        object,
        action,
        offset,
    }) = place(number)
    else {
        let command = VerbsCommand {
            form,
            object: None,
            action: Action::Use,
            handle: None,
        };
        return (command, Answer::At(0));
    };
    let mut command = VerbsCommand {
        form,
        object: Some(object),
        action,
        handle: None,
    };
    if action == Action::Create {
        return (command, Answer::At(response + offset as u64));
    }
    let field = request
        .get(offset..)
        .and_then(|rest| u32::read_from_prefix(rest).ok());
    command.handle = field.map(|(handle, _)| handle);
    (command, Answer::At(0))
}

fn place(number: u32) -> Option<Place> {
    if number & CMD_FLAG_EXTENDED == 0 {
        place_of_command(Command(number))
    } else {
        place_of_extended(ExCommand(number & !CMD_FLAG_EXTENDED))
    }
}

/// A place by the name of a structure and of its field.
macro_rules! place {
    ($action:ident $object:ident in $type:ident.$($field:tt).+) => {
        Place {
            object: object::$object,
            action: Action::$action,
            offset: offset_of!(uverbs::$type, $($field).+),
        }
    };
}

fn place_of_command(command: Command) -> Option<Place> {
    Some(match command {
        Command::ALLOC_PD => place!(Create PD in AllocPdResp.pd_handle),
        Command::DEALLOC_PD => place!(Destroy PD in DeallocPd.pd_handle),
        Command::CREATE_AH => place!(Create AH in CreateAhResp.ah_handle),
        Command::DESTROY_AH => place!(Destroy AH in DestroyAh.ah_handle),
        Command::REG_MR => place!(Create MR in RegMrResp.mr_handle),
        Command::REREG_MR => place!(Use MR in ReregMr.mr_handle),
        Command::DEREG_MR => place!(Destroy MR in DeregMr.mr_handle),
        Command::ALLOC_MW => place!(Create MW in AllocMwResp.mw_handle),
        Command::DEALLOC_MW => place!(Destroy MW in DeallocMw.mw_handle),
        Command::CREATE_COMP_CHANNEL => {
            place!(Create COMP_CHANNEL in CreateCompChannelResp.fd)
        }
        Command::CREATE_CQ => place!(Create CQ in CreateCqResp.cq_handle),
        Command::RESIZE_CQ => place!(Use CQ in ResizeCq.cq_handle),
        Command::DESTROY_CQ => place!(Destroy CQ in DestroyCq.cq_handle),
        Command::POLL_CQ => place!(Use CQ in PollCq.cq_handle),
        Command::REQ_NOTIFY_CQ => place!(Use CQ in ReqNotifyCq.cq_handle),
        Command::CREATE_QP => place!(Create QP in CreateQpResp.qp_handle),
        Command::QUERY_QP => place!(Use QP in QueryQp.qp_handle),
        Command::MODIFY_QP => place!(Use QP in ModifyQp.qp_handle),
        Command::DESTROY_QP => place!(Destroy QP in DestroyQp.qp_handle),
        Command::POST_SEND => place!(Use QP in PostSend.qp_handle),
        Command::POST_RECV => place!(Use QP in PostRecv.qp_handle),
        Command::ATTACH_MCAST => place!(Use QP in AttachMcast.qp_handle),
        Command::DETACH_MCAST => place!(Use QP in DetachMcast.qp_handle),
        Command::OPEN_QP => place!(Create QP in CreateQpResp.qp_handle),
        Command::CREATE_SRQ | Command::CREATE_XSRQ => {
            place!(Create SRQ in CreateSrqResp.srq_handle)
        }
        Command::MODIFY_SRQ => place!(Use SRQ in ModifySrq.srq_handle),
        Command::QUERY_SRQ => place!(Use SRQ in QuerySrq.srq_handle),
        Command::DESTROY_SRQ => place!(Destroy SRQ in DestroySrq.srq_handle),
        Command::POST_SRQ_RECV => place!(Use SRQ in PostSrqRecv.srq_handle),
        Command::OPEN_XRCD => place!(Create XRCD in OpenXrcdResp.xrcd_handle),
        Command::CLOSE_XRCD => place!(Destroy XRCD in CloseXrcd.xrcd_handle),
        _ => return None,
    })
}

fn place_of_extended(command: ExCommand) -> Option<Place> {
    Some(match command {
        ExCommand::CREATE_CQ => place!(Create CQ in ExCreateCqResp.base.cq_handle),
        ExCommand::MODIFY_CQ => place!(Use CQ in ExModifyCq.cq_handle),
        ExCommand::CREATE_QP => place!(Create QP in ExCreateQpResp.base.qp_handle),
        ExCommand::MODIFY_QP => place!(Use QP in ExModifyQp.base.qp_handle),
        ExCommand::CREATE_FLOW => place!(Create FLOW in CreateFlowResp.flow_handle),
        ExCommand::DESTROY_FLOW => place!(Destroy FLOW in DestroyFlow.flow_handle),
        _ => return None,
    })
}

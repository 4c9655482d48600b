//! What each field of a scenario is. A field that is not known here fails the replay: nothing is
//! passed over in silence.

use serde_json::{Map, Value};

use super::compare::{Difference, Outcome};
use super::vectors::text;

/// What a field is to the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// What the C provider was given.
    Input,
    /// What it made of it: compared.
    Output,
    /// For the reader of the recording.
    Note,
    /// A list or an object, whose fields have roles of their own.
    Parts,
}

/// The role of a field, by the path of names that leads to it. The steps of a scenario are named by
/// their `op`.
pub(super) fn role(path: &str) -> Option<Role> {
    use Role::{Input, Note, Output, Parts};
    Some(match path {
        "kind" | "group" | "name" | "doc" | "config" => Note,
        "data_base" | "cq" | "ah_attrs" | "precondition" => Input,
        // Replayed with the requests to the kernel.
        "create_ah_cmd" => Input,
        "steps" | "qp" | "srq" => Parts,
        "sq_final" | "srq_buf_initial" => Output,

        "qp.type" | "qp.qpn" | "qp.uidx" | "qp.sq_sig_all" | "qp.cap_requested" | "qp.srq"
        | "qp.send_cq" | "qp.recv_cq" => Input,
        "qp.cap_returned" => Parts,
        "qp.cap_returned.max_send_wr"
        | "qp.cap_returned.max_recv_wr"
        | "qp.cap_returned.max_send_sge"
        | "qp.cap_returned.max_recv_sge"
        | "qp.cap_returned.max_inline_data"
        | "qp.sq_wqe_cnt"
        | "qp.rq_wqe_cnt"
        | "qp.rq_wqe_shift"
        | "qp.sq_offset"
        | "qp.rq_offset" => Output,
        "srq.srqn" | "srq.requested" => Input,
        "srq.returned" => Parts,
        "srq.returned.max_wr" | "srq.returned.max_sge" | "srq.slots" | "srq.wqe_stride" => Output,

        "post_send.qpn" | "post_send.wrs" => Input,
        "post_send.op" | "post_send.quirk" => Note,
        "post_send.wqes" | "post_send.uar" => Parts,
        "post_send.wqes.ignore" => Note,
        "post_send.ret" | "post_send.bad_index" | "post_send.cur_post" | "post_send.dbrec" => {
            Output
        }
        "post_send.wqes.wqe_index" | "post_send.wqes.ds" | "post_send.wqes.hex" => Output,
        "post_send.uar.map_offset"
        | "post_send.uar.page_off"
        | "post_send.uar.store_widths"
        | "post_send.uar.hex"
        | "post_send.uar.dbrec_at_first_store" => Output,

        "post_recv.qpn" | "post_recv.wrs" => Input,
        "post_recv.op" => Note,
        "post_recv.wqes" | "post_recv.uar" => Parts,
        "post_recv.ret" | "post_recv.bad_index" | "post_recv.dbrec" => Output,
        "post_recv.wqes.wqe_index" | "post_recv.wqes.hex" => Output,
        "post_srq_recv.srqn" | "post_srq_recv.wrs" => Input,
        "post_srq_recv.op" => Note,
        "post_srq_recv.ret"
        | "post_srq_recv.bad_index"
        | "post_srq_recv.srq_buf"
        | "post_srq_recv.dbrec" => Output,
        "srq_state.op" => Note,
        "srq_state.srq_buf" | "srq_state.dbrec" => Output,

        "hw_cqe.cqn" | "hw_cqe.cqe_index" | "hw_cqe.prod" | "hw_cqe.hex" => Input,
        "hw_cqe.op" => Note,
        "poll_cq.cqn" | "poll_cq.num_entries" => Input,
        "poll_cq.op" | "poll_cq.note" => Note,
        "poll_cq.wc" => Parts,
        "poll_cq.ret" | "poll_cq.cq_dbrec" => Output,
        "poll_cq.wc.wr_id"
        | "poll_cq.wc.status"
        | "poll_cq.wc.opcode"
        | "poll_cq.wc.vendor_err"
        | "poll_cq.wc.byte_len"
        | "poll_cq.wc.imm_data_raw"
        | "poll_cq.wc.qp_num"
        | "poll_cq.wc.src_qp"
        | "poll_cq.wc.wc_flags"
        | "poll_cq.wc.pkey_index"
        | "poll_cq.wc.slid"
        | "poll_cq.wc.sl"
        | "poll_cq.wc.dlid_path_bits" => Output,

        "req_notify_cq.cqn" | "req_notify_cq.solicited_only" => Input,
        "req_notify_cq.op" => Note,
        "req_notify_cq.uar" => Parts,
        "req_notify_cq.ret" | "req_notify_cq.cq_dbrec" => Output,
        "req_notify_cq.uar.map_offset"
        | "req_notify_cq.uar.page_off"
        | "req_notify_cq.uar.store_widths"
        | "req_notify_cq.uar.hex"
        | "req_notify_cq.uar.dbrec_at_first_store" => Output,
        "cq_event.op" => Note,

        "set_state.state" => Input,
        "set_state.op" | "set_state.state_name" => Note,
        "set_state.dbrec" | "set_state.cq_dbrec" => Output,
        "destroy_qp.qpn" => Input,
        "destroy_qp.op" => Note,
        "destroy_qp.cq_dbrec" | "destroy_qp.cq_buf" => Output,

        "fill_memory.addr" | "fill_memory.len" | "fill_memory.byte" => Input,
        "fill_memory.op" => Note,
        "expect_memory.addr" => Input,
        "expect_memory.op" | "expect_memory.what" => Note,
        "expect_memory.hex" => Output,
        "setup.op" | "setup.doc" => Note,
        _ => return None,
    })
}

/// The role of a field of the recording of a queue that is made. Of the command the driver's part and
/// the sizes are compared; the rest is the core's, whose requests are compared as a whole in the tests
/// of the verbs.
pub(super) fn role_of_creation(path: &str) -> Option<Role> {
    use Role::{Input, Note, Output, Parts};
    Some(match path {
        "kind" | "name" | "config" => Note,
        "requested_cqe" | "comp_channel_cmd" | "type" | "sq_sig_all" | "cap_requested" => Input,
        "returned_cqe" | "ncqe" | "buf_align" | "db_align" | "buf_bytes" | "errno" => Output,
        "initial_dbrec" | "initial_op_own" | "initial_buf" | "initial_next_index" => Output,
        "cq" | "cmd" | "dv" => Parts,
        "cq.cqn" => Input,
        "cq.ncqe" | "cq.cqe_size" => Output,
        "cmd.core_in" | "cmd.uhw_in" | "cmd.attrs" => Output,
        "cmd.core_out" | "cmd.uhw_out" => Input,
        "cmd.core_out_len" | "cmd.uhw_out_len" => Note,
        "cmd.name" | "cmd.via" | "cmd.object" | "cmd.method" | "cmd.driver_id" => Note,
        "cmd.hdr_length" | "cmd.num_attrs" | "cmd.rc" | "cmd.cmd" | "cmd.cmd_hex" => Note,
        "cmd.masked" => Note,
        "dv.sq_wqe_cnt" | "dv.sq_stride" | "dv.rq_wqe_cnt" | "dv.rq_stride" | "dv.bf_size"
        | "dv.bf_page_off" => Output,
        _ => return role(path).filter(|_| path.starts_with("qp") || path.starts_with("srq")),
    })
}

/// The name in paths of a field of a scenario: queue pairs are numbered where there are several.
pub(super) fn path_name(name: &str) -> &str {
    let is_numbered = name.strip_prefix("qp").is_some_and(|rest| {
        rest.starts_with('_') || (!rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    });
    if is_numbered { "qp" } else { name }
}

/// Calls back with each field that is no list or object of its own: its path, and a pointer to it as
/// [`Value::pointer`] takes it.
///
/// # Errors
///
/// For a field that is not known.
pub(super) fn each(value: &Value, act: &mut dyn FnMut(&str, &str, Role)) -> Outcome {
    let fields = value.as_object().expect("a recording is an object");
    let role: fn(&str) -> Option<Role> = match value["kind"] == "scenario" {
        true => role,
        false => role_of_creation,
    };
    fields_of(fields, "", "", role, act)
}

fn fields_of(
    fields: &Map<String, Value>,
    path: &str,
    pointer: &str,
    role_of: fn(&str) -> Option<Role>,
    act: &mut dyn FnMut(&str, &str, Role),
) -> Outcome {
    for (name, value) in fields {
        let name_in_path = if path.is_empty() {
            path_name(name)
        } else {
            name
        };
        let path = match path {
            "" => name_in_path.to_owned(),
            path => format!("{path}.{name_in_path}"),
        };
        let pointer = format!("{pointer}/{name}");
        let role = role_of(&path).ok_or_else(|| {
            Difference::new(format!("the field {path} is not known to the replay"))
        })?;
        match (role, value) {
            (Role::Parts, Value::Object(fields)) => {
                fields_of(fields, &path, &pointer, role_of, act)?
            }
            (Role::Parts, Value::Array(list)) => {
                for (index, value) in list.iter().enumerate() {
                    let fields = value.as_object().expect("a part is an object");
                    let path = match &*path {
                        "steps" => text(&fields["op"]),
                        path => path,
                    };
                    fields_of(fields, path, &format!("{pointer}/{index}"), role_of, act)?;
                }
            }
            _ => act(&path, &pointer, role),
        }
    }
    Ok(())
}

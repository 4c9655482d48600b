//! Ids without a queue pair of their own, and what their two sides tell each other.

use std::sync::Arc;

use rdmacm_kernel_abi::ucma::Command;

use super::pair::{self, Listening, TIMEOUT, address, expect, listen, refused_first, resolve};
use crate::cm::{CmId, ConnParam, Ece, Event, EventChannel, PortSpace, RejectReason, Status};
use crate::device::Registry;
use crate::error::{ErrorKind, Result};
use crate::sys::twin::Twin;
use crate::verbs::{Cq, Qp, QpAttr, QpState};

/// A queue pair that no id knows.
struct Own {
    qp: Qp,
    _cq: Cq,
}

impl Own {
    fn new(twin: &Twin, id: &CmId) -> Result<Self> {
        let pd = id.protection_domain()?;
        let cq = pd.context().completion_queue(8).build()?;
        let qp = pd.create_qp(&QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq))?;
        twin.note_programs_own(qp.number());
        qp.modify(&id.init_qp_attr(QpState::Init)?)?;
        Ok(Self { qp, _cq: cq })
    }

    fn make_ready(&self, id: &CmId) -> Result<()> {
        self.qp.modify(&id.init_qp_attr(QpState::Rtr)?)?;
        self.qp.modify(&id.init_qp_attr(QpState::Rts)?)
    }

    fn param(&self) -> ConnParam {
        ConnParam::new().own_qp(self.qp.number(), false)
    }
}

/// One side: its channel, its id and its queue pair.
type End = (EventChannel, CmId, Own);

/// The active side has the answer, and is ready to finish.
fn half_connected(twin: &Twin, registry: &'static Registry) -> Result<(Listening, End, End)> {
    let listening = listen(registry)?;
    let (channel, id) = resolve(registry)?;
    id.set_local_ece(OFFERED)?;
    let own = Own::new(twin, &id)?;
    id.connect(&own.param())?;
    let (new_channel, new) = pair::fetch(registry, &listening)?;
    assert_eq!(new.remote_ece()?, Some(OFFERED));
    new.set_local_ece(ANSWERED)?;
    let news_own = Own::new(twin, &new)?;
    news_own.make_ready(&new)?;
    new.accept(&news_own.param())?;
    let answer = expect(&channel, "CONNECT_RESPONSE")?;
    let told = answer.content().unwrap().connection().qp_num;
    assert_eq!(told, news_own.qp.number());
    assert_eq!(id.remote_ece()?, Some(ANSWERED));
    own.make_ready(&id)?;
    Ok((listening, (channel, id, own), (new_channel, new, news_own)))
}

const OFFERED: Ece = Ece {
    vendor_id: 0x15b3,
    options: 0x30,
};
const ANSWERED: Ece = Ece {
    vendor_id: 0x15b3,
    options: 0x10,
};

/// A connection's life without queue pairs of the ids.
pub(super) fn live(twin: &Arc<Twin>, registry: &'static Registry) -> Result<()> {
    let (_listening, (channel, active, _own), (news_channel, passive, _news_own)) =
        half_connected(twin, registry)?;
    passive.notify_established()?;
    expect(&news_channel, "ESTABLISHED")?;
    active.establish()?;
    active.disconnect()?;
    expect(&news_channel, "DISCONNECTED")?;
    passive.disconnect()?;
    expect(&channel, "DISCONNECTED").map(drop)
}

#[test]
fn a_life_leaves_nothing_and_the_ids_no_queue_pair() {
    let twin = Twin::new();
    live(&twin, twin.registry()).unwrap();
    twin.assert_clean();
}

#[test]
fn a_notified_side_hears_once_that_it_is_established() {
    let twin = Twin::new();
    let (listening, active, passive) = half_connected(&twin, twin.registry()).unwrap();
    let (channel, id, _) = &passive;
    id.notify_established().unwrap();
    expect(channel, "ESTABLISHED").unwrap();
    let again = id.notify_established().unwrap_err();
    assert_eq!(again.errno(), Some(libc::EISCONN));
    active.1.establish().unwrap();
    assert!(channel.try_next_event().unwrap().is_none());
    assert!(active.1.establish().is_err(), "it is finished");
    drop((listening, active, passive));
    twin.assert_clean();
}

#[test]
fn refused_calls_can_be_made_again() {
    let twin = Twin::new();
    let registry = twin.registry();
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let own = Own::new(&twin, &id).unwrap();
    refused_first(&twin, Command::InitQpAttr, || {
        id.init_qp_attr(QpState::Init)
    });
    refused_first(&twin, Command::Connect, || id.connect(&own.param()));
    let (new_channel, new) = pair::fetch(registry, &listening).unwrap();
    let news_own = Own::new(&twin, &new).unwrap();
    news_own.make_ready(&new).unwrap();
    new.accept(&news_own.param()).unwrap();
    expect(&channel, "CONNECT_RESPONSE").unwrap();
    own.make_ready(&id).unwrap();
    refused_first(&twin, Command::Notify, || new.notify_established());
    refused_first(&twin, Command::Accept, || id.establish());
    expect(&new_channel, "ESTABLISHED").unwrap();
    refused_first(&twin, Command::Disconnect, || id.disconnect());
    expect(&new_channel, "DISCONNECTED").unwrap();
    drop((listening, channel, id, own, new_channel, new, news_own));
    twin.assert_clean();
}

#[test]
fn a_side_that_never_finishes_ends_in_any_order() {
    for first in ["active", "passive", "queue pairs"] {
        let twin = Twin::new();
        let (listening, active, passive) = half_connected(&twin, twin.registry()).unwrap();
        match first {
            "active" => {
                active.1.destroy().unwrap();
                expect(&passive.0, "REJECTED").unwrap();
            }
            "passive" => {
                passive.1.destroy().unwrap();
                expect(&active.0, "REJECTED").unwrap();
                active.1.establish().unwrap_err();
            }
            _ => {
                active.2.qp.destroy().unwrap();
                passive.2.qp.destroy().unwrap();
            }
        }
        drop((listening, active, passive));
        twin.assert_clean();
    }
}

/// A listener with the request of an id without a queue pair.
fn requested(twin: &Twin, registry: &'static Registry) -> (Listening, End, CmId) {
    let listening = listen(registry).unwrap();
    let (channel, id) = resolve(registry).unwrap();
    let own = Own::new(twin, &id).unwrap();
    id.connect(&own.param()).unwrap();
    let Event::ConnectRequest(request) = expect(&listening.channel, "CONNECT_REQUEST").unwrap()
    else {
        unreachable!("the name was checked")
    };
    (listening, (channel, id, own), request.into_id())
}

#[test]
fn a_rejection_has_the_reason_that_was_given() {
    type Rejection = fn(&CmId) -> Result<()>;
    let cases: [(Rejection, RejectReason); 2] = [
        (|id| id.reject(b"no"), RejectReason::CONSUMER_DEFINED),
        (
            |id| id.reject_ece(b"no"),
            RejectReason::VENDOR_OPTION_NOT_SUPPORTED,
        ),
    ];
    for (reject, reason) in cases {
        let twin = Twin::new();
        let (listening, active, new) = requested(&twin, twin.registry());
        refused_first(&twin, Command::Reject, || reject(&new));
        let event = expect(&active.0, "REJECTED").unwrap();
        assert_eq!(event.status(), Status::Rejected(reason));
        assert_eq!(event.content().unwrap().connection().trimmed(), b"no");
        drop((listening, active, new, event));
        twin.assert_clean();
    }
}

#[test]
fn options_of_another_vendor_are_answered_with_none_in_its_name() {
    let twin = Twin::new();
    let (listening, active, new) = requested(&twin, twin.registry());
    assert_eq!(new.remote_ece().unwrap(), None);
    new.set_local_ece(ANSWERED).unwrap();
    let own = Own::new(&twin, &new).unwrap();
    own.make_ready(&new).unwrap();
    new.accept(&own.param()).unwrap();
    expect(&active.0, "CONNECT_RESPONSE").unwrap();
    assert_eq!(active.1.remote_ece().unwrap(), None, "none were asked for");
    drop((listening, active, new, own));
    twin.assert_clean();
}

#[test]
fn calls_for_the_other_kind_of_id_are_refused_before_the_kernel_is_asked() {
    let twin = Twin::new();
    let pair = pair::connect(&twin, twin.registry()).unwrap();
    twin.forget_calls();
    let id = &pair.active.id;
    for refused in [
        id.establish(),
        id.set_local_ece(OFFERED),
        id.remote_ece().map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidState);
    }
    assert_eq!(twin.calls(), []);
}

#[test]
fn an_id_without_anything_says_what_it_lacks() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, address(), TIMEOUT).unwrap();
    expect(&channel, "ADDR_RESOLVED").unwrap();
    id.init_qp_attr(QpState::Init).unwrap();
    for state in [QpState::Rtr, QpState::Rts] {
        let early = id.init_qp_attr(state).unwrap_err();
        assert_eq!(early.kind(), ErrorKind::InvalidState, "{early}");
    }
    assert_eq!(
        id.notify_established().unwrap_err().errno(),
        Some(libc::EINVAL)
    );
    assert_eq!(id.establish().unwrap_err().kind(), ErrorKind::InvalidState);
    drop((channel, id));
    twin.assert_clean();
}

#[test]
fn establish_without_a_response() {
    let twin = Twin::new();
    let channel = EventChannel::open_on(twin.registry()).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let error = id.establish().unwrap_err();
    assert_ne!(error.kind(), ErrorKind::Rejected, "{error}");
}

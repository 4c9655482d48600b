//! A side: a queue pair with its memory and its windows, and how requests get into its queue.

use rdmacm::{
    Access, AddressHandle, Buffer, Data as Bytes, Destination, FlushPlacement, Mw, Qp, RecvRequest,
    RemoteAddress, Segment, SendRequest, Srq, Work,
};

use super::Result;
use super::request::{Action, Data, Place, Receive, Request, Target};
use super::way::QUEUE_KEY;

/// One of the two.
pub struct Side {
    pub qp: Qp,
    pub buffer: Buffer,
    pub windows: Vec<Mw>,
    /// The way to the peer, for datagrams.
    pub handle: Option<AddressHandle>,
    /// Where its completions go: of requests, and of receives.
    pub queues: [usize; 2],
}

impl Side {
    fn segments(&self, places: &[Place]) -> Result<Vec<Segment>> {
        let segments = places.iter().map(|place| self.buffer.slice(place.clone()));
        Ok(segments.collect::<rdmacm::Result<_>>()?)
    }

    /// What the peer names a place by.
    fn remote(&self, target: Target) -> RemoteAddress {
        let there = self.buffer.remote().at(target.at as u64);
        match target.window {
            None => there,
            Some(window) => RemoteAddress {
                rkey: self.windows[window].rkey(),
                ..there
            },
        }
    }

    /// What a request names at the peer, whose side this is.
    fn named_by(&self, action: &Action) -> RemoteAddress {
        let target = match *action {
            Action::Send {
                closes: Some(window),
                ..
            } => Target {
                at: 0,
                window: Some(window),
            },
            Action::Write { to, .. } | Action::AtomicWrite { to, .. } => to,
            Action::Read { from, .. } => from,
            Action::CompareSwap { at, .. } | Action::FetchAdd { at, .. } => at,
            Action::Flush { at, .. } => Target { at, window: None },
            _ => Target {
                at: 0,
                window: None,
            },
        };
        self.remote(target)
    }
}

/// Posts requests of a side with one doorbell. `window_access` is what windows are opened for.
pub fn post(
    sides: &mut [Side; 2],
    side: usize,
    requests: &[(u64, Request)],
    window_access: Access,
) -> Result<()> {
    let [one, other] = sides;
    let (own, peer) = match side {
        0 => (one, other),
        _ => (other, one),
    };
    let local: Vec<Vec<Segment>> = requests
        .iter()
        .map(|(_, request)| own.segments(local_places(&request.action)))
        .collect::<Result<_>>()?;
    let peer_number = peer.qp.number();
    let mut windows: Vec<Option<&mut Mw>> = own.windows.iter_mut().map(Some).collect();
    let mut list = Vec::new();
    for ((wr_id, request), segments) in requests.iter().zip(&local) {
        let named = peer.named_by(&request.action);
        let to = own.handle.as_ref().map(|handle| Destination {
            handle,
            qp_num: peer_number,
            qkey: QUEUE_KEY,
        });
        list.push(SendRequest {
            wr_id: *wr_id,
            flags: request.flags,
            work: work(
                &request.action,
                segments,
                named,
                to,
                &own.buffer,
                &mut windows,
                window_access,
            )?,
        });
    }
    Ok(own.qp.send_half().post_list(list)?)
}

fn local_places(action: &Action) -> &[Place] {
    match action {
        Action::Send {
            data: Data::Segments(places),
            ..
        }
        | Action::Write {
            data: Data::Segments(places),
            ..
        }
        | Action::Read { into: places, .. } => places,
        Action::CompareSwap { into, .. } | Action::FetchAdd { into, .. } => {
            std::slice::from_ref(into)
        }
        _ => &[],
    }
}

fn bytes<'a>(data: &'a Data, segments: &'a [Segment]) -> Bytes<'a> {
    match data {
        Data::Inline(bytes) => Bytes::Inline(bytes),
        Data::Segments(_) => Bytes::Segments(segments),
    }
}

/// A request in the words of the library.
fn work<'a>(
    action: &'a Action,
    segments: &'a [Segment],
    named: RemoteAddress,
    to: Option<Destination<'a>>,
    buffer: &'a Buffer,
    windows: &mut [Option<&'a mut Mw>],
    access: Access,
) -> Result<Work<'a>> {
    let mut window = |index: usize| windows[index].take().ok_or("a window is named twice");
    Ok(match *action {
        Action::Send {
            ref data,
            immediate,
            closes,
        } => {
            let data = bytes(data, segments);
            match (to, immediate, closes) {
                (Some(to), Some(immediate), _) => Work::SendDatagramImmediate {
                    to,
                    data,
                    immediate,
                },
                (Some(to), None, _) => Work::SendDatagram { to, data },
                (None, Some(immediate), _) => Work::SendImmediate { data, immediate },
                (None, None, Some(_)) => Work::SendInvalidate {
                    data,
                    rkey: named.rkey,
                },
                (None, None, None) => Work::Send(data),
            }
        }
        Action::Write {
            ref data,
            immediate,
            ..
        } => {
            let (to, data) = (named, bytes(data, segments));
            match immediate {
                Some(immediate) => Work::WriteImmediate {
                    to,
                    data,
                    immediate,
                },
                None => Work::Write { to, data },
            }
        }
        Action::Read { .. } => Work::Read {
            from: named,
            into: segments,
        },
        Action::CompareSwap { compare, swap, .. } => Work::CompareSwap {
            at: named,
            compare,
            swap,
            into: segments[0],
        },
        Action::FetchAdd { add, .. } => Work::FetchAdd {
            at: named,
            add,
            into: segments[0],
        },
        Action::AtomicWrite { bytes, .. } => Work::AtomicWrite { to: named, bytes },
        Action::Flush { length, .. } => Work::Flush {
            at: named,
            length: Some(length),
            placement: FlushPlacement::Global,
        },
        Action::Bind {
            window: index,
            ref place,
        } => Work::BindWindow {
            window: window(index)?,
            region: buffer.as_ref(),
            range: place.clone(),
            access,
        },
        Action::Invalidate { window: index } => Work::Invalidate {
            window: window(index)?,
        },
    })
}

/// Posts receives into a side's memory, to its own queue or the shared one.
pub fn post_receives(
    side: &mut Side,
    shared: Option<&mut Srq>,
    receives: &[(u64, Receive)],
) -> Result<()> {
    let segments: Vec<Vec<Segment>> = receives
        .iter()
        .map(|(_, receive)| side.segments(&receive.places))
        .collect::<Result<_>>()?;
    let list = receives
        .iter()
        .zip(&segments)
        .map(|((wr_id, _), segments)| RecvRequest {
            wr_id: *wr_id,
            segments,
        });
    match shared {
        Some(srq) => srq.post_list(list)?,
        None => side.qp.recv_half().post_list(list)?,
    }
    Ok(())
}

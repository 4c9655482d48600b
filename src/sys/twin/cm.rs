//! The connection manager: ids, their addresses and the events about them.

use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use rdmacm_kernel_abi::ucma::{self, Command, ConnParam, EventType};
use rdmacm_kernel_abi::uverbs;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::files::{FileId, QueuedEvent};
use super::options::Options;
use super::{Outcome, World};
use crate::sys::WriteCommand;

/// A connection id.
#[derive(Debug)]
pub(super) struct Id {
    /// The channel it is on.
    pub file: FileId,
    /// The program's cookie; 0 until the program has accepted.
    pub cookie: u64,
    /// Number of the port space.
    pub space: ucma::PortSpace,
    pub qp_type: uverbs::QpType,
    pub options: Options,
    pub phase: Phase,
    pub local: Option<SocketAddr>,
    pub remote: Option<SocketAddr>,
    /// Index of its device.
    pub device: Option<u32>,
    pub is_device_gone: bool,
    /// The id at the other end, while that has one.
    pub peer: Option<u32>,
    /// Number of its queue pair, once it connects or accepts.
    pub qp_num: u32,
    /// Reads and atomics answered at a time, and under way at a time, as agreed so far.
    pub depths: (u8, u8),
    /// The services that were found for it, once some were asked for.
    pub services: Option<Vec<ucma::IbUserServiceRec>>,
    /// Events that the program has read.
    reported: u32,
}

/// Where an id is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    /// Active: asked, no answer yet.
    Connecting,
    /// Active: the peer has accepted.
    Answered,
    /// Passive: not answered yet.
    Requested,
    /// Passive: accepted, the peer has not completed.
    Accepted,
    Established,
    /// This side has disconnected, the peer not yet.
    Disconnecting,
    /// The peer has disconnected, this side not yet.
    PeerDisconnected,
    Closed,
}

#[derive(Debug, Default)]
pub(super) struct Ids(pub BTreeMap<u32, Id>);

impl Id {
    pub(super) fn is_datagram(&self) -> bool {
        self.qp_type == uverbs::QpType::UD
    }

    /// The address that it keeps others from.
    pub(super) fn bound_to(&self) -> Option<SocketAddr> {
        let is_bound = [Phase::Bound, Phase::Listening].contains(&self.phase);
        self.local.filter(|_| is_bound)
    }
}

impl Ids {
    /// Handles count from 0 upward and are used again at once.
    pub(super) fn insert(
        &mut self,
        file: FileId,
        cookie: u64,
        space: ucma::PortSpace,
        qp_type: uverbs::QpType,
    ) -> u32 {
        let is_free = |handle: &u32| !self.0.contains_key(handle);
        let handle = (0..).find(is_free).expect("a test makes few ids");
        let id = Id {
            file,
            cookie,
            space,
            qp_type,
            options: Options::default(),
            phase: Phase::Idle,
            local: None,
            remote: None,
            device: None,
            is_device_gone: false,
            peer: None,
            qp_num: 0,
            depths: (0, 0),
            services: None,
            reported: 0,
        };
        self.0.insert(handle, id);
        handle
    }

    pub(super) fn get(&mut self, handle: u32) -> Outcome<&mut Id> {
        self.0.get_mut(&handle).ok_or(libc::ENOENT)
    }

    /// The id, if commands through `file` may reach it.
    pub(super) fn on_file(&mut self, file: FileId, handle: u32) -> Outcome<&mut Id> {
        let id = self.get(handle)?;
        if id.file == file {
            Ok(id)
        } else {
            Err(libc::EINVAL)
        }
    }
}

impl World {
    /// Carries a command of the connection manager out.
    pub(super) fn cm(
        &mut self,
        file: FileId,
        fd: BorrowedFd<'_>,
        command: Command,
        written: WriteCommand<'_>,
    ) -> Outcome {
        let (header, body) = written.request.split_at(size_of::<ucma::CommandHeader>());
        let announced = u16::from_ne_bytes([header[4], header[5]]);
        let room = u16::from_ne_bytes([header[6], header[7]]);
        let given = written.response.as_ref().map_or(0, |(_, room)| room.len());
        if usize::from(announced) != body.len() || usize::from(room) != given {
            self.violation(format!("{command:?} announces other sizes than it has"));
            return Err(libc::EINVAL);
        }
        let mut answer = Answer {
            room: written.response,
        };
        use Command as C;
        let is_new = matches!(command, C::ResolveIbService | C::WriteCmEvent);
        if is_new && self.is_old {
            return Err(libc::EINVAL);
        }
        match command {
            C::CreateId => self.create_id(file, &parse(body)?, &mut answer),
            C::DestroyId => self.destroy_id(file, &parse(body)?, &mut answer),
            C::Bind => self.bind(file, &parse(body)?),
            C::ResolveAddr => self.resolve_addr(file, &parse(body)?),
            C::ResolveRoute => self.resolve_route(file, &parse(body)?),
            C::Query => self.query(file, &parse(body)?, &mut answer),
            C::Listen => self.listen(file, &parse(body)?),
            C::Connect => self.connect(file, &parse(body)?),
            C::Accept => self.accept(file, &parse(body)?),
            C::Reject => self.reject(file, &parse(body)?),
            C::Disconnect => self.disconnect(file, &parse(body)?),
            C::InitQpAttr => self.init_qp_attr(file, &parse(body)?, &mut answer),
            C::GetEvent => self.get_event(file, fd, &mut answer),
            C::MigrateId => self.migrate(file, &parse(body)?, &mut answer),
            C::JoinMcast => self.join(file, &parse(body)?, &mut answer),
            C::LeaveMcast => self.leave(file, &parse(body)?, &mut answer),
            C::SetOption => self.set_option(file, &parse(body)?, written.indirect),
            C::Notify => self.note_message(file, &parse(body)?),
            C::ResolveIbService => self.resolve_service(file, &parse(body)?),
            C::WriteCmEvent => self.write_event(file, &parse(body)?),
            _ => Err(libc::EINVAL),
        }
    }

    fn create_id(
        &mut self,
        file: FileId,
        request: &ucma::CreateId,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::CreateId, response))?;
        let space = ucma::PortSpace(request.ps);
        let qp_type = match space {
            ucma::PortSpace::TCP => uverbs::QpType::RC,
            ucma::PortSpace::UDP | ucma::PortSpace::IPOIB => uverbs::QpType::UD,
            // Whatever it is.
            ucma::PortSpace::IB => uverbs::QpType(request.qp_type),
            _ => return Err(libc::EINVAL),
        };
        let id = self.ids.insert(file, request.uid, space, qp_type);
        answer.put(&ucma::CreateIdResp { id })
    }

    fn destroy_id(
        &mut self,
        file: FileId,
        request: &ucma::DestroyId,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::DestroyId, response))?;
        let connected = self.ids.on_file(file, request.id)?.qp_num;
        let owned = self.owned_qps.get(&request.id).copied();
        let is_programs = self.programs_qps.contains(&connected);
        let is_its = |number: u32| number == connected && !is_programs || Some(number) == owned;
        let has_qp = self.objects.qps().any(|(_, qp)| is_its(qp.number));
        if has_qp {
            self.violation("an id was destroyed before its queue pair");
        }
        let events_reported = self.remove_id(request.id);
        answer.put(&ucma::DestroyIdResp { events_reported })
    }

    /// Destroys an id. Returns how many events of it were read.
    fn remove_id(&mut self, handle: u32) -> u32 {
        let Ok(id) = self.ids.get(handle) else {
            return 0;
        };
        let file = id.file;
        self.owned_qps.remove(&handle);
        self.leave_connection(handle);
        self.groups.remove_of(handle);
        self.drop_events(file, handle);
        self.ids.0.remove(&handle).map_or(0, |id| id.reported)
    }

    /// Forgets the unread events of an id, and the requests among them.
    fn drop_events(&mut self, file: FileId, owner: u32) {
        let Ok(events) = self.files.events(file) else {
            return;
        };
        let gone = take(events, |event| event.owner == owner);
        for child in gone.into_iter().filter_map(|event| event.child) {
            self.remove_id(child);
        }
    }

    /// The program has closed a channel: the kernel destroys what is left on it.
    pub(super) fn close_cm(&mut self, file: FileId) {
        // Requests that nobody fetched are nobody's to destroy.
        let unread: Vec<u32> = match self.files.events(file) {
            Ok(events) => events.iter().filter_map(|event| event.child).collect(),
            Err(_) => Vec::new(),
        };
        let left: Vec<u32> = self
            .ids
            .0
            .iter()
            .filter(|(_, id)| id.file == file)
            .map(|(id, _)| *id)
            .collect();
        for handle in left {
            if !unread.contains(&handle) {
                self.reclaimed.push(format!(
                    "a channel was closed with {:?}",
                    self.ids.0[&handle]
                ));
            }
            self.remove_id(handle);
        }
    }

    fn listen(&mut self, file: FileId, request: &ucma::Listen) -> Outcome {
        match self.alive(file, request.id)?.phase {
            Phase::Bound => {}
            Phase::Idle => {
                let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
                self.bind_to(request.id, any)?;
            }
            _ => return Err(libc::EINVAL),
        }
        self.ids.get(request.id)?.phase = Phase::Listening;
        Ok(())
    }

    fn get_event(&mut self, file: FileId, fd: BorrowedFd<'_>, answer: &mut Answer<'_>) -> Outcome {
        answer.check(offset_of!(ucma::GetEvent, response))?;
        let events = self.files.events(file)?;
        let next = events.pop_front();
        if events.is_empty() {
            self.files.quiet(file, fd)?;
        }
        let event = next.ok_or(libc::EAGAIN)?;
        if let Ok(owner) = self.ids.get(event.owner) {
            owner.reported += 1;
        }
        self.groups.count_reported(event.group);
        answer.put(&event.record)
    }

    fn migrate(
        &mut self,
        file: FileId,
        request: &ucma::MigrateId,
        answer: &mut Answer<'_>,
    ) -> Outcome {
        answer.check(offset_of!(ucma::MigrateId, response))?;
        let from = self
            .files
            .find_number(request.fd.cast_signed())
            .map_err(|_| libc::ENOENT)?;
        let id = self.ids.on_file(from, request.id)?;
        id.file = file;
        let events_reported = id.reported;
        let moved = take(self.files.events(from)?, |event| event.owner == request.id);
        let has_events = !moved.is_empty();
        self.files.events(file)?.extend(moved);
        if has_events {
            self.files.signal(file);
        }
        answer.put(&ucma::MigrateResp { events_reported })
    }

    /// The id, while its device is there.
    pub(super) fn alive(&mut self, file: FileId, handle: u32) -> Outcome<&mut Id> {
        let id = self.ids.on_file(file, handle)?;
        if id.is_device_gone {
            Err(libc::ENXIO)
        } else {
            Ok(id)
        }
    }

    /// Queues an event. Ids that the program has not accepted have none.
    pub(super) fn emit(
        &mut self,
        handle: u32,
        kind: EventType,
        status: i32,
        param: Option<&ConnParam>,
    ) {
        let Ok(id) = self.ids.get(handle) else { return };
        if id.cookie == 0 {
            return;
        }
        let record = record(id.cookie, handle, kind, status, param);
        self.emit_record(handle, record);
    }

    /// Queues an event of an id as it is.
    pub(super) fn emit_record(&mut self, handle: u32, record: ucma::EventResp) {
        let Ok(id) = self.ids.get(handle) else { return };
        if id.cookie == 0 {
            return;
        }
        let file = id.file;
        self.queue(
            file,
            QueuedEvent {
                owner: handle,
                child: None,
                group: None,
                record,
            },
        );
    }

    pub(super) fn queue(&mut self, file: FileId, event: QueuedEvent) {
        if let Ok(events) = self.files.events(file) {
            events.push_back(event);
            self.files.signal(file);
        }
    }
}

/// Takes certain events out of a queue.
pub(super) fn take(
    events: &mut VecDeque<QueuedEvent>,
    is_wanted: impl FnMut(&QueuedEvent) -> bool,
) -> VecDeque<QueuedEvent> {
    let all = std::mem::take(events);
    let (taken, kept) = all.into_iter().partition(is_wanted);
    *events = kept;
    taken
}

pub(super) fn record<P: IntoBytes + Immutable>(
    uid: u64,
    id: u32,
    kind: EventType,
    status: i32,
    param: Option<&P>,
) -> ucma::EventResp {
    let mut record = ucma::EventResp {
        uid,
        id,
        event: kind.0,
        status: status.cast_unsigned(),
        ..FromZeros::new_zeroed()
    };
    if let Some(param) = param {
        let bytes = param.as_bytes();
        record.param.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    }
    record
}

/// Where a command's answer goes.
pub(super) struct Answer<'a> {
    /// Where in the command the address is, and the room there.
    room: Option<(usize, &'a mut [u8])>,
}

impl Answer<'_> {
    /// An answer whose address is not where the kernel looks for it goes to address 0.
    pub(super) fn check(&self, at: usize) -> Outcome {
        let expected = size_of::<ucma::CommandHeader>() + at;
        match &self.room {
            Some((offset, _)) if *offset == expected => Ok(()),
            _ => Err(libc::EFAULT),
        }
    }

    /// How many bytes there is room for.
    pub(super) fn room(&self) -> usize {
        self.room.as_ref().map_or(0, |(_, room)| room.len())
    }

    pub(super) fn put<T: IntoBytes + Immutable + ?Sized>(&mut self, answer: &T) -> Outcome {
        let (_, room) = self.room.as_mut().ok_or(libc::ENOSPC)?;
        room.get_mut(..size_of_val(answer))
            .ok_or(libc::ENOSPC)?
            .copy_from_slice(answer.as_bytes());
        Ok(())
    }
}

fn parse<T: FromBytes>(body: &[u8]) -> Outcome<T> {
    T::read_from_bytes(body).map_err(|_| libc::EINVAL)
}

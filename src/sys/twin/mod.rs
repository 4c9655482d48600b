//! A scripted twin of the kernel, for tests that have no RDMA device.
//!
//! It stands behind [`Kernel`] in place of the running kernel and models as much of it as the tests
//! need: the connection manager's file with real handshakes between two ids (`cm`, `handshake`,
//! `sidr`) and what goes with them (`address`, `groups`, `options`, `lookups`), a device's file
//! with its objects (`verbs`, `regions`, `windows`, `queues`, `qps`), its events (`async_events`) and rings in memory (`ring`), requests that are
//! carried out at the doorbell (`work`, `datagrams`), netlink and sysfs (`discovery`).
//!
//! A test looks at what was asked ([`Twin::calls`]), has calls refused ([`Twin::fail`]) or answers
//! falsified ([`Twin::tamper`]), and asks at the end whether everything was given back
//! ([`Twin::assert_clean`]).

mod address;
mod async_events;
mod attrs;
mod call;
mod card;
mod cm;
mod datagrams;
mod discovery;
mod files;
mod groups;
mod handshake;
mod kernel;
mod lookups;
mod memory;
mod objects;
mod options;
mod qps;
mod queues;
mod regions;
mod ring;
mod script;
mod sidr;
mod verbs;
mod windows;
mod work;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rdmacm_kernel_abi::rxe::{MmapInfo, QueueHeader};
use rdmacm_kernel_abi::ucma::{ConnParam, EventResp, EventType, IbUserServiceRec};
use rdmacm_kernel_abi::uverbs::DriverId;
use rdmacm_mlx5_device::Card;
use zerocopy::IntoBytes;

pub(crate) use address::{SILENT, WITHOUT_RDMA};
pub(crate) use call::{
    CREATE_CQ, CREATE_QP, Call, DESTROY_CQ, DESTROY_MR, DESTROY_PD, DESTROY_QP, GET_CONTEXT,
};
pub(crate) use discovery::TwinDevice;

use crate::device::Registry;
use files::{FileId, Files, Kind, QueuedEvent};
use objects::{Object, Objects};

/// What a part of the twin answers: an errno when it refuses.
type Outcome<T = ()> = Result<T, i32>;

/// Where the first device is.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

const CM_NODE: &str = "/dev/infiniband/rdma_cm";

/// The twin.
#[derive(Debug)]
pub(crate) struct Twin(Mutex<World>);

/// Everything that the twin knows.
#[derive(Debug)]
struct World {
    calls: Vec<Call>,
    /// The card, where there is one.
    card: Option<Card>,
    script: script::Script,
    devices: Vec<TwinDevice>,
    has_cm_node: bool,
    has_sysfs_entry_of_cm: bool,
    files: Files,
    memory: memory::Memory,
    ids: cm::Ids,
    groups: groups::Groups,
    /// What the administrator of the subnet has on record.
    services: Vec<IbUserServiceRec>,
    /// The kernel is one from before the commands that are the newest here.
    is_old: bool,
    objects: Objects,
    /// The queue pair's number by the handle of the id that a test says owns it.
    owned_qps: BTreeMap<u32, u32>,
    /// Numbers of queue pairs that the program connects by hand, and destroys when it likes.
    programs_qps: Vec<u32>,
    /// Things that no correct program does.
    violations: Vec<String>,
    /// Rings that belong to no object.
    loose_rings: Vec<ring::Ring>,
    /// Objects that the kernel had to take back itself when their file was closed.
    reclaimed: Vec<String>,
}

/// How much of everything there is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Census {
    pub files: usize,
    pub mappings: usize,
    pub ids: usize,
    pub groups: usize,
    pub pds: usize,
    pub mrs: usize,
    pub mws: usize,
    pub ahs: usize,
    pub cqs: usize,
    pub srqs: usize,
    pub qps: usize,
    pub xrcds: usize,
}

impl Twin {
    /// A kernel with one rxe device at [`ADDRESS`].
    pub(crate) fn new() -> Arc<Self> {
        Self::with_devices(vec![TwinDevice::rxe(0, ADDRESS)])
    }

    pub(crate) fn with_devices(devices: Vec<TwinDevice>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(World {
            calls: Vec::new(),
            script: Default::default(),
            devices,
            card: None,
            has_cm_node: true,
            has_sysfs_entry_of_cm: true,
            files: Files::default(),
            memory: Default::default(),
            ids: Default::default(),
            groups: Default::default(),
            services: Vec::new(),
            is_old: false,
            objects: Objects::default(),
            owned_qps: BTreeMap::new(),
            programs_qps: Vec::new(),
            violations: Vec::new(),
            loose_rings: Vec::new(),
            reclaimed: Vec::new(),
        })))
    }

    /// The library's view of this kernel.
    pub(crate) fn registry(self: &Arc<Self>) -> &'static Registry {
        Registry::of_stand_in(self.clone())
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked so far, in order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.world().calls.clone()
    }

    /// What the completion queues were told of moderation.
    pub(crate) fn moderations(&self) -> Vec<(u16, u16)> {
        let world = self.world();
        let of_cq = |object: &Object| match object {
            Object::Cq(cq) => Some(cq.moderation),
            _ => None,
        };
        world.objects.all.values().filter_map(of_cq).collect()
    }

    pub(crate) fn forget_calls(&self) {
        self.world().calls.clear();
    }

    /// Refuses one matching call with `errno`, after `skip` that pass.
    pub(crate) fn fail(
        &self,
        skip: usize,
        errno: i32,
        matches: impl FnMut(&Call) -> bool + Send + 'static,
    ) {
        self.world().script.add_fault(skip, 1, errno, None, matches);
    }

    /// Refuses all matching calls with `errno`, after `skip` that pass.
    pub(crate) fn fail_from(
        &self,
        skip: usize,
        errno: i32,
        matches: impl FnMut(&Call) -> bool + Send + 'static,
    ) {
        self.world()
            .script
            .add_fault(skip, usize::MAX, errno, None, matches);
    }

    /// Refuses one call that the current thread makes, after `skip` that pass.
    pub(crate) fn fail_here(
        &self,
        skip: usize,
        errno: i32,
        matches: impl FnMut(&Call) -> bool + Send + 'static,
    ) {
        let here = Some(thread::current().id());
        self.world().script.add_fault(skip, 1, errno, here, matches);
    }

    /// The calls that were refused because a test said so.
    pub(crate) fn refused(&self) -> Vec<Call> {
        self.world().script.refused.clone()
    }

    /// Changes answers: told the call and the attribute (0 for a written command), given its bytes.
    pub(crate) fn tamper(&self, change: impl FnMut(&Call, u16, &mut [u8]) + Send + 'static) {
        self.world().script.tamper(change);
    }

    /// Changes the headers of rings to come.
    pub(crate) fn tamper_rings(&self, change: impl FnMut(&mut QueueHeader) + Send + 'static) {
        self.world().script.tamper_rings(change);
    }

    /// Changes the payloads of netlink messages.
    pub(crate) fn tamper_netlink(&self, change: impl FnMut(&mut Vec<u8>) + Send + 'static) {
        self.world().script.tamper_netlink(change);
    }

    /// Answers what local services are asked; without this there are none.
    pub(crate) fn serve(&self, service: impl FnMut(&[u8]) -> io::Result<Vec<u8>> + Send + 'static) {
        self.world().script.set_service(service);
    }

    /// Ends all refusals and falsifications.
    pub(crate) fn behave(&self) {
        self.world().script.clear();
    }

    /// Queues an event for an id, given its kernel handle, as `change` makes it.
    pub(crate) fn inject(&self, id: u32, kind: EventType, change: impl FnOnce(&mut EventResp)) {
        let mut world = self.world();
        let owner = world.ids.get(id).expect("the id is there");
        let mut record = cm::record(owner.cookie, id, kind, 0, None::<&ConnParam>);
        let file = owner.file;
        change(&mut record);
        world.queue(
            file,
            QueuedEvent {
                owner: id,
                child: None,
                group: None,
                record,
            },
        );
    }

    /// Queues an event for a group that an id is in, given its kernel handle, as `change` makes it.
    pub(crate) fn inject_for_group(
        &self,
        group: u32,
        kind: EventType,
        change: impl FnOnce(&mut EventResp),
    ) {
        self.world().emit_for_group(group, kind, change);
    }

    /// Makes this a kernel from before Linux 6.18.
    pub(crate) fn become_old(&self) {
        self.world().is_old = true;
    }

    /// Puts services on record at the administrator of the InfiniBand subnet.
    pub(crate) fn register_services(&self, services: Vec<IbUserServiceRec>) {
        self.world().services = services;
    }

    /// Notes that a queue pair, given its number, belongs to an id, given its kernel handle:
    /// destroying the id first is then a violation. Known anyway once the id connects.
    pub(crate) fn note_owner(&self, id: u32, qp_num: u32) {
        self.world().owned_qps.insert(id, qp_num);
    }

    /// Ends the queue pair of a connected id, given its kernel handle: what was posted is flushed,
    /// and no event says why.
    pub(crate) fn fail_qp_of(&self, id: u32) {
        let mut world = self.world();
        let qp_num = world.ids.get(id).expect("the id is there").qp_num;
        let found = world.objects.qps().find(|(_, qp)| qp.number == qp_num);
        let id = found.expect("the queue pair is there").0;
        world.fail_qp(id);
        world.progress();
    }

    /// Notes that a queue pair, given its number, belongs to no id, though one connects it.
    pub(crate) fn note_programs_own(&self, qp_num: u32) {
        self.world().programs_qps.push(qp_num);
    }

    /// Removes the node of the connection manager, and its entry in sysfs where the module is to
    /// be missing.
    pub(crate) fn hide_cm(&self, module_too: bool) {
        let mut world = self.world();
        world.has_cm_node = false;
        world.has_sysfs_entry_of_cm &= !module_too;
    }

    /// Removes a device; what is made on it stays, useless.
    pub(crate) fn remove_device(&self, index: u32) {
        let mut world = self.world();
        world.remove_device_from_ids(index);
        for device in world
            .devices
            .iter_mut()
            .filter(|device| device.index == index)
        {
            device.is_gone = true;
        }
    }

    /// Changes what is known of a device.
    pub(crate) fn change_device(&self, index: u32, change: impl FnOnce(&mut TwinDevice)) {
        let mut world = self.world();
        let device = world
            .devices
            .iter_mut()
            .find(|device| device.index == index);
        change(device.expect("the device is there"));
    }

    pub(crate) fn add_device(&self, device: TwinDevice) {
        self.world().devices.push(device);
    }

    /// Makes a ring that belongs to no object, for the holder of a device's file to map. Returns
    /// its number and where to map it.
    pub(crate) fn new_ring(
        &self,
        fd: BorrowedFd<'_>,
        entries: u32,
        element: usize,
    ) -> (usize, MmapInfo) {
        let world = &mut *self.world();
        let file = world.files.find(fd).expect("the file is open");
        let (ring, info) =
            ring::Ring::new(&mut world.memory, &mut world.script, file, entries, element)
                .expect("the heap has memory");
        world.loose_rings.push(ring);
        (world.loose_rings.len() - 1, info)
    }

    /// Makes zeroed memory that belongs to no object, for the holder of a device's file to map. Returns
    /// where to map it.
    pub(crate) fn new_pages(&self, fd: BorrowedFd<'_>, length: usize) -> u64 {
        let world = &mut *self.world();
        let file = world.files.find(fd).expect("the file is open");
        let (pages, _) = world
            .memory
            .offer(file, length)
            .expect("the heap has memory");
        pages.offset()
    }

    /// Takes the next element out of such a ring: the bytes of its slot.
    pub(crate) fn take(&self, ring: usize) -> Option<Vec<u8>> {
        let world = &mut *self.world();
        let ring = &mut world.loose_rings[ring];
        let bytes = ring.peek_bytes(&world.memory)?;
        ring.advance(&world.memory);
        Some(bytes)
    }

    /// Puts an element into such a ring. False when it is full.
    pub(crate) fn put(&self, ring: usize, element: &[u8]) -> bool {
        let world = &mut *self.world();
        world.loose_rings[ring].push(&world.memory, element) == ring::Pushed::Done
    }

    /// What is there now.
    pub(crate) fn census(&self) -> Census {
        let mut world = self.world();
        world.notice_closed();
        let count = |is_it: fn(&Object) -> bool| {
            world
                .objects
                .all
                .values()
                .filter(|object| is_it(object))
                .count()
        };
        Census {
            files: world.files.open_count(),
            mappings: world.memory.mapped_count(),
            ids: world.ids.0.len(),
            groups: world.groups.len(),
            pds: count(|object| matches!(object, Object::Pd)),
            mrs: count(|object| matches!(object, Object::Mr(_))),
            mws: count(|object| matches!(object, Object::Mw(_))),
            ahs: count(|object| matches!(object, Object::Ah(_))),
            cqs: count(|object| matches!(object, Object::Cq(_))),
            srqs: count(|object| matches!(object, Object::Srq(_))),
            qps: count(|object| matches!(object, Object::Qp(_))),
            xrcds: count(|object| matches!(object, Object::Xrcd)),
        }
    }

    /// How many completions the program has not given back, in all queues.
    pub(crate) fn completions(&self) -> u32 {
        let world = self.world();
        let queues = world.objects.all.values();
        queues
            .filter_map(|object| match object {
                Object::Cq(queue) => Some(queue.ring.held(&world.memory)),
                _ => None,
            })
            .sum()
    }

    /// The objects that the program left for the kernel to take back.
    pub(crate) fn reclaimed(&self) -> Vec<String> {
        let mut world = self.world();
        world.notice_closed();
        world.reclaimed.clone()
    }

    /// Checks that everything was given back, in order and by the program itself.
    #[track_caller]
    pub(crate) fn assert_clean(&self) {
        assert_eq!(
            self.reclaimed(),
            Vec::<String>::new(),
            "left for the kernel to take back"
        );
        self.assert_nothing_left();
    }

    /// Checks that nothing is left, though the kernel may have had to take something back.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        self.assert_given_back();
        let card = self.world().card.clone();
        if let Some(card) = card {
            assert_eq!(card.violations(), Vec::<String>::new());
        }
    }

    /// Checks that nothing is left, and nothing was done to the twin itself that no correct program
    /// does: a card that is lied about has violations of its own.
    #[track_caller]
    pub(crate) fn assert_given_back(&self) {
        assert_eq!(self.census(), Census::default());
        assert_eq!(self.world().violations, Vec::<String>::new());
    }

    /// Notes a call and carries it out, unless the script refuses it.
    fn enter<T>(&self, call: &Call, act: impl FnOnce(&mut World) -> Outcome<T>) -> io::Result<T> {
        let mut world = self.world();
        world.notice_closed();
        world.calls.push(call.clone());
        let outcome = match world.script.refuse(call) {
            Some(errno) => Err(errno),
            None => act(&mut world),
        };
        if outcome.as_ref().err() == Some(&libc::ENOENT) && call.names_an_object() {
            world.violation(format!("{call:?} names an object that is not there"));
        }
        world.progress();
        outcome.map_err(io::Error::from_raw_os_error)
    }
}

impl World {
    fn violation(&mut self, text: impl Into<String>) {
        self.violations.push(text.into());
    }

    /// Whether the program was kept from taking a registration back. The pages stay pinned then,
    /// whatever else comes to be at their address.
    fn refused_dereg(&self) -> bool {
        self.script
            .refused
            .iter()
            .any(|call| call.is_method(DESTROY_MR))
    }

    fn notice_closed(&mut self) {
        for file in self.files.take_closed() {
            match self.files.kind(file) {
                Kind::Cm(_) => self.close_cm(file),
                Kind::Uverbs { .. } => self.close_uverbs(file),
                // The card closes the file when it is dropped.
                Kind::Card { .. } => {
                    *self.files.kind_mut(file) = Kind::Completions(Default::default())
                }
                Kind::Completions(_) | Kind::AsyncEvents { .. } => {}
            }
        }
    }

    fn open_file(&mut self, kind: Kind) -> Outcome<(FileId, OwnedFd)> {
        self.files
            .open(kind)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))
    }

    fn open_node(&mut self, path: &Path) -> Outcome<OwnedFd> {
        let kind = if path == Path::new(CM_NODE) && self.has_cm_node {
            Kind::Cm(Default::default())
        } else {
            let is_it =
                |device: &&TwinDevice| device.has_node && device.node().as_deref() == Some(path);
            let mut present = self.devices.iter().filter(|device| !device.is_gone);
            let device = present.find(is_it).ok_or(libc::ENOENT)?;
            if device.is_elsewhere {
                return Err(libc::EPERM);
            }
            match &self.card {
                Some(card) if device.driver == DriverId::MLX5 => Kind::Card {
                    device: device.index,
                    file: Arc::new(card.open()),
                },
                _ => Kind::Uverbs {
                    device: device.index,
                    has_context: false,
                },
            }
        };
        self.open_file(kind).map(|(_, fd)| fd)
    }

    fn number_of(&self, fd: BorrowedFd<'_>) -> Outcome<Option<u64>> {
        let file = self.files.find(fd)?;
        Ok(match self.files.kind(file) {
            Kind::Cm(_) => Some(libc::makedev(10, 124)),
            Kind::Uverbs { .. } | Kind::Card { .. } => self.device_of(file)?.device_number(),
            Kind::Completions(_) | Kind::AsyncEvents { .. } => None,
        })
    }

    /// The device that a file is open on, removed or not.
    fn device_of(&self, file: FileId) -> Outcome<TwinDevice> {
        let (Kind::Uverbs { device, .. } | Kind::Card { device, .. }) = self.files.kind(file)
        else {
            return Err(libc::ENOTTY);
        };
        let mut devices = self.devices.iter();
        devices
            .find(|known| known.index == *device)
            .cloned()
            .ok_or(libc::EIO)
    }

    fn read_record(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Outcome<usize> {
        let file = self.files.find(fd)?;
        let (record, is_last) = match self.files.kind_mut(file) {
            Kind::Completions(tokens) => {
                let token = tokens.pop_front();
                let record = token.map(|token| token.to_ne_bytes().to_vec());
                (record, tokens.is_empty())
            }
            Kind::AsyncEvents { waiting, .. } => {
                let event = waiting.pop_front();
                let record = event.map(|event| event.as_bytes().to_vec());
                (record, waiting.is_empty())
            }
            _ => return Err(libc::EINVAL),
        };
        if record.is_none() && self.files.is_blocking(file) {
            self.violation("a read of an event that would never return");
        }
        if is_last {
            self.files.quiet(file, fd)?;
        }
        let record = record.ok_or(libc::EAGAIN)?;
        buffer
            .get_mut(..record.len())
            .ok_or(libc::EINVAL)?
            .copy_from_slice(&record);
        Ok(record.len())
    }
}

//! A kernel that answers with whatever an input says, for the fuzz targets.
//!
//! It stands behind [`Kernel`] in place of the running one and knows nothing of what it is asked:
//! each answer is the next bytes of the input. Two things are kept as they are, since the library
//! has to believe them: descriptors are real and new, and a mapping is as long as it was asked for.
//! Once the input is used up, answers are zeros and no event waits.
//!
//! An mlx5 device has more answers that have to fit before anything is made of them: there the input
//! says what is wrong with an answer that is right ([`mlx5`]), and after its end nothing is.

mod input;
mod memory;
mod mlx5;

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::poll::PollFd;
use rdmacm_kernel_abi::rxe::{MmapInfo, QueueHeader};
use rdmacm_kernel_abi::siw::UrespCreateCq;
use rdmacm_kernel_abi::ucma::{self, CommandHeader, CreateId, JoinMcast};
use rdmacm_kernel_abi::uverbs::{self, QueryDeviceResp, ioctl};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub(crate) use input::Input;
use memory::{PAGE, Pages};
pub(crate) use mlx5::Card;

use super::linux::each_netlink_message;
use super::{
    DOORBELL_LENGTH, DoorbellCommand, IoctlCommand, Kernel, LocalService, MapFor, Question, Value,
    WriteCommand, doorbell_answer,
};

/// A byte of the input from here on refuses the call that it is read for.
const REFUSAL: u8 = 0xf0;

/// Where the device list comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Discovery {
    /// There is one rxe device, which sysfs tells of. What it can do is fixed as well.
    #[default]
    Rxe,
    /// The same with a siw device.
    Siw,
    /// The same with an mlx5 device.
    Mlx5,
    /// The input answers netlink and sysfs, and tells what a device can do.
    Input,
}

/// The kernel.
#[derive(Debug, Default)]
pub(crate) struct Hostile(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    input: Vec<u8>,
    at: usize,
    discovery: Discovery,
    /// What the program gave for its ids and groups, which the kernel hands back in events.
    cookies: Vec<u64>,
    plain_queues: bool,
    /// What an mlx5 device grants.
    card: Card,
    /// Commands of devices have to be written: there is no ioctl.
    is_older: bool,
    handles: u32,
    /// The last attempt to destroy something was refused.
    has_refused_destroy: bool,
    memory: Vec<Pages>,
    /// The event record that was read last.
    record: Vec<u8>,
}

impl Hostile {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Begins to answer from an input. What is mapped stays.
    pub(crate) fn answer_from(&self, input: &[u8], discovery: Discovery) {
        let mut state = self.state();
        state.input.clear();
        state.input.extend_from_slice(input);
        (state.at, state.discovery) = (0, discovery);
        (state.plain_queues, state.is_older) = (false, false);
        (state.card, state.handles, state.has_refused_destroy) = (Card::default(), 0, false);
        state.cookies.clear();
        state.record.clear();
    }

    /// Changes where the device list comes from, and what devices can do.
    pub(crate) fn discover_from(&self, discovery: Discovery) {
        self.state().discovery = discovery;
    }

    /// Makes queues from now on as they should be: one page, empty.
    pub(crate) fn make_queues_plain(&self, plain: bool) {
        self.state().plain_queues = plain;
    }

    /// What an mlx5 device grants from now on, where the input does not say otherwise.
    pub(crate) fn put_card(&self, card: Card) {
        self.state().card = card;
    }

    /// Takes the commands of devices by `write()` only, from now on.
    pub(crate) fn refuse_ioctls(&self) {
        self.state().is_older = true;
    }

    /// The next byte of the input, for the target itself. `None` when it is used up.
    pub(crate) fn next_step(&self) -> Option<u8> {
        let mut state = self.state();
        (!state.is_done()).then(|| state.byte())
    }

    /// The bytes that [`Hostile::next_step`] gives, at most so many: that a long input takes no
    /// longer than it is worth.
    pub(crate) fn steps(&self, most: usize) -> impl Iterator<Item = u8> {
        std::iter::from_fn(|| self.next_step()).take(most)
    }

    /// The next number of the input, for the target itself.
    pub(crate) fn number(&self) -> u32 {
        let mut bytes = [0; 4];
        self.state().fill(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// The event record that the library read last, as it was given to it.
    pub(crate) fn last_record(&self) -> Vec<u8> {
        self.state().record.clone()
    }

    /// How many mappings the library holds.
    pub(crate) fn mappings(&self) -> usize {
        self.state().memory.len()
    }

    /// The length of a mapping, which are counted from 0 in the order they were made.
    pub(crate) fn mapping_length(&self, mapping: usize) -> usize {
        self.state().memory[mapping].length()
    }

    /// Where a mapping is.
    pub(crate) fn mapping_address(&self, mapping: usize) -> NonNull<u8> {
        self.state().memory[mapping].address()
    }

    /// The mapping that begins at an address, if there is one still.
    pub(crate) fn mapping_at(&self, address: NonNull<u8>) -> Option<usize> {
        let state = self.state();
        let mut memory = state.memory.iter();
        memory.position(|pages| pages.address() == address)
    }

    /// Reads a mapping; zeros behind its end.
    pub(crate) fn peek<const N: usize>(&self, mapping: usize, at: usize) -> [u8; N] {
        self.state().memory[mapping].read(at)
    }

    /// Writes into a mapping, as far as it goes.
    pub(crate) fn poke(&self, mapping: usize, at: usize, bytes: &[u8]) {
        self.state().memory[mapping].write(at, bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_done(&self) -> bool {
        self.at >= self.input.len()
    }

    fn byte(&mut self) -> u8 {
        let byte = self.input.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    /// The next bytes of the input, fewer at its end.
    fn bytes(&mut self, length: usize) -> &[u8] {
        let rest = &self.input[self.at.min(self.input.len())..];
        let taken = &rest[..length.min(rest.len())];
        self.at += taken.len();
        taken
    }

    /// Fills an answer, as far as the input goes.
    fn fill(&mut self, answer: &mut [u8]) {
        let bytes = self.bytes(answer.len());
        answer[..bytes.len()].copy_from_slice(bytes);
    }

    fn refuse(&mut self) -> io::Result<()> {
        if self.byte() < REFUSAL {
            return Ok(());
        }
        let errno = match self.byte() {
            // A number of the drivers' own.
            0 => 524,
            errno => i32::from(errno),
        };
        Err(io::Error::from_raw_os_error(errno))
    }

    /// Refuses to destroy something on an mlx5 device, but not the second attempt at it: memory of
    /// what is there for ever would be leaked on purpose.
    fn refuse_destroy(&mut self) -> io::Result<()> {
        let outcome = match self.has_refused_destroy {
            true => Ok(()),
            false => self.refuse(),
        };
        self.has_refused_destroy = outcome.is_err();
        outcome
    }

    fn text(&mut self) -> Vec<u8> {
        let length = self.byte();
        self.bytes(usize::from(length)).to_vec()
    }

    /// The record of an event; nothing waits at the end of the input.
    fn read_event(&mut self, record: &mut [u8]) -> io::Result<()> {
        if self.is_done() {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        self.fill(record);
        Ok(())
    }

    /// An event's cookie is one of those that the library gave, most of the time.
    fn choose_cookie(&mut self, uid: &mut [u8]) {
        let choice = usize::from(self.byte());
        if choice < 0xc0 && !self.cookies.is_empty() {
            let cookie = self.cookies[choice % self.cookies.len()];
            uid.copy_from_slice(&cookie.to_ne_bytes());
        }
    }

    fn map(&mut self, length: usize) -> io::Result<NonNull<u8>> {
        let pages = Pages::new(length)?;
        let address = pages.address();
        self.memory.push(pages);
        Ok(address)
    }

    /// Answers a written command of a device.
    fn answer_verbs(&mut self, command: uverbs::Command, answer: &mut [u8]) {
        if is_query_device(command) && self.discovery != Discovery::Input {
            let fixed = capable_device();
            let length = answer.len().min(size_of_val(&fixed));
            answer[..length].copy_from_slice(&fixed.as_bytes()[..length]);
            return;
        }
        match self.discovery {
            Discovery::Mlx5 => {
                let right = self.card.written(command, self.handles);
                self.distort(&right, answer);
            }
            Discovery::Rxe | Discovery::Siw | Discovery::Input => self.fill(answer),
        }
        self.handles = self.handles.wrapping_add(1);
        if command == uverbs::Command::CREATE_COMP_CHANNEL {
            answer.copy_from_slice(&some_descriptor().into_raw_fd().to_ne_bytes());
        }
    }

    /// 16 slots of 128 bytes, where there is a header that says so.
    fn make_plain_queue(&self) {
        if self.discovery == Discovery::Siw {
            return;
        }
        let pages = self.memory.last().expect("just mapped");
        pages.write(HEADER[0], &7u32.to_ne_bytes());
        pages.write(HEADER[1], &15u32.to_ne_bytes());
    }

    /// Makes up a queue: the four numbers of its header, where it has one, and the beginning of its
    /// slots.
    fn fill_queue(&mut self) {
        if self.discovery == Discovery::Siw {
            let length = usize::from(self.byte()) * 8;
            let elements = self.bytes(length).to_vec();
            return self.memory.last().expect("just mapped").write(0, &elements);
        }
        let mut numbers = [[0; 4]; 4];
        for number in &mut numbers {
            self.fill(number);
        }
        let length = usize::from(self.byte()) * 8;
        let slots = self.bytes(length).to_vec();
        let pages = self.memory.last().expect("just mapped");
        for (at, number) in HEADER.into_iter().zip(numbers) {
            pages.write(at, &number);
        }
        pages.write(size_of::<QueueHeader>(), &slots);
    }
}

/// What a driver says of a completion queue that is as it should be.
const ONE_PAGE: MmapInfo = MmapInfo {
    offset: 0,
    size: PAGE as u32,
    pad: 0,
};
const ONE_SIW_PAGE: UrespCreateCq = UrespCreateCq {
    cq_id: 1,
    num_cqe: 16,
    cq_key: 0,
};

/// Where a queue's header has its numbers: the size of a slot, the mask, the index of the side that
/// fills the queue, and of the one that empties it.
pub(crate) const HEADER: [usize; 4] = [
    std::mem::offset_of!(QueueHeader, log2_elem_size),
    std::mem::offset_of!(QueueHeader, index_mask),
    std::mem::offset_of!(QueueHeader, producer_index),
    std::mem::offset_of!(QueueHeader, consumer_index),
];

/// A descriptor that is good for nothing but being closed.
fn some_descriptor() -> OwnedFd {
    File::open("/dev/null")
        .expect("no descriptor was leaked")
        .into()
}

/// What a device says it can do: more than any target asks for.
fn capable_device() -> uverbs::ExQueryDeviceResp {
    uverbs::ExQueryDeviceResp {
        base: QueryDeviceResp {
            max_mr_size: u64::MAX,
            max_qp: 100,
            max_qp_wr: 1 << 16,
            max_sge: 32,
            max_srq: 100,
            max_srq_wr: 1 << 16,
            max_srq_sge: 32,
            max_cq: 100,
            max_cqe: 1 << 16,
            max_qp_rd_atom: 128,
            max_qp_init_rd_atom: 128,
            phys_port_cnt: 1,
            ..FromZeros::new_zeroed()
        },
        ..FromZeros::new_zeroed()
    }
}

/// A doorbell that the kernel answers or refuses.
#[derive(Debug)]
struct Doorbell(Arc<Hostile>);

impl DoorbellCommand for Doorbell {
    fn send(&self, _fd: BorrowedFd<'_>) -> isize {
        doorbell_answer(self.0.state().refuse())
    }
}

impl Kernel for Hostile {
    fn open(&self, _path: &Path) -> io::Result<OwnedFd> {
        self.state().refuse()?;
        Ok(some_descriptor())
    }

    fn device_number(&self, _fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        let mut state = self.state();
        match state.discovery {
            Discovery::Rxe | Discovery::Siw | Discovery::Mlx5 => Ok(Some(libc::makedev(231, 192))),
            Discovery::Input => {
                let (major, minor) = (state.byte(), state.byte());
                Ok((major != 0).then(|| libc::makedev(major.into(), minor.into())))
            }
        }
    }

    fn doorbell(
        self: Arc<Self>,
        _request: [u8; DOORBELL_LENGTH],
        _answer_at: usize,
    ) -> Box<dyn DoorbellCommand> {
        Box::new(Doorbell(self))
    }

    fn write_command(&self, _fd: BorrowedFd<'_>, command: WriteCommand<'_>) -> io::Result<()> {
        let mut state = self.state();
        let number = verbs_command(command.request);
        match number.is_some_and(mlx5::destroys) && state.discovery == Discovery::Mlx5 {
            true => state.refuse_destroy(),
            false => state.refuse(),
        }?;
        if let Some(number) = number {
            if let Some((_, answer)) = command.response {
                state.answer_verbs(number, answer);
            }
            if let Some((_, fd)) = command.new_fd {
                *fd = Some(some_descriptor());
            }
            return Ok(());
        }
        let known = CommandHeader::read_from_prefix(command.request).ok();
        let (number, body) = known.map_or((u32::MAX, &[][..]), |(header, body)| (header.cmd, body));
        if number == ucma::Command::CreateId as u32 {
            state
                .cookies
                .extend(CreateId::read_from_bytes(body).map(|request| request.uid));
        } else if number == ucma::Command::JoinMcast as u32 {
            state
                .cookies
                .extend(JoinMcast::read_from_bytes(body).map(|request| request.uid));
        }
        let Some((_, answer)) = command.response else {
            return Ok(());
        };
        if number == ucma::Command::GetEvent as u32 {
            state.read_event(answer)?;
            state.choose_cookie(&mut answer[..size_of::<u64>()]);
            state.record = answer.to_vec();
        } else {
            state.fill(answer);
        }
        Ok(())
    }

    fn ioctl_command(&self, _fd: BorrowedFd<'_>, command: IoctlCommand<'_, '_>) -> io::Result<()> {
        let mut state = self.state();
        if state.is_older {
            return Err(io::Error::from_raw_os_error(libc::ENOTTY));
        }
        let method = (command.object, command.method);
        let is_mlx5 = state.discovery == Discovery::Mlx5;
        match is_mlx5 && mlx5::is_destroyed_by(method) {
            true => state.refuse_destroy(),
            false => state.refuse(),
        }?;
        let is_write = method == (ioctl::object::DEVICE, ioctl::device::INVOKE_WRITE);
        let mut written = uverbs::Command(0);
        for attr in command.attrs.iter_mut() {
            match &mut attr.value {
                Value::In(bytes)
                    if is_write && attr.id == ioctl::device::invoke_write::WRITE_CMD =>
                {
                    let number = u64::read_from_bytes(bytes).unwrap_or(0);
                    written = uverbs::Command(number as u32);
                }
                Value::Out(answer) if is_query_device(written) => match state.discovery {
                    Discovery::Rxe | Discovery::Siw | Discovery::Mlx5 => {
                        let fixed = capable_device();
                        let length = answer.len().min(size_of_val(&fixed));
                        answer[..length].copy_from_slice(&fixed.as_bytes()[..length]);
                    }
                    Discovery::Input => state.fill(answer),
                },
                Value::Out(answer) if state.plain_queues && attr.id == ioctl::UHW_OUT => {
                    answer.copy_from_slice(match state.discovery {
                        Discovery::Siw => ONE_SIW_PAGE.as_bytes(),
                        Discovery::Rxe | Discovery::Mlx5 | Discovery::Input => ONE_PAGE.as_bytes(),
                    });
                }
                Value::Out(answer) if is_mlx5 => {
                    let right = state.card.answer(method, written, attr.id, state.handles);
                    state.distort(&right, answer);
                }
                Value::Out(answer) | Value::AddressOf(answer) => state.fill(answer),
                Value::NewHandle(handle) => {
                    state.handles = state.handles.wrapping_add(1);
                    **handle = state.handles;
                }
                Value::NewFd(fd) => **fd = Some(some_descriptor()),
                Value::In(_) | Value::Handle(_) | Value::Fd(_) => {}
            }
        }
        if written == uverbs::Command::CREATE_COMP_CHANNEL {
            put_descriptor(command);
        }
        Ok(())
    }

    fn read(&self, _fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.state();
        if !state.is_done() {
            state.refuse()?;
        }
        // A short record now and then.
        let length = match state.byte() {
            cut @ 0xe0.. => buffer.len().min(usize::from(cut - 0xe0)),
            _ => buffer.len(),
        };
        state.read_event(&mut buffer[..length])?;
        state.record = buffer[..length].to_vec();
        Ok(length)
    }

    fn set_nonblocking(&self, _fd: BorrowedFd<'_>) -> io::Result<()> {
        self.state().refuse()
    }

    /// Nothing ever comes: no target waits.
    fn poll(&self, _fds: &mut [PollFd<'_>], _timeout: Option<Duration>) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    fn map_device(
        &self,
        _fd: BorrowedFd<'_>,
        length: usize,
        _offset: u64,
        _purpose: MapFor,
    ) -> io::Result<NonNull<u8>> {
        let mut state = self.state();
        state.refuse()?;
        let address = state.map(length)?;
        match state.plain_queues {
            // A page of registers, which nobody reads.
            _ if state.discovery == Discovery::Mlx5 => {}
            true => state.make_plain_queue(),
            false => state.fill_queue(),
        }
        Ok(address)
    }

    fn map_memory(&self, length: usize) -> io::Result<NonNull<u8>> {
        let mut state = self.state();
        if state.discovery == Discovery::Mlx5 {
            state.refuse()?;
        }
        state.map(length)
    }

    unsafe fn unmap(&self, address: NonNull<u8>, length: usize) {
        let mut state = self.state();
        let is_it = |pages: &Pages| pages.address() == address && pages.length() == length;
        let at = state.memory.iter().position(is_it);
        state
            .memory
            .remove(at.expect("what is unmapped is a whole mapping"));
    }

    fn netlink(
        &self,
        _requests: &[u8],
        mut count: usize,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let mut state = self.state();
        if state.discovery != Discovery::Input {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        state.refuse()?;
        while count > 0 {
            if state.is_done() {
                return Err(io::Error::from_raw_os_error(libc::EAGAIN));
            }
            let length = usize::from(state.byte()) * 4;
            let answered = each_netlink_message(state.bytes(length), each)?;
            count = count.saturating_sub(answered);
        }
        Ok(())
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        let mut state = self.state();
        let (name, node_type) = match state.discovery {
            Discovery::Siw => ("siw0", "4: RNIC"),
            Discovery::Mlx5 => ("mlx5_0", "1: CA"),
            Discovery::Rxe | Discovery::Input => ("rxe0", "1: CA"),
        };
        let fixed = match path.to_str().and_then(|path| path.rsplit('/').next()) {
            _ if state.discovery == Discovery::Input => None,
            Some("ibdev") => Some(name),
            Some("node_type") => Some(node_type),
            Some("link_layer") => Some("Ethernet"),
            Some("node_guid") => Some("5054:00ff:fe00:0001"),
            Some("dev") => Some("231:192"),
            _ => None,
        };
        if let Some(text) = fixed {
            return Ok(text.to_owned());
        }
        state.refuse()?;
        // As the standard library does with a file that is no text.
        let text = String::from_utf8(state.text()).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(text.trim().to_owned())
    }

    fn read_link(&self, _path: &Path) -> io::Result<PathBuf> {
        let mut state = self.state();
        if state.discovery == Discovery::Mlx5 {
            return Ok("../../bus/pci/drivers/mlx5_core".into());
        }
        state.refuse()?;
        Ok(String::from_utf8_lossy(&state.text()).as_ref().into())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        if state.discovery != Discovery::Input && path.ends_with("infiniband_verbs") {
            return Ok(vec!["uverbs0".to_owned()]);
        }
        state.refuse()?;
        let count = state.byte() % 8;
        let name = |text: Vec<u8>| String::from_utf8_lossy(&text).replace(['/', '\0'], "_");
        Ok((0..count).map(|_| name(state.text())).collect())
    }

    /// The rest of the input, in pieces.
    fn ask_service(
        &self,
        _service: LocalService<'_>,
        question: &Question<'_>,
    ) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.refuse()?;
        let mut answer = Vec::new();
        while !(question.is_whole)(&answer) {
            if state.is_done() || answer.len() == question.max_answer {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let room = question.max_answer - answer.len();
            let length = usize::from(state.byte()).min(room);
            answer.extend_from_slice(state.bytes(length));
        }
        Ok(answer)
    }

    fn locked_memory_limit(&self) -> Option<u64> {
        None
    }
}

/// The number of a written command of a device. It counts itself in words, where the connection
/// manager's count the bytes behind their header.
fn verbs_command(request: &[u8]) -> Option<uverbs::Command> {
    let (header, _) = uverbs::CmdHeader::read_from_prefix(request).ok()?;
    let is_extended = header.command & uverbs::CMD_FLAG_EXTENDED != 0;
    let is_whole = usize::from(header.in_words) * 4 == request.len();
    (is_extended || is_whole).then_some(uverbs::Command(header.command))
}

fn is_query_device(command: uverbs::Command) -> bool {
    command.0 == uverbs::ExCommand::QUERY_DEVICE.0 | uverbs::CMD_FLAG_EXTENDED
}

/// Answers a command that makes a descriptor with a real one.
fn put_descriptor(command: IoctlCommand<'_, '_>) {
    for attr in command.attrs.iter_mut() {
        if let (ioctl::device::invoke_write::CORE_OUT, Value::Out(answer)) =
            (attr.id, &mut attr.value)
        {
            let fd = some_descriptor().into_raw_fd();
            answer[..size_of_val(&fd)].copy_from_slice(&fd.to_ne_bytes());
        }
    }
}

//! The real kernel, through `libc` and `nix`.

mod doorbell;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::socket::{MsgFlags, NetlinkAddr, sendto};
use rdmacm_kernel_abi::{netlink, uverbs::ioctl};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    Attr, DOORBELL_LENGTH, DoorbellCommand, IoctlCommand, Kernel, LocalService, MAX_ATTRS, MapFor,
    Question, Value, WriteCommand, adopt_fd, local_service,
};

use doorbell::Doorbell;

impl WriteCommand<'_> {
    /// Puts in the addresses of the response and of further input.
    pub(super) fn fill_in(&mut self) {
        if let Some((offset, buffer)) = &mut self.response {
            put_address(self.request, *offset, buffer.as_mut_ptr() as u64);
        }
        if let Some((offset, buffer)) = self.indirect {
            put_address(self.request, offset, buffer.as_ptr() as u64);
        }
    }

    /// Takes over the descriptor that the command made, if it makes one.
    ///
    /// # Safety
    ///
    /// The command must have been carried out, once.
    pub(super) unsafe fn adopt(self) -> io::Result<()> {
        if let (Some((offset, fd)), Some((_, answer))) = (self.new_fd, self.response) {
            let (number, _) = u32::read_from_prefix(&answer[offset..])
                .map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
            // SAFETY: the kernel has just made this descriptor for us and told nobody else.
            *fd = Some(unsafe { adopt_fd(number.into()) }?);
        }
        Ok(())
    }
}

/// Calls into the running kernel.
#[derive(Debug)]
pub(crate) struct Linux;

impl Kernel for Linux {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        // std sets O_CLOEXEC and repeats an interrupted open.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        Ok(file.into())
    }

    fn device_number(&self, fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        let stat = nix::sys::stat::fstat(fd)?;
        Ok((stat.st_mode & libc::S_IFMT == libc::S_IFCHR).then_some(stat.st_rdev))
    }

    fn write_command(&self, fd: BorrowedFd<'_>, mut command: WriteCommand<'_>) -> io::Result<()> {
        command.fill_in();
        let written = nix::unistd::write(fd, command.request).map_err(with_any_errno)?;
        if written != command.request.len() {
            // The command was not carried out, whatever the count says.
            return Err(io::Error::from_raw_os_error(libc::ENODATA));
        }
        // SAFETY: the kernel has carried the command out just now.
        unsafe { command.adopt() }
    }

    fn doorbell(
        self: Arc<Self>,
        request: [u8; DOORBELL_LENGTH],
        answer_at: usize,
    ) -> Box<dyn DoorbellCommand> {
        Box::new(Doorbell::new(request, answer_at))
    }

    fn ioctl_command(
        &self,
        fd: BorrowedFd<'_>,
        mut command: IoctlCommand<'_, '_>,
    ) -> io::Result<()> {
        let mut packet = IoctlPacket::encode(&mut command);
        // SAFETY: the packet has the kernel's layout: a header that counts the attributes behind
        // it. Each attribute points to a slice that `command` borrows for this call, with that
        // slice's length, and the output slices are borrowed mutably.
        let result = unsafe {
            libc::ioctl(
                fd.as_raw_fd(),
                libc::Ioctl::from(ioctl::VERBS_IOCTL),
                &mut packet,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        packet.decode(command.attrs)
    }

    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        nix::unistd::read(fd, buffer).map_err(with_any_errno)
    }

    fn set_nonblocking(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        // These descriptors carry no other status flag, so there is none to keep.
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(())
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        nix::poll::poll(fds, poll_timeout(timeout))?;
        Ok(())
    }

    fn map_device(
        &self,
        fd: BorrowedFd<'_>,
        length: usize,
        offset: u64,
        purpose: MapFor,
    ) -> io::Result<NonNull<u8>> {
        let protection = match purpose {
            MapFor::ReadingAndWriting => libc::PROT_READ | libc::PROT_WRITE,
            MapFor::Writing => libc::PROT_WRITE,
        };
        map(length, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    fn map_memory(&self, length: usize) -> io::Result<NonNull<u8>> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // A fork leaves the parent the pages that a device uses, and copies them for the child at
        // once: from Linux 6.1 on nothing has to be said for that.
        map(
            length,
            protection,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    }

    unsafe fn unmap(&self, address: NonNull<u8>, length: usize) {
        // SAFETY: the caller hands back a whole mapping that `map` made and nobody uses any more.
        // munmap of such a range cannot fail, and there is nobody to tell.
        unsafe { libc::munmap(address.as_ptr().cast(), length) };
    }

    fn netlink(
        &self,
        requests: &[u8],
        mut count: usize,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let socket = rdma_netlink_socket()?;
        sendto(
            socket.as_raw_fd(),
            requests,
            &NetlinkAddr::new(0, 0),
            MsgFlags::empty(),
        )?;
        while count > 0 {
            for datagram in receive(socket.as_fd())? {
                let answered = each_netlink_message(&datagram, each)?;
                count = count.saturating_sub(answered);
            }
        }
        Ok(())
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        Ok(fs::read_to_string(path)?.trim().to_owned())
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn ask_service(
        &self,
        service: LocalService<'_>,
        question: &Question<'_>,
    ) -> io::Result<Vec<u8>> {
        local_service::ask(service, question)
    }

    fn locked_memory_limit(&self) -> Option<u64> {
        let (soft, _hard) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
        (soft != RLIM_INFINITY).then_some(soft)
    }
}

/// The error of the call just made. The kernel's drivers return numbers of their own as well, 524
/// (ENOTSUPP) for one, and `nix` turns what it does not know into 0.
fn with_any_errno(errno: Errno) -> io::Error {
    match errno {
        Errno::UnknownErrno => io::Error::last_os_error(),
        known => known.into(),
    }
}

/// Writes an address into the `u64` at `offset` of a command.
fn put_address(request: &mut [u8], offset: usize, address: u64) {
    request[offset..offset + 8].copy_from_slice(&address.to_ne_bytes());
}

fn map(
    length: usize,
    protection: i32,
    flags: i32,
    fd: RawFd,
    offset: u64,
) -> io::Result<NonNull<u8>> {
    let offset =
        libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, offset) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Rounds up, so that a wait never ends before its time.
fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    timeout.map_or(PollTimeout::NONE, |timeout| {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        // Not `PollTimeout::MAX` nor a conversion from a wider type: those of nix 0.30 panic.
        let millis = i32::try_from(millis).unwrap_or(i32::MAX);
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::NONE)
    })
}

/// A netlink socket of the RDMA family, which `nix` does not name.
fn rdma_netlink_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: makes a new descriptor and touches no memory.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, netlink::NETLINK_RDMA) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was made just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The datagrams that wait at a netlink socket, two at most. The kernel answers before the request
/// returns, so that nothing there means that nothing comes.
fn receive(socket: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    // The kernel cuts a dump into datagrams of at most this size.
    const LONGEST: usize = 16 * 1024;
    let mut datagrams = vec![vec![0u8; LONGEST]; 2];
    let mut iovecs = [0, 1].map(|index: usize| libc::iovec {
        iov_base: datagrams[index].as_mut_ptr().cast(),
        iov_len: LONGEST,
    });
    let mut headers = [0, 1].map(|index: usize| {
        // SAFETY: all fields of the record are numbers and pointers, for which zero is valid.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = &raw mut iovecs[index];
        header.msg_hdr.msg_iovlen = 1;
        header
    });
    let received = loop {
        // SAFETY: two records, each with one buffer of the length it says, all alive and ours.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as u32,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        if received >= 0 {
            break received as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    datagrams.truncate(received);
    for (datagram, header) in datagrams.iter_mut().zip(&headers) {
        datagram.truncate(header.msg_len as usize);
    }
    Ok(datagrams)
}

/// Hands on each message of one datagram. Returns how many requests it finished answering.
pub(super) fn each_netlink_message(
    mut datagram: &[u8],
    each: &mut dyn FnMut(u16, &[u8]),
) -> io::Result<usize> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "malformed netlink message");
    let mut answered = 0;
    while !datagram.is_empty() {
        let (header, _) = netlink::NlMsgHdr::read_from_prefix(datagram).map_err(|_| malformed())?;
        let length = header.nlmsg_len as usize;
        let payload = datagram
            .get(size_of::<netlink::NlMsgHdr>()..length)
            .ok_or_else(malformed)?;
        match header.nlmsg_type {
            netlink::NLMSG_ERROR => {
                let (error, _) = i32::read_from_prefix(payload).map_err(|_| malformed())?;
                if error < 0 {
                    return Err(io::Error::from_raw_os_error(error.saturating_neg()));
                }
                answered += 1;
            }
            netlink::NLMSG_DONE => answered += 1,
            kind => {
                each(kind, payload);
                let is_one_of_many = header.nlmsg_flags & netlink::NlmFlags::MULTI.bits() != 0;
                answered += usize::from(!is_one_of_many);
            }
        }
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(answered)
}

/// A command in the layout of the ioctl: a header with its attributes right behind.
#[repr(C)]
pub(super) struct IoctlPacket {
    header: ioctl::Header,
    attrs: [ioctl::Attr; MAX_ATTRS],
}

impl IoctlPacket {
    pub(super) fn encode(command: &mut IoctlCommand<'_, '_>) -> Self {
        assert!(
            command.attrs.len() <= MAX_ATTRS,
            "MAX_ATTRS covers every command of the crate"
        );
        let used = command.attrs.len();
        let mut packet = Self {
            header: ioctl::Header {
                length: (size_of::<ioctl::Header>() + used * size_of::<ioctl::Attr>()) as u16,
                object_id: command.object,
                method_id: command.method,
                num_attrs: used as u16,
                driver_id: command.driver_id,
                ..Default::default()
            },
            attrs: [ioctl::Attr::default(); MAX_ATTRS],
        };
        for (encoded, attr) in packet.attrs.iter_mut().zip(command.attrs.iter_mut()) {
            *encoded = encode_attr(attr);
        }
        packet
    }

    /// Takes the new objects out of the attributes after a successful call.
    pub(super) fn decode(&self, attrs: &mut [Attr<'_>]) -> io::Result<()> {
        for (encoded, attr) in self.attrs.iter().zip(attrs) {
            match &mut attr.value {
                Value::NewHandle(handle) => **handle = encoded.data as u32,
                Value::NewFd(fd) => {
                    // SAFETY: the kernel has just made this descriptor for us and told nobody else.
                    **fd = Some(unsafe { adopt_fd(encoded.data) }?);
                }
                Value::In(_)
                | Value::Out(_)
                | Value::AddressOf(_)
                | Value::Handle(_)
                | Value::Fd(_) => {}
            }
        }
        Ok(())
    }
}

fn encode_attr(attr: &mut Attr<'_>) -> ioctl::Attr {
    let (len, data) = match &mut attr.value {
        Value::In(bytes) if bytes.len() <= 8 => {
            let mut inline = 0u64;
            inline.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
            (bytes.len(), inline)
        }
        Value::In(bytes) => (bytes.len(), bytes.as_ptr() as u64),
        Value::Out(bytes) => (bytes.len(), bytes.as_mut_ptr() as u64),
        // Eight bytes of input, which travel inside the attribute.
        Value::AddressOf(bytes) => (size_of::<u64>(), bytes.as_mut_ptr() as u64),
        Value::Handle(handle) => (0, u64::from(*handle)),
        Value::Fd(fd) => (0, fd.as_raw_fd() as u64),
        Value::NewHandle(_) | Value::NewFd(_) => (0, 0),
    };
    ioctl::Attr {
        attr_id: attr.id,
        len: len as u16,
        flags: ioctl::AttrFlags::MANDATORY.bits(),
        data,
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;

//! The twin in the running kernel's place.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::PollFd;

use super::{Call, Twin};
use crate::sys::{
    DOORBELL_LENGTH, DoorbellCommand, IoctlCommand, Kernel, Linux, LocalService, MapFor, Question,
    Value, WriteCommand, doorbell_answer,
};

/// The twin's doorbell.
#[derive(Debug)]
struct Doorbell {
    twin: Arc<Twin>,
    request: [u8; DOORBELL_LENGTH],
}

impl DoorbellCommand for Doorbell {
    fn send(&self, fd: BorrowedFd<'_>) -> isize {
        let command = WriteCommand {
            request: &mut self.request.clone(),
            response: None,
            indirect: None,
            new_fd: None,
        };
        doorbell_answer(self.twin.write_command(fd, command))
    }
}

impl Kernel for Twin {
    fn open(&self, path: &Path) -> io::Result<OwnedFd> {
        self.enter(&Call::Open(path.to_owned()), |world| world.open_node(path))
    }

    fn device_number(&self, fd: BorrowedFd<'_>) -> io::Result<Option<u64>> {
        self.enter(&Call::DeviceNumber, |world| world.number_of(fd))
    }

    fn write_command(&self, fd: BorrowedFd<'_>, mut command: WriteCommand<'_>) -> io::Result<()> {
        if let Some(file) = self.card_file(fd) {
            return self.card_write(&file, command);
        }
        let call = Call::of_write(&command).ok_or_else(|| {
            io::Error::other("the twin does not know the command that was written")
        })?;
        self.enter(&call, |world| {
            let file = world.files.find(fd)?;
            world.files.check_opener(file)?;
            let written = WriteCommand {
                request: &mut *command.request,
                response: command
                    .response
                    .as_mut()
                    .map(|(at, room)| (*at, &mut **room)),
                indirect: command.indirect,
                new_fd: None,
            };
            match call {
                Call::Cm(command, _) => world.cm(file, fd, command, written)?,
                Call::Doorbell(qp) => {
                    world.device_of(file)?;
                    world.doorbell((file, qp))?;
                }
                _ => return Err(libc::EINVAL),
            }
            if let Some((_, answer)) = &mut command.response {
                world.script.change(&call, 0, answer);
            }
            Ok(())
        })
    }

    fn doorbell(
        self: Arc<Self>,
        request: [u8; DOORBELL_LENGTH],
        _answer_at: usize,
    ) -> Box<dyn DoorbellCommand> {
        Box::new(Doorbell {
            twin: self,
            request,
        })
    }

    fn ioctl_command(
        &self,
        fd: BorrowedFd<'_>,
        mut command: IoctlCommand<'_, '_>,
    ) -> io::Result<()> {
        if let Some(file) = self.card_file(fd) {
            return self.card_ioctl(&file, command);
        }
        let call = Call::of_ioctl(&command);
        self.enter(&call, |world| {
            let file = world.files.find(fd)?;
            world.verbs(file, &mut command)?;
            for attr in command.attrs.iter_mut() {
                if let Value::Out(answer) = &mut attr.value {
                    world.script.change(&call, attr.id, answer);
                }
            }
            Ok(())
        })
    }

    fn read(&self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_of_card(fd) {
            self.enter(&Call::Read, |_| Ok(()))?;
            return Linux.read(fd, buffer);
        }
        self.enter(&Call::Read, |world| world.read_record(fd, buffer))
    }

    fn set_nonblocking(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.is_of_card(fd) {
            self.enter(&Call::SetNonblocking, |_| Ok(()))?;
            return Linux.set_nonblocking(fd);
        }
        self.enter(&Call::SetNonblocking, |world| {
            let file = world.files.find(fd)?;
            world.files.set_nonblocking(file);
            Ok(())
        })
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        self.enter(&Call::Poll, |_| Ok(()))?;
        // Outside the lock: others must be able to cause what is waited for.
        self.wait_readable(fds, timeout)
    }

    fn map_device(
        &self,
        fd: BorrowedFd<'_>,
        length: usize,
        offset: u64,
        _purpose: MapFor,
    ) -> io::Result<NonNull<u8>> {
        if let Some(file) = self.card_file(fd) {
            self.enter(&Call::MapDevice, |_| Ok(()))?;
            return file.map(length, offset);
        }
        self.enter(&Call::MapDevice, |world| {
            let file = world.files.find(fd)?;
            world.memory.map(file, length, offset)
        })
    }

    fn map_memory(&self, length: usize) -> io::Result<NonNull<u8>> {
        self.enter(&Call::MapMemory, |world| world.memory.map_fresh(length))
    }

    unsafe fn unmap(&self, address: NonNull<u8>, length: usize) {
        // This cannot be refused.
        let card = self.world().card.clone();
        let is_of_card =
            card.is_some_and(|card| card.note_unmap(address.as_ptr() as u64, length as u64));
        let mut world = self.world();
        world.calls.push(Call::Unmap);
        if is_of_card {
            return;
        }
        let unmapped = world.memory.unmap(address, length);
        if unmapped.is_none() {
            world.violation("memory was unmapped that is not mapped");
        } else if world.objects.regions().any(|(_, mr)| mr.pages == unmapped)
            && !world.refused_dereg()
        {
            world.violation("memory was unmapped while it is registered");
        }
    }

    fn netlink(
        &self,
        requests: &[u8],
        _count: usize,
        each: &mut dyn FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let answers = self.enter(&Call::Netlink, |world| world.netlink(requests))?;
        for (kind, payload) in answers {
            each(kind, &payload);
        }
        Ok(())
    }

    fn read_file(&self, path: &Path) -> io::Result<String> {
        self.enter(&Call::ReadFile(path.to_owned()), |world| {
            let text = path.to_str().and_then(|path| world.sysfs().remove(path));
            text.ok_or(libc::ENOENT)
        })
    }

    /// There are none: what a device is made of is nowhere.
    fn read_link(&self, _path: &Path) -> io::Result<PathBuf> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<String>> {
        self.enter(&Call::ListDir(path.to_owned()), |world| {
            let folder = format!("{}/", path.display());
            let files = world.sysfs();
            let below = files.keys().filter_map(|file| file.strip_prefix(&folder));
            let mut names: Vec<String> = below
                .filter_map(|rest| rest.split('/').next())
                .map(str::to_owned)
                .collect();
            names.dedup();
            if names.is_empty() {
                Err(libc::ENOENT)
            } else {
                Ok(names)
            }
        })
    }

    /// Not the kernel but another program is asked: this is neither recorded nor refused.
    fn ask_service(
        &self,
        _service: LocalService<'_>,
        question: &Question<'_>,
    ) -> io::Result<Vec<u8>> {
        let answer = self.world().script.serve(question.request)?;
        if answer.len() > question.max_answer || !(question.is_whole)(&answer) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer)
    }

    fn locked_memory_limit(&self) -> Option<u64> {
        Some(8 << 20)
    }
}

impl Twin {
    #[cfg(not(miri))]
    fn wait_readable(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        use nix::poll::PollTimeout;
        let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
            let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::NONE)
        });
        nix::poll::poll(fds, timeout)?;
        Ok(())
    }

    /// Miri has no `poll()`, but the twin knows which of its descriptors are readable.
    #[cfg(miri)]
    fn wait_readable(&self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        use std::os::fd::AsFd;
        let start = std::time::Instant::now();
        loop {
            let mut is_any_ready = false;
            for fd in fds.iter_mut() {
                let is_ready = self.world().files.is_readable(fd.as_fd());
                let record = std::ptr::from_mut(fd).cast::<libc::pollfd>();
                // SAFETY: `PollFd` is a transparent wrapper of `pollfd`, borrowed mutably.
                unsafe { (*record).revents = if is_ready { libc::POLLIN } else { 0 } };
                is_any_ready |= is_ready;
            }
            if is_any_ready || timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
                return Ok(());
            }
            std::thread::yield_now();
        }
    }
}

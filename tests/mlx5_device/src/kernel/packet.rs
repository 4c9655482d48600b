//! The attributes of an ioctl command.

use std::ptr::NonNull;

use rdmacm_kernel_abi::uverbs::ioctl::{self, Attr, AttrFlags, Header};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::Driver;
use crate::memory;
use crate::world::Outcome;

/// A command as it lies in the program's memory.
pub(super) struct Packet {
    pub(super) header: Header,
    pub(super) attrs: Attrs,
}

impl Packet {
    /// # Safety
    ///
    /// The command must be complete.
    pub(super) unsafe fn read(at: NonNull<u8>) -> Outcome<Self> {
        let mut header = Header::default();
        memory::read(at.as_ptr() as u64, header.as_mut_bytes());
        let count = usize::from(header.num_attrs);
        let length = size_of::<Header>() + count * size_of::<Attr>();
        if usize::from(header.length) != length || header.reserved1 != 0 || header.reserved2 != 0 {
            return Err(libc::EINVAL);
        }
        let start = at.as_ptr() as u64 + size_of::<Header>() as u64;
        let mut list = vec![Attr::default(); count];
        memory::read(start, list.as_mut_slice().as_mut_bytes());
        Ok(Self {
            header,
            attrs: Attrs { start, list },
        })
    }
}

/// Attributes, and where they are.
pub(super) struct Attrs {
    start: u64,
    list: Vec<Attr>,
}

impl Attrs {
    /// Refuses mandatory attributes that the method does not have, and any that come twice.
    pub(super) fn check_known(&self, known: &[u16]) -> Outcome {
        for (index, attr) in self.list.iter().enumerate() {
            let is_mandatory = attr.flags & AttrFlags::MANDATORY.bits() != 0;
            if is_mandatory && !known.contains(&attr.attr_id) {
                return Err(libc::EPROTONOSUPPORT);
            }
            let is_twice = self.list[..index].iter().any(|a| a.attr_id == attr.attr_id);
            if is_twice || attr.flags & !AttrFlags::MANDATORY.bits() != 0 {
                return Err(libc::EINVAL);
            }
        }
        Ok(())
    }

    fn find(&self, id: u16) -> Option<&Attr> {
        self.list.iter().find(|attr| attr.attr_id == id)
    }

    pub(super) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// The bytes of an input; none where it is missing.
    pub(super) fn bytes(&self, id: u16) -> Vec<u8> {
        let Some(attr) = self.find(id) else {
            return Vec::new();
        };
        let length = usize::from(attr.len);
        if length <= 8 {
            return attr.data.to_ne_bytes()[..length].to_vec();
        }
        let mut bytes = vec![0; length];
        memory::read(attr.data, &mut bytes);
        bytes
    }

    /// An input of exactly this form.
    pub(super) fn typed<T: FromBytes>(&self, id: u16) -> Outcome<T> {
        T::read_from_bytes(&self.bytes(id)).map_err(|_| libc::EINVAL)
    }

    /// As [`typed`](Self::typed), of an input that may be missing.
    pub(super) fn optional<T: FromBytes>(&self, id: u16) -> Outcome<Option<T>> {
        self.has(id).then(|| self.typed(id)).transpose()
    }

    /// The handle of an object, or a descriptor.
    pub(super) fn handle(&self, id: u16) -> Outcome<u32> {
        let attr = self.find(id).ok_or(libc::EINVAL)?;
        match attr.len {
            0 => Ok(attr.data as u32),
            _ => Err(libc::EINVAL),
        }
    }

    /// Room for an answer, in bytes.
    pub(super) fn room(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attr| usize::from(attr.len))
    }

    /// The driver's part of the command.
    pub(super) fn driver(&self) -> Driver<'static> {
        Driver {
            request: self.bytes(ioctl::UHW_IN).into(),
            room: self.room(ioctl::UHW_OUT),
            answer: Vec::new(),
        }
    }

    /// Writes an answer that needs all its room.
    pub(super) fn put<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        id: u16,
        answer: &T,
    ) -> Outcome {
        let attr = self.find(id).ok_or(libc::EINVAL)?;
        if usize::from(attr.len) < answer.as_bytes().len() {
            return Err(libc::ENOSPC);
        }
        self.put_some(id, answer.as_bytes())
    }

    /// Writes as much of an answer as there is room for, if any was asked for.
    pub(super) fn put_some(&mut self, id: u16, answer: &[u8]) -> Outcome {
        if let Some(attr) = self.find(id) {
            let length = answer.len().min(usize::from(attr.len));
            memory::write(attr.data, &answer[..length]);
            // The rest of the room is cleared.
            let rest = usize::from(attr.len) - length;
            memory::write(attr.data + length as u64, &vec![0; rest]);
            self.mark(id);
        }
        Ok(())
    }

    /// Writes the handle of a new object, or a new descriptor, into the attribute itself.
    pub(super) fn put_handle(&mut self, id: u16, handle: u32) -> Outcome {
        let index = self.list.iter().position(|attr| attr.attr_id == id);
        let index = index.ok_or(libc::EINVAL)?;
        let at = self.start + (index * size_of::<Attr>()) as u64;
        memory::write(at + 8, &u64::from(handle).to_ne_bytes());
        Ok(())
    }

    /// Tells the program that there is an answer.
    fn mark(&self, id: u16) {
        let index = self.list.iter().position(|attr| attr.attr_id == id);
        let index = index.expect("it was found before");
        let flags = self.list[index].flags | AttrFlags::VALID_OUTPUT.bits();
        let at = self.start + (index * size_of::<Attr>()) as u64;
        memory::write(at + 4, &flags.to_ne_bytes());
    }
}

//! Doorbell pages and their mapping.

use std::time::Instant;

use rdmacm_kernel_abi::mlx5::{MmapCmd, UarAllocType, uar_ids};

use super::packet::Attrs;
use crate::device::HALF;
use crate::memory::{self, PAGE};
use crate::world::{FileId, Object, Outcome, Uar, UserContext, World};

impl World {
    /// The pages that come with a context, and their numbers.
    pub(super) fn add_static_uars(&mut self, file: FileId, count: u32) -> Vec<u32> {
        let add = |index: u32| {
            let offset = u64::from(index) * PAGE;
            self.add_uar(file, offset, true)
        };
        (0..count).map(add).collect()
    }

    fn add_uar(&mut self, file: FileId, offset: u64, is_write_combining: bool) -> u32 {
        let number = self.next_number(0x10);
        let uar = Uar {
            file,
            page: None,
            offset,
            is_write_combining,
            copies: Vec::new(),
            seen: std::array::from_fn(|_| Some(vec![0; HALF])),
        };
        self.uars.insert(number, uar);
        number
    }

    pub(super) fn alloc_uar(&mut self, file: FileId, attrs: &mut Attrs) -> Outcome {
        use uar_ids as id;
        let known = [
            id::ALLOC_HANDLE,
            id::ALLOC_TYPE,
            id::ALLOC_MMAP_OFFSET,
            id::ALLOC_MMAP_LENGTH,
            id::ALLOC_PAGE_ID,
        ];
        attrs.check_known(&known)?;
        let kind = UarAllocType(attrs.typed::<u64>(id::ALLOC_TYPE)? as u8);
        if kind != UarAllocType::BF && kind != UarAllocType::NC {
            return Err(libc::EOPNOTSUPP);
        }
        // The kernel's own numbering of mappings, from command 9 on.
        let place = self.next_number(0) as u64;
        let offset = (9 << 8 | place & 0xff | place >> 8 << 16) * PAGE;
        let number = self.add_uar(file, offset, kind == UarAllocType::BF);
        attrs.put(id::ALLOC_MMAP_OFFSET, &offset)?;
        attrs.put(id::ALLOC_MMAP_LENGTH, &(PAGE as u32))?;
        attrs.put(id::ALLOC_PAGE_ID, &number)?;
        let handle = self.insert(file, Object::Uar(number));
        attrs.put_handle(id::ALLOC_HANDLE, handle)
    }

    /// Maps a page of the device.
    pub(crate) fn map(&mut self, file: FileId, length: usize, offset: u64) -> Outcome<u64> {
        self.check_context(file)?;
        if length as u64 != PAGE || !offset.is_multiple_of(PAGE) {
            return Err(libc::EINVAL);
        }
        let command = MmapCmd((offset / PAGE) >> 8 & 0xff);
        if [MmapCmd::CORE_CLOCK, MmapCmd::CLOCK_INFO].contains(&command) {
            return self.take_page();
        }
        // The same pages are there write-combining and uncached.
        let is_static =
            [MmapCmd::REGULAR_PAGE, MmapCmd::WC_PAGE, MmapCmd::NC_PAGE].contains(&command);
        let place = if is_static {
            offset & (0xff * PAGE)
        } else {
            offset
        };
        let page = self.take_page()?;
        let is_it = |uar: &&mut Uar| uar.file == file && uar.offset == place;
        match self.uars.values_mut().find(is_it) {
            Some(uar) if uar.page.is_none() => {
                uar.page = Some(page);
                Ok(page)
            }
            found => {
                let is_mapped = found.is_some();
                self.spare_pages.push(page);
                Err(if is_mapped { libc::EBUSY } else { libc::EINVAL })
            }
        }
    }

    fn take_page(&mut self) -> Outcome<u64> {
        let Some(page) = self.spare_pages.pop() else {
            return memory::new_page().ok_or(libc::ENOMEM);
        };
        memory::write(page, &[0; PAGE as usize]);
        Ok(page)
    }

    /// The register that a new queue pair is to ring: page and, where it came with the context, the
    /// kernel's number of it.
    pub(super) fn choose_register(&mut self, file: FileId) -> Outcome<(u32, Option<usize>)> {
        let context = self.context_mut(file)?;
        if context.is_dynamic {
            return Err(libc::EINVAL);
        }
        let own = context.first_own..context.registers.len();
        let shared = 1..context.first_own;
        let free = own.into_iter().find(|at| context.registers[*at] == 0);
        let chosen = free.or_else(|| shared.min_by_key(|at| context.registers[*at]));
        let register = chosen.unwrap_or(0);
        context.registers[register] += 1;
        Ok((context.static_uars[register / 2], Some(register)))
    }

    pub(super) fn release_register(&mut self, file: FileId, register: usize) {
        if let Ok(context) = self.context_mut(file) {
            context.registers[register] -= 1;
        }
    }

    fn context_mut(&mut self, file: FileId) -> Outcome<&mut UserContext> {
        let open = self.files.get_mut(&file).ok_or(libc::EBADF)?;
        open.context.as_mut().ok_or(libc::EINVAL)
    }

    /// A page that the program names.
    pub(super) fn check_uar(&self, file: FileId, number: u32) -> Outcome {
        match self.uars.get(&number) {
            Some(uar) if uar.file == file => Ok(()),
            _ => Err(libc::EINVAL),
        }
    }

    /// The page that rings completion queues which name none.
    pub(super) fn first_uar(&self, file: FileId) -> Outcome<u32> {
        let open = self.files.get(&file).ok_or(libc::EBADF)?;
        let context = open.context.as_ref().ok_or(libc::EINVAL)?;
        context.static_uars.first().copied().ok_or(libc::EINVAL)
    }
}

/// How long a copy may take to be whole.
pub(crate) fn copy_deadline() -> Instant {
    Instant::now() + std::time::Duration::from_secs(2)
}

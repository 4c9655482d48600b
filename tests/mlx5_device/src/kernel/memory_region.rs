//! Protection domains, memory regions and windows, address handles.

use rdmacm_kernel_abi::mlx5;
use rdmacm_kernel_abi::uverbs::{self, AccessFlags, MwType, ReregMrFlags};
use zerocopy::IntoBytes;

use super::Driver;
use super::command::answer;
use super::port::mac_of;
use crate::memory::{Memory, PAGE};
use crate::world::{FileId, Key, KeyKind, Object, Outcome, World};

impl World {
    pub(super) fn alloc_pd(&mut self, file: FileId, driver: &mut Driver<'_>) -> Outcome<Vec<u8>> {
        if driver.room < size_of::<mlx5::AllocPdResp>() {
            return Err(libc::EINVAL);
        }
        let pdn = self.next_number(0x20);
        driver.answer = mlx5::AllocPdResp { pdn }.as_bytes().to_vec();
        let pd_handle = self.insert(file, Object::Pd(pdn));
        answer(&uverbs::AllocPdResp { pd_handle })
    }

    pub(super) fn reg_mr(&mut self, file: FileId, asked: &uverbs::RegMr) -> Outcome<Vec<u8>> {
        let access = AccessFlags::from_bits_retain(asked.access_flags);
        check_access(access)?;
        let pd = self.pd(file, asked.pd_handle)?;
        let memory = region(asked.start, asked.length, asked.hca_va)?;
        let index = self.next_number(0x1000);
        // Another low byte each time, so that old keys lead nowhere.
        let tag = (index as u8).wrapping_mul(37);
        let kind = KeyKind::Region {
            memory,
            start: asked.hca_va,
            access,
        };
        let key = Key {
            file,
            tag,
            pd,
            kind,
        };
        self.keys.insert(index, key);
        let mr_handle = self.insert(file, Object::Mr(index));
        let key = index << 8 | u32::from(tag);
        answer(&uverbs::RegMrResp {
            mr_handle,
            lkey: key,
            rkey: key,
        })
    }

    pub(super) fn rereg_mr(&mut self, file: FileId, asked: &uverbs::ReregMr) -> Outcome<Vec<u8>> {
        let flags = ReregMrFlags::from_bits_retain(asked.flags);
        let all = ReregMrFlags::TRANSLATION | ReregMrFlags::PD | ReregMrFlags::ACCESS;
        if flags.is_empty() || !(flags - all).is_empty() {
            return Err(libc::EINVAL);
        }
        let Object::Mr(index) = self.object(file, asked.mr_handle)? else {
            return Err(libc::EINVAL);
        };
        let mut changed = self.keys.get(&index).ok_or(libc::EINVAL)?.clone();
        if flags.contains(ReregMrFlags::PD) {
            changed.pd = self.pd(file, asked.pd_handle)?;
        }
        let KeyKind::Region {
            memory,
            start,
            access,
        } = &mut changed.kind
        else {
            return Err(libc::EINVAL);
        };
        if flags.contains(ReregMrFlags::ACCESS) {
            *access = AccessFlags::from_bits_retain(asked.access_flags);
            check_access(*access)?;
        }
        if flags.contains(ReregMrFlags::TRANSLATION) {
            *memory = region(asked.start, asked.length, asked.hca_va)?;
            *start = asked.hca_va;
        }
        let key = index << 8 | u32::from(changed.tag);
        self.keys.insert(index, changed);
        answer(&uverbs::ReregMrResp {
            lkey: key,
            rkey: key,
        })
    }

    pub(super) fn alloc_mw(
        &mut self,
        file: FileId,
        asked: &uverbs::AllocMw,
        driver: &Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        let own: mlx5::AllocMw = driver.parse(0)?;
        if own.comp_mask != 0 || own.reserved1 != 0 || own.reserved2 != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let is_type_2 = match MwType(asked.mw_type) {
            MwType::TYPE_1 => false,
            MwType::TYPE_2 => true,
            _ => return Err(libc::EINVAL),
        };
        let pd = self.pd(file, asked.pd_handle)?;
        let index = self.next_number(0x1000);
        let tag = (index as u8).wrapping_mul(41);
        let kind = KeyKind::Window {
            is_type_2,
            bound: None,
        };
        let key = Key {
            file,
            tag,
            pd,
            kind,
        };
        self.keys.insert(index, key);
        let mw_handle = self.insert(file, Object::Mw(index));
        answer(&uverbs::AllocMwResp {
            mw_handle,
            rkey: index << 8 | u32::from(tag),
        })
    }

    pub(super) fn create_ah(
        &mut self,
        file: FileId,
        asked: &uverbs::CreateAh,
        driver: &mut Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        let pd = self.pd(file, asked.pd_handle)?;
        let attr = &asked.attr;
        self.check_address(attr.port_num, attr.is_global, attr.grh.sgid_index)?;
        if !self.config.is_infiniband && driver.room != 0 {
            // Up to the end of the address.
            const LENGTH: usize = 10;
            if driver.room < LENGTH {
                return Err(libc::EINVAL);
            }
            let own = mlx5::CreateAhResp {
                response_length: LENGTH as u32,
                dmac: mac_of(&attr.grh.dgid),
                ..Default::default()
            };
            driver.answer = own.as_bytes()[..LENGTH].to_vec();
        }
        let ah_handle = self.insert(file, Object::Ah { pd });
        answer(&uverbs::CreateAhResp { ah_handle })
    }

    /// Whether a path can be one of the port's.
    pub(super) fn check_address(&self, port: u8, is_global: u8, gid_index: u8) -> Outcome {
        let has_gid = usize::from(gid_index) < self.gids().len();
        let is_local = self.config.is_infiniband && is_global == 0;
        match port == 1 && (is_local || is_global != 0 && has_gid) {
            true => Ok(()),
            false => Err(libc::EINVAL),
        }
    }
}

fn region(start: u64, length: u64, name: u64) -> Outcome<Memory> {
    if length == 0 || start % PAGE != name % PAGE || start.checked_add(length).is_none() {
        return Err(libc::EINVAL);
    }
    let memory = Memory::new(start, length);
    match memory.is_mapped() {
        true => Ok(memory),
        false => Err(libc::EFAULT),
    }
}

fn check_access(access: AccessFlags) -> Outcome {
    use AccessFlags as A;
    let known = A::LOCAL_WRITE
        | A::REMOTE_WRITE
        | A::REMOTE_READ
        | A::REMOTE_ATOMIC
        | A::MW_BIND
        | A::ZERO_BASED
        | A::HUGETLB
        | A::RELAXED_ORDERING;
    // Optional access that the kernel does not know is ignored.
    let needed = access - A::OPTIONAL_RANGE;
    let writes = access.intersects(A::REMOTE_WRITE | A::REMOTE_ATOMIC);
    if !(needed - known).is_empty() || writes && !access.contains(A::LOCAL_WRITE) {
        return Err(libc::EINVAL);
    }
    Ok(())
}

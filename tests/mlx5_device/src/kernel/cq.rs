//! Completion queues.

use rdmacm_kernel_abi::mlx5::{self, CqeOpcode, CreateCqFlags};
use rdmacm_kernel_abi::uverbs::{self, ioctl};
use zerocopy::IntoBytes;

use super::Driver;
use super::command::answer;
use super::context::MAX_CQE;
use super::method::VECTORS;
use super::packet::Attrs;
use crate::memory::Memory;
use crate::world::{Cq, FileId, Object, Outcome, UNARMED, World};

/// A new completion queue, as both forms of the command describe it.
struct Asked {
    entries: u32,
    vector: u32,
    user_handle: u64,
    channel: Option<u32>,
    async_channel: Option<u32>,
}

impl World {
    pub(super) fn create_cq_method(&mut self, file: FileId, attrs: &mut Attrs) -> Outcome {
        use ioctl::cq::create as id;
        let known = [
            id::HANDLE,
            id::CQE,
            id::USER_HANDLE,
            id::COMP_CHANNEL,
            id::COMP_VECTOR,
            id::FLAGS,
            id::RESP_CQE,
            id::EVENT_FD,
            ioctl::UHW_IN,
            ioctl::UHW_OUT,
        ];
        attrs.check_known(&known)?;
        let channel = attrs
            .has(id::COMP_CHANNEL)
            .then(|| attrs.handle(id::COMP_CHANNEL));
        let channel = channel.transpose()?.map(|fd| self.channel_of(fd as i32));
        let event_fd = attrs.has(id::EVENT_FD).then(|| attrs.handle(id::EVENT_FD));
        let asked = Asked {
            entries: attrs.typed(id::CQE)?,
            vector: attrs.typed(id::COMP_VECTOR)?,
            user_handle: attrs.typed(id::USER_HANDLE)?,
            channel: channel.transpose()?,
            async_channel: self.async_channel(file, event_fd.transpose()?)?,
        };
        if attrs
            .optional::<u32>(id::FLAGS)?
            .is_some_and(|flags| flags & !3 != 0)
        {
            return Err(libc::EINVAL);
        }
        let mut driver = attrs.driver();
        let (handle, entries) = self.create_cq(file, &asked, &mut driver)?;
        attrs.put(id::RESP_CQE, &entries)?;
        attrs.put_some(ioctl::UHW_OUT, &driver.answer)?;
        attrs.put_handle(id::HANDLE, handle)
    }

    pub(super) fn create_cq_command(
        &mut self,
        file: FileId,
        asked: &uverbs::CreateCq,
        driver: &mut Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        let channel = match asked.comp_channel {
            fd if fd < 0 => None,
            fd => Some(self.channel_of(fd)?),
        };
        let asked = Asked {
            entries: asked.cqe,
            vector: asked.comp_vector,
            user_handle: asked.user_handle,
            channel,
            async_channel: self.async_channel(file, None)?,
        };
        let (cq_handle, cqe) = self.create_cq(file, &asked, driver)?;
        answer(&uverbs::CreateCqResp { cq_handle, cqe })
    }

    fn create_cq(
        &mut self,
        file: FileId,
        asked: &Asked,
        driver: &mut Driver<'_>,
    ) -> Outcome<(u32, u32)> {
        let own: mlx5::CreateCq = driver.parse(24)?;
        let flags = CreateCqFlags::from_bits_retain(own.flags);
        let known = CreateCqFlags::CQE_128B_PAD
            | CreateCqFlags::UAR_PAGE_INDEX
            | CreateCqFlags::REAL_TIME_TS;
        if asked.vector >= VECTORS
            || asked.entries == 0
            || asked.entries > MAX_CQE
            || !(flags - known).is_empty()
            || own.reserved0 != 0
            || own.reserved1 != 0
            || own.cqe_comp_en != 0
            || own.cqe_comp_res_format != 0
            || ![64, 128].contains(&own.cqe_size)
            || flags.contains(CreateCqFlags::CQE_128B_PAD) && own.cqe_size != 128
        {
            return Err(libc::EINVAL);
        }
        let uar = match flags.contains(CreateCqFlags::UAR_PAGE_INDEX) {
            true => own.uar_page_index.into(),
            false => self.first_uar(file)?,
        };
        self.check_uar(file, uar)?;
        let entries = (asked.entries + 1).next_power_of_two();
        let length = u64::from(entries * own.cqe_size);
        let memory = self.pin("a completion queue", own.buf_addr, length, 64)?;
        let record = self.pin_record(own.db_addr)?;
        self.check_entries_are_invalid(memory, entries, own.cqe_size);
        if (record.be32(0), record.be32(4)) != (0, 0) {
            self.violation("the record of a new completion queue is not zero".to_owned());
        }
        // The first arm word may be zero, and another queue's may come over it in the register.
        record.write(4, &UNARMED.to_be_bytes());
        let number = self.next_number(0x400);
        let cq = Cq {
            user_handle: asked.user_handle,
            memory,
            entries,
            entry_size: own.cqe_size,
            record,
            uar,
            channel: asked.channel,
            async_channel: asked.async_channel,
            produced: 0,
            solicited: 0,
            armed: None,
            last_arm: UNARMED,
            events: 0,
            stale_since: None,
            is_broken: false,
        };
        self.cqs.insert(number, cq);
        let own = mlx5::CreateCqResp {
            cqn: number,
            reserved: 0,
        };
        driver.answer = own.as_bytes().to_vec();
        Ok((self.insert(file, Object::Cq(number)), entries - 1))
    }

    /// The card does not look; but a program that polls would take rubbish for completions.
    fn check_entries_are_invalid(&mut self, memory: Memory, entries: u32, size: u32) {
        let last = |index: u32| u64::from(index * size + size - 1);
        let is_invalid = |index: &u32| memory.byte(last(*index)) == CqeOpcode::INVALID.0 << 4;
        if let Some(wrong) = (0..entries).find(|index| !is_invalid(index)) {
            self.violation(format!(
                "entry {wrong} of a new completion queue of {entries} is not marked as invalid: \
                 {:#x}",
                memory.byte(last(wrong))
            ));
        }
    }

    pub(super) fn resize_cq(
        &mut self,
        file: FileId,
        asked: &uverbs::ResizeCq,
        driver: &Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        let number = self.cq_number(file, asked.cq_handle)?;
        let own: mlx5::ResizeCq = driver.parse(16)?;
        if asked.cqe == 0 || asked.cqe > MAX_CQE || own.reserved0 != 0 || own.reserved1 != 0 {
            return Err(libc::EINVAL);
        }
        let entries = (asked.cqe + 1).next_power_of_two();
        let cq = &self.cqs[&number];
        let answered = answer(&uverbs::ResizeCqResp {
            cqe: entries - 1,
            reserved: 0,
        });
        if entries == cq.entries {
            return answered;
        }
        let size = u32::from(own.cqe_size);
        // The kernel takes the size of entries as it is; so does the card, which writes wrong ones.
        if size != cq.entry_size {
            self.violation(format!(
                "a completion queue resized to entries of {size} bytes"
            ));
            return Err(libc::EINVAL);
        }
        // Completions that wait must fit.
        let waiting = cq.produced.wrapping_sub(cq.record.be32(0)) & 0xff_ffff;
        if waiting >= cq.entries || waiting + 1 > entries {
            return Err(libc::EINVAL);
        }
        let length = u64::from(entries * size);
        let memory = self.pin("a completion queue", own.buf_addr, length, 64)?;
        self.check_entries_are_invalid(memory, entries, size);
        // The last entry of the old memory says that the next is in the new one.
        let marker = mlx5::Cqe64 {
            op_own: CqeOpcode::RESIZE_CQ.0 << 4,
            ..Default::default()
        };
        self.write_entry(number, &marker, None);
        let cq = self.cqs.get_mut(&number).expect("it was found");
        (cq.memory, cq.entries) = (memory, entries);
        answered
    }

    pub(super) fn modify_cq(
        &mut self,
        file: FileId,
        asked: &uverbs::ExModifyCq,
    ) -> Outcome<Vec<u8>> {
        self.cq_number(file, asked.cq_handle)?;
        if asked.attr_mask != 1 || asked.reserved != 0 || asked.attr.cq_period > 0xfff {
            return Err(libc::EOPNOTSUPP);
        }
        Ok(Vec::new())
    }
}

//! Shared receive queues.

use rdmacm_kernel_abi::mlx5;
use rdmacm_kernel_abi::uverbs::{self, SrqAttrMask, SrqType, ioctl};
use zerocopy::IntoBytes;

use super::Driver;
use super::command::answer;
use super::context::{MAX_SRQ, MAX_SRQ_SEGMENTS};
use super::packet::Attrs;
use crate::world::{FileId, Object, Outcome, Srq, World};

struct Asked {
    pd: u32,
    user_handle: u64,
    max_wr: u32,
    max_sge: u32,
    limit: u32,
    async_channel: Option<u32>,
}

struct Made {
    handle: u32,
    max_wr: u32,
    max_sge: u32,
}

impl World {
    pub(super) fn create_srq_method(&mut self, file: FileId, attrs: &mut Attrs) -> Outcome {
        use ioctl::srq::create as id;
        let known = [
            id::HANDLE,
            id::PD_HANDLE,
            id::USER_HANDLE,
            id::MAX_WR,
            id::MAX_SGE,
            id::LIMIT,
            id::TYPE,
            id::EVENT_FD,
            id::RESP_MAX_WR,
            id::RESP_MAX_SGE,
            id::RESP_SRQ_NUM,
            id::XRCD_HANDLE,
            id::CQ_HANDLE,
            id::MAX_NUM_TAGS,
            ioctl::UHW_IN,
            ioctl::UHW_OUT,
        ];
        attrs.check_known(&known)?;
        if SrqType(attrs.typed::<u64>(id::TYPE)? as u32) != SrqType::BASIC {
            return Err(libc::EOPNOTSUPP);
        }
        let event_fd = attrs.has(id::EVENT_FD).then(|| attrs.handle(id::EVENT_FD));
        let asked = Asked {
            pd: self.pd(file, attrs.handle(id::PD_HANDLE)?)?,
            user_handle: attrs.typed(id::USER_HANDLE)?,
            max_wr: attrs.typed(id::MAX_WR)?,
            max_sge: attrs.typed(id::MAX_SGE)?,
            limit: attrs.typed(id::LIMIT)?,
            async_channel: self.async_channel(file, event_fd.transpose()?)?,
        };
        let mut driver = attrs.driver();
        let made = self.create_srq(file, &asked, &mut driver)?;
        attrs.put(id::RESP_MAX_WR, &made.max_wr)?;
        attrs.put(id::RESP_MAX_SGE, &made.max_sge)?;
        attrs.put_some(ioctl::UHW_OUT, &driver.answer)?;
        attrs.put_handle(id::HANDLE, made.handle)
    }

    pub(super) fn create_srq_command(
        &mut self,
        file: FileId,
        asked: &uverbs::CreateSrq,
        driver: &mut Driver<'_>,
    ) -> Outcome<Vec<u8>> {
        let asked = Asked {
            pd: self.pd(file, asked.pd_handle)?,
            user_handle: asked.user_handle,
            max_wr: asked.max_wr,
            max_sge: asked.max_sge,
            limit: asked.srq_limit,
            async_channel: self.async_channel(file, None)?,
        };
        let made = self.create_srq(file, &asked, driver)?;
        answer(&uverbs::CreateSrqResp {
            srq_handle: made.handle,
            max_wr: made.max_wr,
            max_sge: made.max_sge,
            srqn: 0,
        })
    }

    fn create_srq(
        &mut self,
        file: FileId,
        asked: &Asked,
        driver: &mut Driver<'_>,
    ) -> Outcome<Made> {
        let own: mlx5::CreateSrq = driver.parse(20)?;
        let has_signatures = own.flags & mlx5::SrqFlags::SIGNATURE.bits() != 0;
        if own.reserved0 != 0 || own.reserved1 != 0 || has_signatures || own.flags != 0 {
            return Err(libc::EINVAL);
        }
        if asked.max_wr >= MAX_SRQ || asked.max_sge > MAX_SRQ_SEGMENTS {
            return Err(libc::EINVAL);
        }
        let entries = (asked.max_wr + 1).next_power_of_two();
        let stride = (16 + asked.max_sge * 16).next_power_of_two().max(32);
        let length = u64::from(entries * stride);
        let memory = self.pin("a shared receive queue", own.buf_addr, length, 64)?;
        let record = self.pin_record(own.db_addr)?;
        if record.be32(0) != 0 {
            self.violation("the record of a new shared receive queue is not zero".to_owned());
        }
        let number = self.next_number(0x80);
        let (max_wr, max_sge) = (entries - 1, stride / 16 - 1);
        let srq = Srq {
            pd: asked.pd,
            user_handle: asked.user_handle,
            memory,
            entries,
            stride,
            max_segments: max_sge,
            record,
            async_channel: asked.async_channel,
            limit: asked.limit,
            head: 0,
            consumed: 0,
            events: 0,
            is_stopped: false,
        };
        self.srqs.insert(number, srq);
        let own = mlx5::CreateSrqResp {
            srqn: number,
            reserved: 0,
        };
        driver.answer = own.as_bytes().to_vec();
        Ok(Made {
            handle: self.insert(file, Object::Srq(number)),
            max_wr,
            max_sge,
        })
    }

    pub(super) fn modify_srq(
        &mut self,
        file: FileId,
        asked: &uverbs::ModifySrq,
    ) -> Outcome<Vec<u8>> {
        let number = self.srq_number(file, asked.srq_handle)?;
        let mask = SrqAttrMask::from_bits_retain(asked.attr_mask);
        if mask.contains(SrqAttrMask::MAX_WR) {
            return Err(libc::EINVAL);
        }
        let srq = self.srqs.get_mut(&number).expect("it was found");
        if mask.contains(SrqAttrMask::LIMIT) {
            if asked.srq_limit >= srq.entries {
                return Err(libc::EINVAL);
            }
            srq.limit = asked.srq_limit;
            self.check_limit(number);
        }
        Ok(Vec::new())
    }

    pub(super) fn query_srq(&self, file: FileId, asked: &uverbs::QuerySrq) -> Outcome<Vec<u8>> {
        let srq = &self.srqs[&self.srq_number(file, asked.srq_handle)?];
        answer(&uverbs::QuerySrqResp {
            max_wr: srq.entries - 1,
            max_sge: srq.max_segments,
            srq_limit: srq.limit,
            reserved: 0,
        })
    }
}

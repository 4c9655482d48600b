//! Who rings where: the doorbell pages of an open device, and how queue pairs share them.
//!
//! Newer kernels hand out pages one by one, on request (dynamic pages); then this crate decides. The
//! first few queue pairs get a register each. The next few get one as well, which is then shared by
//! those that come later, the least used first. Older kernels, and any that is spoken to by
//! `write()`, map a number of pages with the context (static pages) and decide themselves.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rdmacm_kernel_abi::mlx5::{
    BFREGS_PER_UAR, MmapCmd, PROGRAM_BFREGS_PER_UAR, UAR_SIZE, UarAllocType, uar_ids,
};
use zerocopy::IntoBytes;

use super::grant::{Grant, Settings};
use super::register::{ArmRegister, Register, Use};
use crate::device::{Context, DOORBELL_REGISTERS, UNSHARED_DOORBELL_REGISTERS};
use crate::error::{Error, Result};
use crate::fastpath::provider::bad_queue;
use crate::sys::{Attr, Mapping, Value, page_size};

/// The registers of an open device.
#[derive(Debug)]
pub(super) enum Registers {
    /// Pages on request.
    Dynamic(Dynamic),
    /// Pages that came with the context: the registers of programs, in the order of their numbers.
    Static {
        all: Vec<Arc<Register>>,
        arm: ArmRegister,
    },
}

/// Pages on request, and their registers.
#[derive(Debug)]
pub(super) struct Dynamic {
    /// For doorbells only: of completion queues, and of queue pairs where BlueFlame is off.
    plain: Arc<Register>,
    arm: ArmRegister,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    /// How many registers there are for one queue pair each.
    unshared: u32,
    /// Those of them that nobody uses, the longest free first.
    free: VecDeque<Arc<Register>>,
    /// Registers to share, with how many queue pairs use each.
    shared: Vec<(Arc<Register>, u32)>,
}

/// A queue pair's register, given back when dropped.
#[derive(Debug)]
pub(super) struct Lease {
    register: Arc<Register>,
    /// Where to give it back, where it came from a pool.
    home: Option<Arc<Registers>>,
}

impl Registers {
    /// Maps what came with the context, or asks for the first page.
    pub(super) fn new(context: &Context, grant: &Grant, settings: Settings) -> Result<Self> {
        match grant.static_registers {
            0 => Dynamic::new(context).map(Self::Dynamic),
            count => map_static(context, grant, settings, count),
        }
    }

    /// The register that arms completion queues.
    pub(super) fn arm(&self) -> &ArmRegister {
        match self {
            Self::Dynamic(Dynamic { arm, .. }) | Self::Static { arm, .. } => arm,
        }
    }

    /// The page that a new completion queue is to name, where the kernel wants to know.
    pub(super) fn page_of_completion_queues(&self) -> Option<u32> {
        match self {
            Self::Dynamic(dynamic) => Some(dynamic.arm.index()),
            Self::Static { .. } => None,
        }
    }

    /// A register for a new queue pair, where this crate decides.
    pub(super) fn lease(
        self: &Arc<Self>,
        context: &Context,
        grant: &Grant,
        settings: Settings,
    ) -> Result<Option<Lease>> {
        let Self::Dynamic(dynamic) = &**self else {
            return Ok(None);
        };
        if settings.no_blue_flame || grant.half == 0 {
            return Ok(Some(Lease {
                register: Arc::clone(&dynamic.plain),
                home: None,
            }));
        }
        let register = dynamic.take(context, grant)?;
        Ok(Some(Lease {
            register,
            home: Some(Arc::clone(self)),
        }))
    }

    /// The register that the kernel chose for a queue pair.
    ///
    /// # Errors
    ///
    /// When it is none of those that came with the context, or one that programs do not use.
    pub(super) fn chosen(&self, number: u32) -> Result<Lease> {
        let refuse = |what| {
            let text = format!("the kernel chose doorbell register {number}, which {what}");
            Err(bad_queue(text))
        };
        let Self::Static { all, .. } = self else {
            return refuse("there is not");
        };
        let (uar, within) = (number / BFREGS_PER_UAR, number % BFREGS_PER_UAR);
        let mut uars = all.chunks_exact(PROGRAM_BFREGS_PER_UAR as usize);
        let Some(registers) = uars.nth(uar as usize) else {
            return refuse("there is not");
        };
        let Some(register) = registers.get(within as usize) else {
            return refuse("is not for programs");
        };
        Ok(Lease {
            register: Arc::clone(register),
            home: None,
        })
    }
}

impl Lease {
    /// A register that is in no pool.
    #[cfg(any(test, fuzzing))]
    pub(super) fn of(register: Arc<Register>) -> Self {
        Self {
            register,
            home: None,
        }
    }

    pub(super) fn register(&self) -> &Arc<Register> {
        &self.register
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(Registers::Dynamic(dynamic)) = self.home.as_deref() {
            dynamic.give_back(&self.register);
        }
    }
}

impl Dynamic {
    fn new(context: &Context) -> Result<Self> {
        let (page, index) = allocate(context, UarAllocType::NC)?;
        let plain = Register::new(&page, 0, 0, 0, Use::Doorbells, index);
        let arm = ArmRegister::new(&page, index);
        let (Some(plain), Some(arm)) = (plain, arm) else {
            return Err(too_small(&page));
        };
        Ok(Self {
            plain: Arc::new(plain),
            arm,
            pool: Mutex::new(Pool::default()),
        })
    }

    fn take(&self, context: &Context, grant: &Grant) -> Result<Arc<Register>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.free.is_empty() && pool.unshared < UNSHARED_DOORBELL_REGISTERS {
            let new = registers_of_page(context, grant, Use::Alone)?;
            pool.unshared += new.len() as u32;
            pool.free.extend(new);
        }
        if let Some(register) = pool.free.pop_front() {
            return Ok(register);
        }
        if (pool.shared.len() as u32) < DOORBELL_REGISTERS - UNSHARED_DOORBELL_REGISTERS {
            match registers_of_page(context, grant, Use::Shared) {
                Ok(new) => pool
                    .shared
                    .extend(new.into_iter().map(|register| (register, 0))),
                // The kernel has no more: those that there are take more queue pairs.
                Err(_) if !pool.shared.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        let least = pool.shared.iter_mut().min_by_key(|(_, users)| *users);
        let (register, users) = least.expect("a page has registers");
        *users += 1;
        Ok(Arc::clone(register))
    }

    fn give_back(&self, register: &Arc<Register>) {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &Arc<Register>| Arc::ptr_eq(known, register);
        match pool.shared.iter_mut().find(|(known, _)| same(known)) {
            Some((_, users)) => *users -= 1,
            None => pool.free.push_back(Arc::clone(register)),
        }
    }
}

/// The registers of a new page.
fn registers_of_page(context: &Context, grant: &Grant, how: Use) -> Result<Vec<Arc<Register>>> {
    let (page, index) = allocate(context, UarAllocType::BF)?;
    let uars = (0..grant.uars_per_page)
        .flat_map(|uar| (0..PROGRAM_BFREGS_PER_UAR).map(move |number| (uar, number)));
    let registers = uars.map(|(uar, number)| {
        let begins = uar as usize * UAR_SIZE;
        let index = index.wrapping_add(uar);
        Register::new(&page, begins, number, grant.half, how, index).map(Arc::new)
    });
    let registers: Option<Vec<_>> = registers.collect();
    registers.ok_or_else(|| too_small(&page))
}

/// Asks for a doorbell page and maps it. The kernel takes it back with the context.
fn allocate(context: &Context, kind: UarAllocType) -> Result<(Arc<Mapping>, u32)> {
    use uar_ids as id;
    let kind = u64::from(kind.0);
    let (mut handle, mut offset, mut length, mut page) = (0, 0u64, 0u32, 0u32);
    let made = context.method(
        id::OBJECT_UAR,
        id::ALLOC,
        &mut [
            Attr::new(id::ALLOC_HANDLE, Value::NewHandle(&mut handle)),
            Attr::new(id::ALLOC_TYPE, Value::In(kind.as_bytes())),
            Attr::new(id::ALLOC_MMAP_OFFSET, Value::Out(offset.as_mut_bytes())),
            Attr::new(id::ALLOC_MMAP_LENGTH, Value::Out(length.as_mut_bytes())),
            Attr::new(id::ALLOC_PAGE_ID, Value::Out(page.as_mut_bytes())),
        ],
    );
    made.map_err(|error| {
        let what = match error.kind() {
            io::ErrorKind::Unsupported => {
                "the kernel granted no doorbell registers, and takes commands by write(), which \
                 cannot ask for any"
            }
            _ => "the device has no doorbell page left",
        };
        Error::from_os("map_queue", &error).because(what)
    })?;
    match map(context, length as usize, offset) {
        Ok(mapping) => Ok((mapping, page)),
        Err(error) => {
            let handle = Attr::new(id::DESTROY_HANDLE, Value::Handle(handle));
            // Otherwise it stays until the device is closed.
            let _ = context.method(id::OBJECT_UAR, id::DESTROY, &mut [handle]);
            Err(error)
        }
    }
}

/// Maps the pages that came with the context.
fn map_static(
    context: &Context,
    grant: &Grant,
    settings: Settings,
    count: u32,
) -> Result<Registers> {
    let page_size = page_size();
    let pages = count / (grant.uars_per_page * PROGRAM_BFREGS_PER_UAR);
    let command = match settings.no_blue_flame {
        true => MmapCmd::NC_PAGE,
        false => MmapCmd::REGULAR_PAGE,
    };
    let mut all = Vec::new();
    let mut arm = None;
    for number in 0..pages {
        let offset = (command.0 << 8 | u64::from(number)) * page_size as u64;
        let page = map(context, page_size, offset)?;
        if arm.is_none() {
            arm = ArmRegister::new(&page, 0);
        }
        for uar in 0..grant.uars_per_page {
            for within in 0..PROGRAM_BFREGS_PER_UAR {
                let index = (number * grant.uars_per_page + uar) * BFREGS_PER_UAR + within;
                let how = grant.use_of_static(index, count, settings);
                let begins = uar as usize * UAR_SIZE;
                let register = Register::new(&page, begins, within, grant.half, how, index);
                all.push(Arc::new(register.ok_or_else(|| too_small(&page))?));
            }
        }
    }
    let arm = arm.ok_or_else(|| {
        bad_queue(format!(
            "the kernel gave {count} doorbell registers, which is not a page"
        ))
    })?;
    Ok(Registers::Static { all, arm })
}

/// Maps registers. That the kernel mapped less than it was asked for shows nowhere but in a fault at
/// the first store; what it says of the length itself is held against the place of each register.
fn map(context: &Context, length: usize, offset: u64) -> Result<Arc<Mapping>> {
    context
        .map_registers(length, offset)
        .map(Arc::new)
        .map_err(|error| Error::from_os("map_queue", &error))
}

fn too_small(page: &Mapping) -> Error {
    let bytes = page.length();
    bad_queue(format!(
        "the doorbell registers do not lie in a page of {bytes} bytes"
    ))
}

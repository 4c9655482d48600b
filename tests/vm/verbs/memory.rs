//! Memory regions, and what may be done to them.

use std::fs::File;

use rdmacm::{
    Access, AtomicCapability, Buffer, CompletionStatus, Cq, DeviceCaps, ErrorKind, MrChange, Pd,
    Qp, QpAttr, RemoteAddress, Result,
};

use super::{connect_for, own_path, queue};
use crate::environment;
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::mlx5;
use crate::pair::{ANY_ACCESS, assert_holds, next_completion};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        access_is_taken_away_and_given_back,
        a_region_moves_to_another_domain,
        a_change_of_the_memory_is_made_or_refused,
        memory_has_other_addresses,
        rare_access_is_refused_by_name_or_works,
        wishes_are_no_demands,
        memory_of_another_device_is_refused,
        the_device_tells_its_limits,
    ]
}

/// A queue pair that is connected to another, whose domain the peer's memory is in.
struct Writer {
    near: Qp,
    cq: Cq,
    _far: Qp,
}

impl Writer {
    fn new(pd: &Pd) -> Result<Self> {
        let cq = queue(pd.context(), 16)?;
        let attr = QpAttr::new(pd)
            .send_cq(&cq)
            .recv_cq(&cq)
            .max_inline_data(16);
        let (near, far) = (pd.create_qp(&attr)?, pd.create_qp(&attr)?);
        let path = own_path(pd.context())?;
        connect_for(&near, &far, path, ANY_ACCESS)?;
        connect_for(&far, &near, path, ANY_ACCESS)?;
        Ok(Self {
            near,
            cq,
            _far: far,
        })
    }

    /// Writes into the peer's memory, and tells how that ended.
    fn write(&mut self, to: RemoteAddress, bytes: &[u8]) -> Result<CompletionStatus> {
        let mut batch = self.near.send_half().batch();
        batch.write(1, to).signaled().inline(bytes)?;
        batch.submit()?;
        let completion = next_completion(&mut self.cq)?;
        Ok(match completion.result() {
            Ok(_) => CompletionStatus::Success,
            Err(failure) => failure.status,
        })
    }
}

const OLD: &str = "no regions that change";

/// Whether the kernel can change regions; an error if it says so badly.
fn can_change(outcome: Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
            assert!(error.to_string().contains("register it anew"), "{error}");
            Ok(false)
        }
    }
}

fn access_is_taken_away_and_given_back() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut buffer = pd.alloc(64, Access::LOCAL_WRITE)?;
    if !can_change(buffer.set_access(ANY_ACCESS))? {
        return Ok(environment::skip(OLD));
    }
    let mut writer = Writer::new(&pd)?;
    let status = writer.write(buffer.remote(), b"may")?;
    assert_eq!(status, CompletionStatus::Success);
    assert_holds(&buffer, 0, b"may");
    buffer.set_access(Access::LOCAL_WRITE)?;
    let status = writer.write(buffer.remote(), b"not")?;
    assert_eq!(status, CompletionStatus::RemoteAccess);
    assert_holds(&buffer, 0, b"may");
    Ok(Outcome::Pass)
}

fn a_region_moves_to_another_domain() -> TestResult {
    let context = environment::context();
    let (old, new) = (context.alloc_pd()?, context.alloc_pd()?);
    let mut buffer = old.alloc(64, ANY_ACCESS)?;
    if !can_change(buffer.set_pd(&new))? {
        return Ok(environment::skip(OLD));
    }
    old.dealloc()?;
    let mut writer = Writer::new(&new)?;
    let status = writer.write(buffer.remote(), b"moved")?;
    assert_eq!(status, CompletionStatus::Success);
    assert_holds(&buffer, 0, b"moved");
    drop(writer);
    let busy = new.clone().dealloc().expect_err("the buffer uses it");
    assert_eq!(busy.errno(), Some(16), "{busy}");
    // Also to the domain that everybody shares, which is nobody's parent.
    buffer.set_pd(&context.default_pd()?)?;
    new.dealloc()?;
    Ok(Outcome::Pass)
}

/// On rxe, which cannot, the region stays as it was.
fn a_change_of_the_memory_is_made_or_refused() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let mut memory = vec![0u8; 8192];
    let address = memory.as_mut_ptr();
    // SAFETY: the memory outlives the region, and is looked at when nobody writes.
    let mut mr = unsafe { pd.register_raw(address, 8192, ANY_ACCESS)? };
    let change = MrChange::new().range(address, 4096);
    // SAFETY: a part of the same memory.
    let changed = unsafe { mr.reregister(&change) };
    let (length, ending, bytes) = match &changed {
        Ok(()) => (4096, CompletionStatus::RemoteAccess, b"\0\0\0\0\0"),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
            (8192, CompletionStatus::Success, b"still")
        }
    };
    assert_eq!(changed.is_ok(), mlx5::is_under_test());
    assert_eq!(mr.len(), length);
    let status = Writer::new(&pd)?.write(mr.remote().at(8000), b"still")?;
    assert_eq!(status, ending);
    let status = Writer::new(&pd)?.write(mr.remote().at(4000), b"there")?;
    assert_eq!(status, CompletionStatus::Success);
    mr.deregister()?;
    assert_eq!(
        (&memory[8000..8005], &memory[4000..4005]),
        (&bytes[..], &b"there"[..])
    );
    Ok(Outcome::Pass)
}

fn memory_has_other_addresses() -> TestResult {
    const IOVA: u64 = 0x5000_0000_0000;
    let pd = environment::context().alloc_pd()?;
    let mut memory = vec![0u8; 4096];
    let address = memory.as_mut_ptr();
    let iova = IOVA + (address as u64 & 0xfff);
    // SAFETY: the memory outlives the region, and is looked at when nobody writes.
    let mr = unsafe { pd.register_raw_at(address, 4096, iova, ANY_ACCESS)? };
    assert_eq!(mr.remote().address, iova);
    let status = Writer::new(&pd)?.write(mr.remote().at(100), b"here")?;
    assert_eq!(status, CompletionStatus::Success);
    mr.deregister()?;
    assert_eq!(&memory[100..104], b"here");
    // SAFETY: as before, but nothing is registered.
    let error = unsafe { pd.register_raw_at(address, 4096, iova ^ 1, ANY_ACCESS) };
    let error = error.expect_err("another place in the page");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(Outcome::Pass)
}

/// What the device says of itself is what it takes.
fn rare_access_is_refused_by_name_or_works() -> TestResult {
    let context = environment::context();
    let pd = context.alloc_pd()?;
    let device = context.attr()?;
    let alloc = |access| pd.alloc(4096, Access::LOCAL_WRITE | access);
    let expect = |name: &str, access, is_there: bool, outcome: Result<Buffer>| match outcome {
        Ok(_) => assert!(is_there, "{name} is taken, though it is not there"),
        Err(error) => {
            assert!(!is_there, "{name}: {error}");
            assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
            assert!(error.to_string().contains(name), "{access:?}: {error}");
        }
    };
    let flush = device.caps().contains(DeviceCaps::FLUSH_GLOBAL);
    let paging = device.on_demand_paging().is_supported;
    for (name, access, is_there) in [
        ("MW_BIND", Access::MW_BIND, true),
        ("FLUSH_GLOBAL", Access::FLUSH_GLOBAL, flush),
        ("ON_DEMAND", Access::ON_DEMAND, paging),
    ] {
        expect(name, access, is_there, alloc(access));
    }
    let error = alloc(Access::FLUSH_PERSISTENT).expect_err("ordinary memory is not persistent");
    assert!(error.to_string().contains("FLUSH_PERSISTENT"), "{error}");
    let error = alloc(Access::ZERO_BASED).expect_err("that is for windows");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    Ok(Outcome::Pass)
}

fn wishes_are_no_demands() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let wish = Access::RELAXED_ORDERING | Access::from_bits_retain(1 << 29);
    pd.alloc(64, Access::LOCAL_WRITE | wish)?;
    let demand = Access::from_bits_retain(1 << 30);
    pd.alloc(64, demand).expect_err("nobody knows it");
    Ok(Outcome::Pass)
}

fn memory_of_another_device_is_refused() -> TestResult {
    let pd = environment::context().alloc_pd()?;
    let file = File::open("/dev/null")?;
    let error = pd.register_dmabuf(&file, 0, 4096, 0, Access::LOCAL_WRITE);
    let error = error.expect_err("rxe has no such memory");
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    Ok(Outcome::Pass)
}

fn the_device_tells_its_limits() -> TestResult {
    let context = environment::context();
    let attr = context.attr()?;
    assert!(context.completion_vectors() >= 1);
    assert!(attr.page_sizes() & 4096 != 0, "{:#x}", attr.page_sizes());
    for (name, limit) in [
        ("mr", attr.max_mr()),
        ("mw", attr.max_mw()),
        ("pd", attr.max_pd()),
        ("cq", attr.max_cq()),
        ("ah", attr.max_ah()),
        ("srq", attr.max_srq()),
        ("mcast_grp", attr.max_mcast_grp()),
        ("mcast_qp_attach", attr.max_mcast_qp_attach()),
        ("pkeys", attr.max_pkeys().into()),
        ("sge_rd", attr.max_sge_rd()),
    ] {
        assert!(limit > 0, "{name}");
    }
    assert_ne!(attr.atomic_capability(), AtomicCapability::None);
    if !mlx5::is_under_test() {
        assert!(attr.caps().contains(DeviceCaps::SRQ_RESIZE));
        assert!(!attr.caps().contains(DeviceCaps::XRC));
        assert_eq!(attr.max_moderation().0, 0, "rxe has no moderation");
    }
    Ok(Outcome::Pass)
}

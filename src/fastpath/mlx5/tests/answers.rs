//! What comes within its completion goes to the request that it is of, whatever another thread does.

use std::mem::offset_of;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use rdmacm_kernel_abi::mlx5::{Cqe64, CqeOpcode, DataSeg, INLINE_SCATTER_32};
use rdmacm_kernel_abi::uverbs::WcStatus;

use super::stores::Stores;
use crate::fastpath::Completion;
use crate::fastpath::mlx5::completion_queue::CompletionQueue;
use crate::fastpath::mlx5::cq_ring::CqRing;
use crate::fastpath::mlx5::directory::Directory;
use crate::fastpath::mlx5::posted::{FIRST, Incoming, QueuePair, Receives};
use crate::fastpath::mlx5::queue_memory::{QueueMemory, pages};
use crate::fastpath::mlx5::record::Records;
use crate::fastpath::mlx5::register::ArmRegister;
use crate::fastpath::mlx5::scatter::{RegionNote, Regions};
use crate::sys::hostile::Hostile;
use crate::sys::{Kernel, Memory, page_size};

const LKEY: u32 = 0x1200;
const KEY: u32 = 3;
const MESSAGE: [u8; 5] = *b"hello";

/// A completion queue with a message for the one receive of a queue pair.
struct Arrived {
    cq: CompletionQueue,
    directory: Arc<Directory>,
    pair: Arc<QueuePair>,
    /// Where the receive says.
    inbox: Arc<Memory>,
    _note: RegionNote,
}

fn arrived() -> Arrived {
    let kernel: Arc<dyn Kernel> = Hostile::new();
    let page = || pages(&kernel, page_size()).unwrap();
    let ring = Arc::new(CqRing::new(&kernel, 8, 64).unwrap());
    let record = Arc::<Records>::default().take(&kernel).unwrap();
    let directory = Arc::new(Directory::new(Arc::clone(&ring), record, false));
    let regions = Arc::<Regions>::default();
    let cq = CompletionQueue::new(
        Arc::clone(&ring),
        Arc::clone(&directory),
        7,
        ArmRegister::new(&Stores::new().page(&kernel, 0), 0).unwrap(),
        Arc::new(AtomicU32::new(0)),
        Arc::clone(&regions),
    );

    let inbox = page();
    let address = inbox.address().addr().get() as u64;
    let note = Regions::note(&regions, LKEY, (address, address, page_size() as u64));
    let receives = Receives::new(QueueMemory::new(&page(), 0, 4, 4));
    let segment = DataSeg {
        byte_count: (MESSAGE.len() as u32).into(),
        lkey: LKEY.into(),
        addr: address.into(),
    };
    let number = u64::from(receives.memory.index(FIRST as u32) as u32);
    // SAFETY: a place has room for a segment.
    unsafe { receives.memory.at(number as u32).cast().write(segment) };
    receives.note(FIRST, 1);
    let pair = Arc::new(QueuePair {
        key: KEY,
        number: KEY,
        sends: None,
        incoming: Incoming::Own(Arc::new(receives)),
    });
    directory.add(&pair);

    let mut entry = [0; size_of::<Cqe64>()];
    entry[..MESSAGE.len()].copy_from_slice(&MESSAGE);
    entry[offset_of!(Cqe64, byte_cnt)..][..4].copy_from_slice(&5u32.to_be_bytes());
    entry[offset_of!(Cqe64, sop_drop_qpn)..][..4].copy_from_slice(&KEY.to_be_bytes());
    entry[offset_of!(Cqe64, wqe_counter)..][..2].copy_from_slice(&(number as u16).to_be_bytes());
    entry[offset_of!(Cqe64, op_own)] = CqeOpcode::RESP_SEND.0 << 4 | INLINE_SCATTER_32;
    ring.put(0, &entry);
    Arrived {
        cq,
        directory,
        pair,
        inbox,
        _note: note,
    }
}

fn has_arrived(inbox: &Memory) -> bool {
    // SAFETY: the memory is there, and nothing is copied to it at the moment.
    unsafe { inbox.address().cast::<[u8; MESSAGE.len()]>().read() == MESSAGE }
}

#[test]
fn a_message_within_its_completion_goes_to_its_receive() {
    let mut arrived = arrived();
    let mut entries = [Completion::default()];
    let [completion] = arrived.cq.poll(&mut entries) else {
        panic!("there is one");
    };
    assert_eq!(
        (completion.0.wr_id, completion.0.status),
        (1, WcStatus::SUCCESS.0)
    );
    assert!(has_arrived(&arrived.inbox));
}

/// The place of the receive may be that of a new one before a poller that has begun goes on.
#[test]
fn nothing_is_copied_while_a_queue_pair_is_reset() {
    let mut arrived = arrived();
    // The poller knows the queue pair.
    arrived.cq.catch_up();
    let held = arrived.directory.hold();
    let begins = Barrier::new(2);
    let taken = thread::scope(|scope| {
        let poller = scope.spawn(|| {
            begins.wait();
            arrived.cq.poll(&mut [Completion::default()]).len()
        });
        begins.wait();
        thread::sleep(Duration::from_millis(100));
        assert!(!poller.is_finished());
        assert!(!has_arrived(&arrived.inbox));
        drop(held);
        // Before or after the poller: it copies to the old receive, or nowhere.
        arrived.directory.clean(&arrived.pair);
        arrived.pair.reset();
        poller.join().unwrap()
    });
    assert_eq!(taken == 1, has_arrived(&arrived.inbox));
}

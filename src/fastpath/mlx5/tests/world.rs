//! The queues of a scenario, in memory of the test's own, with a page in place of the registers.

use rdmacm_kernel_abi::mlx5::{AllocUcontextResp, BF_OFFSET};
use rdmacm_kernel_abi::uverbs::AhAttr;
use rdmacm_kernel_abi::uverbs::ioctl::QpCap;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, LazyLock};

use super::settings_of;
use super::stores::{REGISTER, Stores};
use super::vectors::{bytes, list, number, text, word};
use crate::fastpath::mlx5::address::{self, Network};
use crate::fastpath::mlx5::completion_queue::CompletionQueue;
use crate::fastpath::mlx5::cq_ring::CqRing;
use crate::fastpath::mlx5::directory::Directory;

use crate::fastpath::mlx5::grant::{Grant, Settings};
use crate::fastpath::mlx5::posted::{Incoming, QueuePair, Receives, Sends, SharedReceives};
use crate::fastpath::mlx5::queue_memory::{QueueMemory, pages};
use crate::fastpath::mlx5::record::{Record, Records};
use crate::fastpath::mlx5::recv_queue::RecvQueue;
use crate::fastpath::mlx5::register::{ArmRegister, Use};
use crate::fastpath::mlx5::registers::Lease;
use crate::fastpath::mlx5::scatter::{RegionNote, Regions};
use crate::fastpath::mlx5::send_queue::{Posting, SendQueue};
use crate::fastpath::mlx5::shared_recv_queue::SharedRecvQueue;
use crate::fastpath::mlx5::sizes::{RecvSize, SendSize, SharedSize};
use crate::fastpath::{Handle, QpType};
use crate::sys::{Kernel, Memory, running_kernel};

/// Bytes of the buffer that data comes from and goes to.
const DATA_LENGTH: usize = 1 << 20;

/// The page of the register that arms completion queues.
const ARM_PAGE: u64 = 0x90_0000;

/// The MAC address that the kernel of the recordings tells of every next hop.
const NEXT_HOP: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

/// All that a scenario works on.
pub(super) struct World {
    pub data: Data,
    pub settings: Settings,
    pub cq: CompletionQueue,
    pub directory: Arc<Directory>,
    pub pairs: BTreeMap<u32, Pair>,
    pub shared: Option<Shared>,
    pub handles: Vec<Handle>,
    pub stores: Stores,
}

/// A queue pair.
pub(super) struct Pair {
    pub pair: Arc<QueuePair>,
    pub record: Arc<Record>,
    pub qp_type: QpType,
    pub send_size: Option<SendSize>,
    pub recv_size: Option<RecvSize>,
    pub send: Option<Posting>,
    pub recv: Option<RecvQueue>,
    /// The kernel's number of the state; those of the recordings are ready to send at first.
    pub state: u64,
    /// What of the send queue's memory C leaves as it was, or writes though the request fails.
    pub unknown: Vec<bool>,
}

/// A shared receive queue.
pub(super) struct Shared {
    pub size: SharedSize,
    pub queue: SharedRecvQueue,
    pub record: Arc<Record>,
}

/// The buffer that requests name at one address and that lies at another.
pub(super) struct Data {
    base: u64,
    memory: Arc<Memory>,
    /// Registered under each key that a request names.
    _notes: Vec<RegionNote>,
}

/// Which register each queue pair rings, which the recording tells by its first store, and in which
/// half of it: what went before is not in the scenario.
pub(super) struct Plan {
    /// Page and offset, by queue pair.
    of_pair: HashMap<u32, (u64, u64)>,
    /// The half that is used first, by register.
    half: HashMap<(u64, u64), u64>,
    /// The page of the register that arms completion queues.
    arm: u64,
}

impl Plan {
    pub(super) fn of(scenario: &Value) -> Self {
        let mut plan = Self {
            of_pair: HashMap::new(),
            half: HashMap::new(),
            arm: ARM_PAGE,
        };
        // Requests that go before the first step use the halves as well.
        let before = scenario["precondition"]["cur_post"].as_u64().unwrap_or(0);
        for step in list(&scenario["steps"]) {
            let store = list(&step["uar"]).first();
            let Some(store) = store else { continue };
            if step["op"] != "post_send" {
                plan.arm = number(&store["map_offset"]);
                continue;
            }
            let at = number(&store["page_off"]) - BF_OFFSET as u64;
            let half = at % REGISTER;
            let register = (number(&store["map_offset"]), at - half);
            plan.of_pair.entry(word(&step["qpn"])).or_insert(register);
            plan.half
                .entry(register)
                .or_insert((half + before % 2 * REGISTER / 2) % REGISTER);
        }
        plan
    }
}

/// What the kernel of the recordings grants: dynamic pages with registers of twice 256 bytes.
pub(super) fn grant(cqe_version: u8) -> Grant {
    Grant::new(&AllocUcontextResp {
        bf_reg_size: REGISTER as u32,
        max_sq_desc_sz: 1024,
        max_rq_desc_sz: 512,
        max_send_wqebb: 1 << 15,
        max_recv_wr: 1 << 15,
        max_srq_recv_wr: 1 << 15,
        num_uars_per_page: 1,
        cmds_supp_uhw: 3,
        cqe_version,
        ..Default::default()
    })
    .expect("a grant as the recordings have it")
}

impl World {
    pub(super) fn new(scenario: &Value, plan: &Plan) -> Self {
        let kernel = &running_kernel();
        let config = text(&scenario["config"]);
        let settings = Settings {
            completion_bytes: word(&scenario["cq"]["cqe_size"]),
            ..settings_of(config)
        };
        let grant = grant(u8::from(config != "cqe_v0"));
        let records = Arc::new(Records::default());
        let regions = Arc::new(Regions::default());
        let data = Data::new(kernel, scenario, &regions);
        let stores = Stores::new();
        let arm = ArmRegister::new(&stores.page(kernel, plan.arm), 0).expect("a page");

        let ring = CqRing::new(
            kernel,
            word(&scenario["cq"]["ncqe"]),
            settings.completion_bytes,
        );
        let ring = Arc::new(ring.expect("memory"));
        let record = records.take(kernel).expect("memory");
        let directory = Directory::new(Arc::clone(&ring), record, grant.has_user_index);
        let directory = Arc::new(directory);
        let cq = CompletionQueue::new(
            ring,
            Arc::clone(&directory),
            word(&scenario["cq"]["cqn"]),
            arm,
            Arc::new(AtomicU32::new(0)),
            regions,
        );

        let shared = scenario.get("srq").map(|srq| {
            let wish = &srq["requested"];
            let size = SharedSize::new(word(&wish["max_wr"]), word(&wish["max_sge"]), &grant);
            let size = size.expect("a size as the recordings have it");
            let memory = pages(kernel, size.bytes()).expect("memory");
            let memory = QueueMemory::new(&memory, 0, size.places, size.shift);
            let record = Arc::new(records.take(kernel).expect("memory"));
            let receives = Arc::new(SharedReceives::new(memory));
            Shared {
                queue: SharedRecvQueue::new(receives, Arc::clone(&record), size),
                record,
                size,
            }
        });

        let mut registers = HashMap::new();
        let mut world = Self {
            data,
            settings,
            cq,
            directory,
            pairs: BTreeMap::new(),
            shared,
            handles: list(&scenario["ah_attrs"])
                .iter()
                .map(|attr| handle(attr, config))
                .collect(),
            stores,
        };
        for (_, qp) in pairs_of(scenario) {
            let record = Arc::new(records.take(kernel).expect("memory"));
            let at = plan.of_pair.get(&word(&qp["qpn"]));
            let at = *at.unwrap_or(&(plan.arm, 0));
            let users = plan.of_pair.values().filter(|other| **other == at).count();
            let register = registers.entry(at).or_insert_with(|| {
                let half = plan.half.get(&at).copied().unwrap_or(0);
                let how = match users {
                    // The first register of that page takes everybody's doorbells.
                    _ if settings.no_blue_flame || at == (plan.arm, 0) => Use::Doorbells,
                    ..=1 => Use::Alone,
                    _ => Use::Shared,
                };
                world.stores.register(kernel, at, half, how)
            });
            let lease = Lease::of(Arc::clone(register));
            world.add_pair(kernel, qp, &grant, record, lease);
        }
        world
    }

    fn add_pair(
        &mut self,
        kernel: &Arc<dyn Kernel>,
        qp: &Value,
        grant: &Grant,
        record: Arc<Record>,
        lease: Lease,
    ) {
        let qp_type = match text(&qp["type"]) {
            "RC" => QpType::Rc,
            "UC" => QpType::Uc,
            "UD" => QpType::Ud,
            other => panic!("the type {other} is not known to the replay"),
        };
        let (number, cap) = (word(&qp["qpn"]), cap(&qp["cap_requested"]));
        let shared = self.shared.as_ref().filter(|_| qp["srq"] == true);
        let send_size = SendSize::new(&cap, qp_type, grant).expect("a size");
        let recv_size = match shared {
            None => RecvSize::new(&cap, grant).expect("a size"),
            Some(_) => None,
        };
        let recv_bytes = recv_size.map_or(0, |size| size.bytes());
        let bytes = recv_bytes + send_size.map_or(0, |size| size.bytes());
        let memory = pages(kernel, bytes.max(64)).expect("memory");
        let (sends, send) = send_size
            .map(|size| {
                let memory = QueueMemory::new(&memory, recv_bytes, size.blocks, 6);
                let sends = Arc::new(Sends::new(memory, qp_type == QpType::Rc));
                let signal_all = qp["sq_sig_all"] != 0;
                let queue = SendQueue::new(
                    Arc::clone(&sends),
                    lease,
                    Arc::clone(&record),
                    number,
                    size,
                    signal_all,
                    self.settings,
                );
                (sends, Posting::new(queue))
            })
            .unzip();
        let (receives, recv) = recv_size
            .map(|size| {
                let memory = QueueMemory::new(&memory, 0, size.depth, size.shift);
                let receives = Arc::new(Receives::new(memory));
                let queue = RecvQueue::new(Arc::clone(&receives), Arc::clone(&record), size);
                (receives, queue)
            })
            .unzip();
        let pair = Arc::new(QueuePair {
            key: match grant.has_user_index {
                true => word(&qp["uidx"]),
                false => number,
            },
            number,
            sends,
            incoming: match (receives, shared) {
                (Some(receives), _) => Incoming::Own(receives),
                (None, Some(shared)) => Incoming::Shared(Arc::clone(shared.queue.receives())),
                (None, None) => Incoming::None,
            },
        });
        self.directory.add(&pair);
        let pair = Pair {
            pair,
            record,
            qp_type,
            unknown: vec![false; send_size.map_or(0, |size| size.bytes())],
            send_size,
            recv_size,
            send,
            recv,
            state: 3,
        };
        self.pairs.insert(number, pair);
    }
}

/// The queue pairs of a scenario, by the names that they have there.
pub(super) fn pairs_of(scenario: &Value) -> Vec<(&str, &Value)> {
    let fields = scenario.as_object().expect("a recording is an object");
    let pairs = fields
        .iter()
        .filter(|(name, _)| super::fields::path_name(name) == "qp");
    pairs.map(|(name, qp)| (&**name, qp)).collect()
}

pub(super) fn cap(value: &Value) -> QpCap {
    QpCap {
        max_send_wr: word(&value["max_send_wr"]),
        max_recv_wr: word(&value["max_recv_wr"]),
        max_send_sge: word(&value["max_send_sge"]),
        max_recv_sge: word(&value["max_recv_sge"]),
        max_inline_data: word(&value["max_inline_data"]),
    }
}

/// A path as requests to the kernel have it.
fn path(attr: &Value) -> AhAttr {
    let mut path = AhAttr {
        dlid: word(&attr["dlid"]) as u16,
        sl: word(&attr["sl"]) as u8,
        src_path_bits: word(&attr["src_path_bits"]) as u8,
        static_rate: word(&attr["static_rate"]) as u8,
        is_global: word(&attr["is_global"]) as u8,
        port_num: word(&attr["port_num"]) as u8,
        ..Default::default()
    };
    path.grh.dgid.copy_from_slice(&bytes(&attr["dgid"]));
    path.grh.flow_label = word(&attr["flow_label"]);
    path.grh.sgid_index = word(&attr["sgid_index"]) as u8;
    path.grh.hop_limit = word(&attr["hop_limit"]) as u8;
    path.grh.traffic_class = word(&attr["traffic_class"]) as u8;
    path
}

fn handle(attr: &Value, config: &str) -> Handle {
    let network = match config {
        "ib_link" => Network::InfiniBand,
        _ => Network::RoceV2,
    };
    let mut vector = address::vector(&path(attr), network);
    if network != Network::InfiniBand {
        vector.rmac = NEXT_HOP;
    }
    Handle::Mlx5(vector)
}

impl Data {
    fn new(kernel: &Arc<dyn Kernel>, scenario: &Value, regions: &Arc<Regions>) -> Self {
        let base = number(&scenario["data_base"]);
        let memory = pages(kernel, DATA_LENGTH).expect("memory");
        let mut keys: Vec<u32> = list(&scenario["steps"])
            .iter()
            .flat_map(|step| list(&step["wrs"]))
            .flat_map(|request| list(&request["sge"]))
            .filter(|sge| (base..base + DATA_LENGTH as u64).contains(&number(&sge[0])))
            .map(|sge| word(&sge[2]))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let address = memory.address().as_ptr() as u64;
        let range = (base, address, DATA_LENGTH as u64);
        let notes = keys.iter().map(|key| regions.note(*key, range));
        let data = Self {
            base,
            _notes: notes.collect(),
            memory,
        };
        static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let bytes = (0..DATA_LENGTH).map(|at| (at * 7 + (at >> 8) * 13 + 3) as u8);
            bytes.collect()
        });
        data.write(base, &PATTERN);
        data
    }

    fn place(&self, address: u64, length: usize) -> *mut u8 {
        let offset = (address - self.base) as usize;
        assert!(
            offset + length <= DATA_LENGTH,
            "{address:#x} is not in the buffer"
        );
        // SAFETY: the range was just seen to lie in the memory.
        unsafe { self.memory.address().add(offset).as_ptr() }
    }

    pub(super) fn read(&self, address: u64, length: usize) -> Vec<u8> {
        // SAFETY: the range lies in the memory, which only this thread touches.
        unsafe { std::slice::from_raw_parts(self.place(address, length), length) }.to_vec()
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        let to = self.place(address, bytes.len());
        // SAFETY: the range lies in the memory, which only this thread touches.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

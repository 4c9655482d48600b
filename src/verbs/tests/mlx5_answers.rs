//! mlx5: answers of the kernel that are zero, too large, or off by one, on a card made of software.
//! Each is an error, or does no harm.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdmacm_kernel_abi::mlx5::{AllocUcontextResp, CreateQpResp, uar_ids};
use rdmacm_kernel_abi::uverbs::{self, Command, ioctl};
use rdmacm_mlx5_device::Config;

use super::card::path_to_itself;
use crate::error::{Error, Result};
use crate::sys::twin::{Call, Twin};
use crate::{
    Access, Completion, Context, Cq, Destination, Qp, QpAttr, QpModify, QpState, QpType, SrqAttr,
};

/// The forms in which doorbell pages are had.
fn configs() -> [Config; 3] {
    let is_static = Config {
        has_static_uars: true,
        is_loud: false,
        ..Config::default()
    };
    [
        Config {
            is_loud: false,
            ..Config::default()
        },
        is_static.clone(),
        Config {
            has_write_abi_only: true,
            ..is_static
        },
    ]
}

/// A kernel with a card, which is taken out at the end.
struct Machine(Arc<Twin>);

impl Machine {
    fn new(config: &Config) -> Self {
        Self(Twin::with_card(config.clone()))
    }

    fn open(&self) -> Result<Context> {
        self.0.registry().context_of_index(7)
    }

    /// Opens the device and works with it.
    fn work(&self) -> Result<()> {
        work(&self.open()?)
    }
}

impl std::ops::Deref for Machine {
    type Target = Twin;

    fn deref(&self) -> &Twin {
        &self.0
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.0.remove_card();
    }
}

/// The answers that are changed, by what they are to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Context,
    DoorbellPage,
    Cq,
    Srq,
    Qp,
    Ah,
}

impl Answer {
    const ALL: [Self; 6] = [
        Self::Context,
        Self::DoorbellPage,
        Self::Cq,
        Self::Srq,
        Self::Qp,
        Self::Ah,
    ];

    fn of(call: &Call) -> Option<Self> {
        use ioctl::object;
        match call {
            Call::Method { object, method, .. } => match (*object, *method) {
                (object::DEVICE, ioctl::device::GET_CONTEXT) => Some(Self::Context),
                (uar_ids::OBJECT_UAR, uar_ids::ALLOC) => Some(Self::DoorbellPage),
                (object::CQ, ioctl::cq::CREATE) => Some(Self::Cq),
                (object::SRQ, ioctl::srq::CREATE) => Some(Self::Srq),
                (object::QP, ioctl::qp::CREATE) => Some(Self::Qp),
                _ => None,
            },
            Call::Write(command, _) => match *command {
                Command::GET_CONTEXT => Some(Self::Context),
                Command::CREATE_CQ => Some(Self::Cq),
                Command::CREATE_SRQ => Some(Self::Srq),
                Command::CREATE_QP => Some(Self::Qp),
                Command::CREATE_AH => Some(Self::Ah),
                _ => None,
            },
            _ => None,
        }
    }

    /// Where an answer begins that is changed: in those that are written, behind the handle or the
    /// descriptor, which are the kernel's to know.
    fn begin(self, call: &Call, attr: u16) -> usize {
        let is_core = match call {
            Call::Write(..) => attr != ioctl::UHW_OUT,
            _ => false,
        };
        if is_core { 4 } else { 0 }
    }
}

/// How bytes are changed.
const CHANGES: [fn(u8) -> u8; 4] = [
    |_| 0,
    |_| u8::MAX,
    |byte| byte.wrapping_add(1),
    |byte| byte.wrapping_sub(1),
];

/// One change: of one byte, or of all four of a word.
#[derive(Debug, Clone, Copy)]
struct Change {
    answer: Answer,
    attr: u16,
    at: usize,
    length: usize,
    how: usize,
}

impl Change {
    fn apply(&self, call: &Call, attr: u16, bytes: &mut [u8]) -> bool {
        let is_it = Answer::of(call) == Some(self.answer) && attr == self.attr;
        let Some(range) = bytes.get_mut(self.at..self.at + self.length) else {
            return false;
        };
        if is_it {
            for byte in range {
                *byte = CHANGES[self.how](*byte);
            }
        }
        is_it
    }
}

/// Makes one of everything and uses it, as far as it goes.
fn work(context: &Context) -> Result<()> {
    let pd = context.alloc_pd()?;
    let mut cq = context.completion_queue(32).build()?;
    let mut srq = pd.create_srq(&SrqAttr {
        max_wr: 8,
        max_sge: 2,
    })?;
    let attr = || QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    let mut near = pd.create_qp(&attr().max_inline_data(64))?;
    let far = pd.create_qp(&attr().srq(&srq))?;
    let mut datagrams = pd.create_qp(&attr().qp_type(QpType::Ud).max_inline_data(64))?;
    let memory = pd.alloc(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let path = path_to_itself(context);
    let connected = connect(&near, &far, path).and_then(|()| connect(&far, &near, path));
    let ready = raise_datagrams(&datagrams);
    let handle = pd.address_handle(&path)?;
    connected.and(ready)?;

    let inbox = [memory.slice(..64)?];
    for wr_id in 0..8 {
        let _ = srq.post(wr_id, &inbox);
        let _ = datagrams
            .recv_half()
            .post(wr_id, &[memory.slice(1024..1200)?]);
    }
    for wr_id in 0..8 {
        let mut batch = near.send_half().batch();
        let to = memory.remote().at(512);
        let _ = match wr_id % 2 {
            0 => batch.send(wr_id).signaled().inline(&[7; 20]),
            _ => batch.write(wr_id, to).signaled().from(&inbox),
        };
        let _ = batch.submit();
        let to = Destination {
            handle: &handle,
            qp_num: datagrams.number(),
            qkey: 1,
        };
        let mut batch = datagrams.send_half().batch();
        let _ = batch.send_datagram(wr_id, to).signaled().inline(&[7; 20]);
        let _ = batch.submit();
    }
    cq.resize(100)?;
    poll(&mut cq, 28);
    far.modify(&QpModify::to(QpState::Reset))?;
    Ok(())
}

/// Takes so many completions, if they come.
fn poll(cq: &mut Cq, count: usize) {
    let mut entries = [Completion::default(); 16];
    let (mut taken, begin) = (0, Instant::now());
    while taken < count && begin.elapsed() < Duration::from_millis(5) {
        for completion in cq.poll(&mut entries) {
            assert!(!format!("{completion:?}").is_empty());
            taken += 1;
        }
        std::thread::yield_now();
    }
}

fn connect(qp: &Qp, peer: &Qp, path: crate::Path) -> Result<()> {
    let init = QpModify::to(QpState::Init).port(1).pkey_index(0);
    qp.modify(&init.access(Access::REMOTE_WRITE))?;
    let rtr = QpModify::to(QpState::Rtr)
        .path(path)
        .path_mtu(crate::Mtu::from_bytes(1024).expect("a size of packets"))
        .remote_qp_num(peer.number() & 0xff_ffff)
        .receive_psn(1)
        .responder_resources(4)
        .min_rnr_timer(12);
    qp.modify(&rtr)?;
    let rts = QpModify::to(QpState::Rts)
        .send_psn(1)
        .timeout(14)
        .retry_count(7)
        .rnr_retry_count(7)
        .initiator_depth(4);
    qp.modify(&rts)
}

fn raise_datagrams(qp: &Qp) -> Result<()> {
    let init = QpModify::to(QpState::Init).port(1).pkey_index(0).qkey(1);
    qp.modify(&init)?;
    qp.modify(&QpModify::to(QpState::Rtr))?;
    qp.modify(&QpModify::to(QpState::Rts).send_psn(0))
}

/// Which answers there are, by the attributes that have them, and how long they are.
fn answers(config: &Config) -> Vec<(Answer, u16, Range<usize>)> {
    let (twin, seen) = (Machine::new(config), Arc::default());
    let list: Arc<std::sync::Mutex<Vec<_>>> = Arc::clone(&seen);
    twin.tamper(move |call, attr, bytes| {
        let mut list = list.lock().unwrap();
        if let Some(answer) = Answer::of(call) {
            let part = (answer, attr, answer.begin(call, attr)..bytes.len());
            if !list.contains(&part) {
                list.push(part);
            }
        }
    });
    twin.work().unwrap();
    twin.assert_clean();
    let seen = seen.lock().unwrap().clone();
    for answer in Answer::ALL {
        let is_static = config.has_static_uars && answer == Answer::DoorbellPage;
        assert_eq!(seen.iter().any(|(it, ..)| *it == answer), !is_static);
    }
    seen
}

#[test]
fn each_byte_of_each_answer_may_be_wrong() {
    for config in configs() {
        let answers = answers(&config);
        let twin = Machine::new(&config);
        for (answer, attr, part) in answers {
            let bytes = part.clone().map(|at| (at, 1));
            let words = (part.start..part.end.saturating_sub(3)).step_by(4);
            let words = words.map(|at| (at, 4));
            for (at, length) in bytes.chain(words) {
                // Of words, whole ones: nothing, and as much as there can be.
                for how in 0..if length == 1 { CHANGES.len() } else { 2 } {
                    let change = Change {
                        answer,
                        attr,
                        at,
                        length,
                        how,
                    };
                    survives(&twin, change);
                }
            }
        }
    }
}

#[track_caller]
fn survives(twin: &Machine, change: Change) {
    let applied = Arc::new(AtomicBool::new(false));
    let note = Arc::clone(&applied);
    twin.tamper(move |call, attr, bytes| {
        if change.apply(call, attr, bytes) {
            note.store(true, Ordering::Relaxed);
        }
    });
    if let Err(error) = twin.work() {
        assert!(error.to_string().len() > 20, "{change:?}: {error}");
    }
    assert!(applied.load(Ordering::Relaxed), "{change:?}");
    twin.behave();
    twin.assert_given_back();
}

/// The error of a device whose context was answered otherwise.
fn with_context(config: &Config, change: fn(&mut AllocUcontextResp)) -> Error {
    let twin = Machine::new(config);
    twin.tamper(move |call, attr, bytes| {
        let begin = match (Answer::of(call), attr) {
            (Some(Answer::Context), ioctl::UHW_OUT) => 0,
            (Some(Answer::Context), 0) if matches!(call, Call::Write(..)) => {
                size_of::<uverbs::GetContextResp>()
            }
            _ => return,
        };
        let bytes = bytes[begin..].first_chunk_mut().expect("a whole answer");
        let mut answer: AllocUcontextResp =
            zerocopy::transmute!(*bytes as [u8; size_of::<AllocUcontextResp>()]);
        change(&mut answer);
        *bytes = zerocopy::transmute!(answer);
    });
    let error = twin.work().unwrap_err();
    twin.assert_given_back();
    error
}

#[test]
fn what_cannot_be_granted_is_said() {
    let [dynamic, fixed, written] = configs();
    for config in [&dynamic, &fixed, &written] {
        type Lie = fn(&mut AllocUcontextResp);
        let lies: [(Lie, &str); 6] = [
            (|answer| answer.bf_reg_size = 1000, "impossible size"),
            (|answer| answer.cqe_version = 2, "form of completions"),
            (|answer| answer.num_uars_per_page = 0, "doorbell pages in a"),
            (|answer| answer.tot_bfregs = u32::MAX, "number of doorbell"),
            (|answer| answer.max_sq_desc_sz = 0, "no room for requests"),
            (|answer| answer.max_rq_desc_sz = 8, "no room for requests"),
        ];
        for (lie, text) in lies {
            let error = with_context(config, lie).to_string();
            assert!(error.contains(text), "{error}");
        }
    }
    let error = with_context(&fixed, |answer| answer.tot_bfregs = 1).to_string();
    assert!(
        error.contains("1 doorbell registers, which is not"),
        "{error}"
    );
    // Whoever asks by write() cannot ask for pages.
    let error = with_context(&written, |answer| answer.tot_bfregs = 0).to_string();
    assert!(error.contains("granted no doorbell registers"), "{error}");
    assert!(error.contains("write()"), "{error}");
    // More than are mapped.
    let error = with_context(&fixed, |answer| answer.tot_bfregs = 512).to_string();
    assert!(error.contains("map_queue"), "{error}");
}

#[test]
fn a_queue_pair_with_a_register_that_there_is_not_is_destroyed_again() {
    for config in &configs()[1..] {
        // There are eight pages, of four numbers each. The first two are those of programs.
        let is_none = [32, 33, 0x8000_0000, u32::MAX].map(|index| (index, "which there is not"));
        let is_of_fast_path = [2, 3, 6, 31].map(|index| (index, "which is not for programs"));
        for (index, what) in is_none.into_iter().chain(is_of_fast_path) {
            let twin = Machine::new(config);
            twin.tamper(move |call, attr, bytes| {
                if Answer::of(call) == Some(Answer::Qp) && matches!(attr, 0 | ioctl::UHW_OUT) {
                    let begin = bytes.len() - size_of::<CreateQpResp>();
                    bytes[begin..begin + 4].copy_from_slice(&index.to_ne_bytes());
                }
            });
            let error = twin.work().unwrap_err().to_string();
            let text = format!("doorbell register {index}, {what}");
            assert!(error.contains(&text), "{error}");
            twin.assert_clean();
        }
    }
}

#[test]
fn doorbell_pages_that_cannot_be_mapped_are_errors() {
    for config in configs() {
        // The first is for completion queues, the others for queue pairs.
        for skip in 0..3 {
            for errno in [libc::EPERM, libc::ENOMEM, libc::EINVAL] {
                let twin = Machine::new(&config);
                let context = twin.open().unwrap();
                twin.fail(skip, errno, |call| matches!(call, Call::MapDevice));
                let outcome = work(&context);
                if twin.refused().is_empty() {
                    outcome.unwrap();
                } else {
                    let error = outcome.unwrap_err();
                    assert_eq!(
                        (error.operation(), error.errno()),
                        ("map_queue", Some(errno))
                    );
                    // The next attempt works, and asks for as many pages as it needs.
                    work(&context).unwrap();
                }
                drop(context);
                twin.assert_clean();
            }
        }
    }
}

#[test]
fn there_may_be_no_memory_for_queues() {
    for config in configs() {
        for skip in 0.. {
            let twin = Machine::new(&config);
            let context = twin.open().unwrap();
            twin.fail(skip, libc::ENOMEM, |call| matches!(call, Call::MapMemory));
            let outcome = work(&context);
            drop(context);
            twin.assert_clean();
            if twin.refused().is_empty() {
                assert!(skip > 6, "queues, records and a buffer");
                outcome.unwrap();
                break;
            }
            assert_eq!(outcome.unwrap_err().errno(), Some(libc::ENOMEM));
        }
    }
}

//! mlx5: threads that take each other's objects away, on a card made of software.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdmacm_mlx5_device::Config;

use super::card::{connect, open, path_to_itself};
use crate::{
    Access, Buffer, Completion, CompletionStatus, Context, Cq, Pd, Qp, QpAttr, QpModify, QpState,
    SrqAttr,
};

const ROUNDS: usize = if cfg!(miri) { 2 } else { 40 };

/// Two connected queue pairs that complete into two queues.
fn pair(pd: &Pd, near_cq: &Cq, far_cq: &Cq, path: crate::Path) -> (Qp, Qp) {
    let make = |cq: &Cq| {
        let attr = QpAttr::new(pd).send_cq(cq).recv_cq(cq);
        pd.create_qp(&attr.max_inline_data(64)).unwrap()
    };
    let (near, far) = (make(near_cq), make(far_cq));
    connect(&near, &far, path);
    connect(&far, &near, path);
    (near, far)
}

/// Sends a few short messages from one to the other.
fn send_some(near: &mut Qp, far: &mut Qp, inbox: &Buffer, first: u64) {
    for wr_id in first..first + 4 {
        let place = inbox.slice(..64).unwrap();
        far.recv_half().post(wr_id, &[place]).unwrap();
    }
    let mut batch = near.send_half().batch();
    for wr_id in first..first + 4 {
        batch.send(wr_id).signaled().inline(&[7; 20]).unwrap();
    }
    batch.submit().unwrap();
}

/// Polls until it is told to stop, and counts what it takes. Each completion is of a number below
/// `end`.
fn poll_until(cq: &mut Cq, stop: &AtomicBool, taken: &AtomicUsize, end: impl Fn() -> u64) {
    let mut entries = [Completion::default(); 4];
    while !stop.load(Ordering::Relaxed) {
        for completion in cq.poll(&mut entries) {
            assert!(completion.wr_id() < end(), "{completion:?}");
            taken.fetch_add(1, Ordering::Relaxed);
        }
        thread::yield_now();
    }
}

fn buffer(pd: &Pd) -> Buffer {
    pd.alloc(4096, Access::LOCAL_WRITE).unwrap()
}

/// A thread polls while another connects queue pairs, sends over them, and takes them away: destroyed
/// or reset, at any point of a message.
#[test]
fn queue_pairs_go_while_another_thread_polls() {
    let (twin, context) = open(Config::default());
    let pd = context.alloc_pd().unwrap();
    let cq = || context.completion_queue(256).build().unwrap();
    let (mut near_cq, far_cq) = (cq(), cq());
    let (stop, inbox) = (AtomicBool::new(false), buffer(&pd));
    let path = path_to_itself(&context);
    let mut ends: Vec<(Qp, Qp)> = Vec::new();
    // Made before: the queues are borrowed meanwhile.
    for _ in 0..ROUNDS {
        ends.push(pair(&pd, &near_cq, &near_cq, path));
    }
    let (mut first, mut second) = pair(&pd, &near_cq, &near_cq, path);
    let taken = AtomicUsize::new(0);
    thread::scope(|scope| {
        let poller = scope.spawn(|| poll_until(&mut near_cq, &stop, &taken, || 8));
        // The thread polls already when the others go.
        send_some(&mut first, &mut second, &inbox, 0);
        let begin = Instant::now();
        while taken.load(Ordering::Relaxed) == 0 && begin.elapsed() < Duration::from_secs(30) {
            thread::yield_now();
        }
        for (round, (mut near, mut far)) in ends.into_iter().enumerate() {
            send_some(&mut near, &mut far, &inbox, 0);
            if round % 2 == 0 {
                thread::sleep(Duration::from_micros(round as u64 * 5));
            }
            match round % 3 {
                0 => drop(near),
                1 => {
                    // What it does after a reset is as if it were new.
                    for qp in [&near, &far] {
                        qp.modify(&QpModify::to(QpState::Reset)).unwrap();
                    }
                    connect(&near, &far, path);
                    connect(&far, &near, path);
                    for _ in 0..4 {
                        send_some(&mut near, &mut far, &inbox, 4);
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                _ => drop(far),
            }
        }
        stop.store(true, Ordering::Relaxed);
        poller.join().unwrap();
    });
    assert!(taken.into_inner() > 0);
    drop((first, second, near_cq, far_cq, inbox, pd, context));
    twin.assert_clean();
}

/// Buffers are dropped while messages for them arrive within completions: those are then errors, and
/// nothing else is written.
#[test]
fn buffers_go_while_messages_for_them_are_copied() {
    let (twin, context) = open(Config::default());
    let pd = context.alloc_pd().unwrap();
    let cq = || context.completion_queue(256).build().unwrap();
    let (mut near_cq, mut far_cq) = (cq(), cq());
    let path = path_to_itself(&context);
    let (mut near, mut far) = pair(&pd, &near_cq, &far_cq, path);
    for round in 0..ROUNDS {
        let inbox = buffer(&pd);
        send_some(&mut near, &mut far, &inbox, 0);
        // All have arrived, and are not copied yet.
        let begin = Instant::now();
        while waiting(&far_cq) < 4 && begin.elapsed() < Duration::from_secs(5) {
            thread::yield_now();
        }
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let (barrier, far_cq) = (&barrier, &mut far_cq);
            scope.spawn(move || {
                barrier.wait();
                let mut entries = [Completion::default(); 1];
                for wr_id in 0..4 {
                    let [completion] = far_cq.poll(&mut entries) else {
                        panic!("it was there");
                    };
                    assert_eq!(completion.wr_id(), wr_id);
                    if let Err(failure) = completion.result() {
                        assert_eq!(failure.status, CompletionStatus::LocalProtection);
                    }
                }
            });
            barrier.wait();
            for _ in 0..round {
                std::hint::spin_loop();
            }
            drop(inbox);
        });
        let sent = near_cq.poll(&mut [Completion::default(); 8]).len();
        assert_eq!(sent, 4, "the messages have arrived");
    }
    drop((near, far, near_cq, far_cq, pd, context));
    twin.assert_clean();
}

fn waiting(cq: &Cq) -> u32 {
    cq.queue.any().waiting()
}

/// The handle of a completion queue goes before its queue pairs, which go on.
#[test]
fn a_completion_queue_goes_before_its_queue_pairs() {
    let (twin, context) = open(Config::default());
    let pd = context.alloc_pd().unwrap();
    let cq = || context.completion_queue(64).build().unwrap();
    let (near_cq, far_cq) = (cq(), cq());
    let (inbox, path) = (buffer(&pd), path_to_itself(&context));
    let (mut near, mut far) = pair(&pd, &near_cq, &far_cq, path);
    drop(near_cq);
    // As many as there is room for: nobody takes them out.
    for _ in 0..15 {
        send_some(&mut near, &mut far, &inbox, 0);
        for qp in [&near, &far] {
            qp.modify(&QpModify::to(QpState::Reset)).unwrap();
        }
        connect(&near, &far, path);
        connect(&far, &near, path);
    }
    drop((far_cq, near, far, inbox, pd, context));
    twin.assert_clean();
}

/// One thread resizes and polls a queue while another destroys queue pairs that complete there, and makes
/// others that are known by the same numbers: no completion is of another's.
#[test]
fn a_queue_is_resized_while_queue_pairs_are_destroyed() {
    let (twin, context) = open(Config::default());
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.completion_queue(64).build().unwrap();
    let (stop, inbox) = (AtomicBool::new(false), buffer(&pd));
    let path = path_to_itself(&context);
    let ends: Vec<_> = (0..ROUNDS).map(|_| pair(&pd, &cq, &cq, path)).collect();
    thread::scope(|scope| {
        let poller = scope.spawn(|| {
            let mut entries = [Completion::default(); 4];
            let mut size = 100;
            while !stop.load(Ordering::Relaxed) {
                cq.resize(size).unwrap();
                size = 400 - size;
                for completion in cq.poll(&mut entries) {
                    assert!(completion.wr_id() < 4, "{completion:?}");
                }
            }
        });
        for (mut near, mut far) in ends {
            send_some(&mut near, &mut far, &inbox, 0);
            drop((near, far));
        }
        stop.store(true, Ordering::Relaxed);
        poller.join().unwrap();
    });
    drop((cq, inbox, pd, context));
    twin.assert_clean();
}

/// Queue pairs of two completion queues take their receives from one queue, in two threads, and each
/// receive is used once.
#[test]
fn a_shared_queue_is_used_by_two_pollers() {
    let (twin, context) = open(Config::default());
    shared_by_two(&context);
    drop(context);
    twin.assert_clean();
}

fn shared_by_two(context: &Context) {
    const EACH: usize = ROUNDS * 4;
    let pd = context.alloc_pd().unwrap();
    let cq = || context.completion_queue(256).build().unwrap();
    let (send_cq, mut far_cqs) = (cq(), [cq(), cq()]);
    let size = SrqAttr {
        max_wr: 16,
        max_sge: 1,
    };
    let mut srq = pd.create_srq(&size).unwrap();
    let (inbox, path) = (buffer(&pd), path_to_itself(context));
    let mut near = Vec::new();
    let mut far = Vec::new();
    for far_cq in &far_cqs {
        let attr = || QpAttr::new(&pd).send_cq(&send_cq);
        let one = pd.create_qp(&attr().recv_cq(&send_cq).max_inline_data(64));
        let one = one.unwrap();
        let other = pd.create_qp(&attr().recv_cq(far_cq).srq(&srq)).unwrap();
        connect(&one, &other, path);
        connect(&other, &one, path);
        near.push(one);
        far.push(other);
    }
    let taken = std::sync::Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for cq in &mut far_cqs {
            let (taken, stop) = (&taken, &stop);
            scope.spawn(move || {
                let mut entries = [Completion::default(); 4];
                while !stop.load(Ordering::Relaxed) {
                    for completion in cq.poll(&mut entries) {
                        completion.result().unwrap();
                        taken.lock().unwrap().push(completion.wr_id());
                    }
                    thread::yield_now();
                }
            });
        }
        let (begin, mut posted, mut send_cq) = (Instant::now(), 0u64, send_cq);
        let mut sent = [0usize; 2];
        while taken.lock().unwrap().len() < 2 * EACH && begin.elapsed() < Duration::from_secs(20) {
            while posted < 2 * EACH as u64 {
                match srq.post(posted, &[inbox.slice(..64).unwrap()]) {
                    Ok(()) => posted += 1,
                    Err(_) => break,
                }
            }
            for (near, sent) in near.iter_mut().zip(&mut sent) {
                let mut batch = near.send_half().batch();
                let fits = *sent < EACH && batch.send(0).signaled().inline(&[9; 20]).is_ok();
                if fits {
                    batch.submit().unwrap();
                    *sent += 1;
                }
            }
            let mut entries = [Completion::default(); 16];
            for completion in send_cq.poll(&mut entries) {
                completion.result().unwrap();
            }
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    let all: Vec<u64> = (0..2 * EACH as u64).collect();
    assert_eq!(taken, all, "each receive once");
}

//! mlx5: more requests than the counters of a doorbell record and of a completion can tell, on a card
//! made of software. They have 16 bits.

use rdmacm_mlx5_device::Config;

use super::card::{connect, next, open, path_to_itself};
use crate::{Access, Context, QpAttr, Srq, SrqAttr};

const DEPTH: u64 = 64;
/// Once round and some way on.
const MESSAGES: u64 = (1 << 16) + 16 * DEPTH;
/// Bytes of a message: its number.
const LENGTH: usize = size_of::<u64>();

/// A queue pair that sends, one that receives, and many messages.
fn exchange(context: &Context, mut srq: Option<&mut Srq>) {
    let pd = context.alloc_pd().unwrap();
    let cq = || context.completion_queue(2 * DEPTH as u32).build().unwrap();
    let (mut near_cq, mut far_cq) = (cq(), cq());
    let attr = || {
        let depth = DEPTH as u32;
        let attr = QpAttr::new(&pd).max_inline_data(LENGTH as u32);
        attr.max_send_wr(depth).max_recv_wr(depth)
    };
    let near = attr().send_cq(&near_cq).recv_cq(&near_cq);
    let mut near = pd.create_qp(&near).unwrap();
    let mut far = attr().send_cq(&far_cq).recv_cq(&far_cq);
    if let Some(srq) = srq.as_deref() {
        far = far.srq(srq);
    }
    let mut far = pd.create_qp(&far).unwrap();
    let path = path_to_itself(context);
    connect(&near, &far, path);
    connect(&far, &near, path);
    let memory = pd
        .alloc(DEPTH as usize * LENGTH, Access::LOCAL_WRITE)
        .unwrap();

    for first in (0..MESSAGES).step_by(DEPTH as usize) {
        let numbers = first..first + DEPTH;
        let place = |number: u64| (number % DEPTH) as usize * LENGTH;
        for number in numbers.clone() {
            let inbox = [memory.slice(place(number)..place(number) + LENGTH).unwrap()];
            match srq.as_deref_mut() {
                Some(srq) => srq.post(number, &inbox).unwrap(),
                None => far.recv_half().post(number, &inbox).unwrap(),
            }
        }
        let mut batch = near.send_half().batch();
        for number in numbers.clone() {
            let request = batch.send(number).signaled();
            request.inline(&number.to_ne_bytes()).unwrap();
        }
        batch.submit().unwrap();
        for number in numbers {
            for cq in [&mut near_cq, &mut far_cq] {
                let done = next(cq);
                done.result().unwrap();
                assert_eq!(done.wr_id(), number);
            }
            let bytes = memory.read_vec(place(number), LENGTH).unwrap();
            assert_eq!(bytes, number.to_ne_bytes());
        }
    }
}

#[test]
fn a_send_queue_and_a_receive_queue_count_on() {
    let (twin, context) = open(Config::default());
    exchange(&context, None);
    assert_eq!(twin.card().violations(), [""; 0]);
    drop(context);
    twin.assert_clean();
}

#[test]
fn a_shared_receive_queue_counts_on() {
    let (twin, context) = open(Config::default());
    let pd = context.alloc_pd().unwrap();
    let size = SrqAttr {
        max_wr: DEPTH as u32,
        max_sge: 1,
    };
    let mut srq = pd.create_srq(&size).unwrap();
    exchange(&context, Some(&mut srq));
    assert_eq!(twin.card().violations(), [""; 0]);
    drop((srq, pd, context));
    twin.assert_clean();
}

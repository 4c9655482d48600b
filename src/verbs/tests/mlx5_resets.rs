//! mlx5: what is posted after a reset, on a card made of software.

use rdmacm_mlx5_device::Config;

use super::card::{connect, next, open, path_to_itself};
use crate::{Access, PostError, QpAttr, QpModify, QpState};

/// The first request after a reset is refused, and another takes its place in the same batch: the device
/// runs that one, and nothing that stood in the queue before.
#[test]
fn a_refused_request_after_a_reset_leaves_the_batch_at_the_beginning() {
    let (twin, context) = open(Config::default());
    let pd = context.alloc_pd().unwrap();
    let cq = || context.completion_queue(64).build().unwrap();
    let (mut near_cq, mut far_cq) = (cq(), cq());
    let attr = || QpAttr::new(&pd).max_inline_data(64);
    let near = attr().send_cq(&near_cq).recv_cq(&near_cq);
    let mut near = pd.create_qp(&near).unwrap();
    let far = attr().send_cq(&far_cq).recv_cq(&far_cq);
    let mut far = pd.create_qp(&far).unwrap();
    let inbox = pd.alloc(64, Access::LOCAL_WRITE).unwrap();
    let path = path_to_itself(&context);
    for life in 0..3u64 {
        connect(&near, &far, path);
        connect(&far, &near, path);
        // Blocks further on in each life than where the next one begins.
        for number in 0..3 {
            let place = [inbox.slice(..).unwrap()];
            far.recv_half().post(number, &place).unwrap();
            let mut batch = near.send_half().batch();
            let too_long = vec![0; 4096];
            let refused = batch.send(9).signaled().inline(&too_long);
            assert!(matches!(refused, Err(PostError::InlineTooLong { .. })));
            let value = [life as u8 + 1; 40];
            batch.send(number).signaled().inline(&value).unwrap();
            batch.submit().unwrap();
            for cq in [&mut near_cq, &mut far_cq] {
                let done = next(cq);
                done.result().unwrap();
                assert_eq!(done.wr_id(), number, "in life {life}");
            }
            assert_eq!(inbox.read_vec(0, 40).unwrap(), value);
        }
        for qp in [&near, &far] {
            qp.modify(&QpModify::to(QpState::Reset)).unwrap();
        }
        // Or a batch that is refused and dropped is the first to hear of the reset.
        if life == 1 {
            let mut batch = near.send_half().batch();
            assert!(batch.send(9).inline(&[0; 4096]).is_err());
            drop(batch);
        }
    }
    assert_eq!(twin.card().violations(), [""; 0]);
    drop((near, far, near_cq, far_cq, inbox, pd, context));
    twin.assert_clean();
}

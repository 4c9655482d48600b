//! What is refused, by the library or the kernel, and how it is told.

use rdmacm_kernel_abi::uverbs;

use super::{ALL, End, context};
use crate::error::{ErrorKind, Result};
use crate::sys::twin::{CREATE_CQ, Twin, TwinDevice};
use crate::verbs::{Access, QpAttr, QpModify, QpState};

#[test]
fn a_transition_that_lacks_something_is_explained() {
    let twin = Twin::new();
    let end = End::new(&context(&twin)).unwrap();
    let error = end
        .qp
        .modify(&QpModify::to(QpState::Init).port(1))
        .unwrap_err();
    assert!(error.to_string().contains("PKEY_INDEX"), "{error}");
    let error = end.qp.modify(&QpModify::to(QpState::Rts)).unwrap_err();
    assert!(error.to_string().contains("no transition"), "{error}");
    let wrong_port = QpModify::to(QpState::Init)
        .port(9)
        .pkey_index(0)
        .access(ALL);
    let error = end.qp.modify(&wrong_port).unwrap_err();
    assert!(
        error.to_string().contains("out of the device's range"),
        "{error}"
    );
    assert_eq!(end.qp.query_state().unwrap(), QpState::Reset);
}

#[test]
fn a_ring_that_makes_no_sense_is_refused() {
    // The first is the completion queue's, the second and third the queue pair's.
    for broken in 0..3 {
        let twin = Twin::new();
        let context = context(&twin);
        let mut number = 0;
        twin.tamper_rings(move |header| {
            if number == broken {
                header.log2_elem_size = 40;
            }
            number += 1;
        });
        let error = End::new(&context).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        drop(context);
        twin.assert_clean();
    }
}

#[test]
fn a_mapping_smaller_than_its_ring_is_refused() {
    let twin = Twin::new();
    let context = context(&twin);
    twin.tamper(|call, attr, answer| {
        if call.is_method(CREATE_CQ) && attr == uverbs::ioctl::UHW_OUT {
            answer[8..12].copy_from_slice(&512u32.to_ne_bytes());
        }
    });
    let error = context.completion_queue(64).build().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
    drop(context);
    twin.assert_clean();
}

#[test]
fn refused_registration_names_the_limit() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    for errno in [libc::ENOMEM, libc::EPERM] {
        twin.fail(0, errno, |call| call.is_write(uverbs::Command::REG_MR));
        let error = pd.alloc(4096, ALL).unwrap_err();
        assert!(error.to_string().contains("8388608 bytes"), "{error}");
    }
    drop(pd);
    twin.assert_clean();
}

#[test]
fn contradictions_are_found_before_the_kernel_is_asked() {
    let twin = Twin::with_devices(vec![
        TwinDevice::rxe(0, [10, 0, 0, 1].into()),
        TwinDevice::rxe(1, [10, 0, 0, 2].into()),
    ]);
    let registry = twin.registry();
    let [one, other] = [0, 1].map(|index| registry.context_of_index(index).unwrap());
    let pd = one.alloc_pd().unwrap();
    let cq = one.completion_queue(4).build().unwrap();
    let (foreign_cq, foreign_channel) = (
        other.completion_queue(4).build().unwrap(),
        other.completion_channel().unwrap(),
    );
    let attr = || QpAttr::new(&pd).send_cq(&cq).recv_cq(&cq);
    let refused: Vec<(&str, Result<()>)> = vec![
        ("no entries", one.completion_queue(0).build().map(drop)),
        ("32768", one.completion_queue(32_768).build().map(drop)),
        (
            "channel",
            one.completion_queue(4)
                .channel(&foreign_channel)
                .build()
                .map(drop),
        ),
        (
            "completion queue",
            pd.create_qp(&QpAttr::new(&pd)).map(drop),
        ),
        ("rxe1", pd.create_qp(&attr().recv_cq(&foreign_cq)).map(drop)),
        (
            "max_send_wr",
            pd.create_qp(&attr().max_send_wr(1 << 21)).map(drop),
        ),
        (
            "max_recv_wr",
            pd.create_qp(&attr().max_recv_wr(1 << 21)).map(drop),
        ),
        (
            "max_send_sge",
            pd.create_qp(&attr().max_send_sge(33)).map(drop),
        ),
        (
            "max_recv_sge",
            pd.create_qp(&attr().max_recv_sge(0)).map(drop),
        ),
        (
            "max_inline_data",
            pd.create_qp(&attr().max_inline_data(513)).map(drop),
        ),
        ("one byte", pd.alloc(0, ALL).map(drop)),
        ("LOCAL_WRITE", pd.alloc(1, Access::REMOTE_WRITE).map(drop)),
    ];
    for (text, outcome) in refused {
        let error = outcome.expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}: {error}");
        assert!(
            text == "no entries" || error.to_string().contains(text),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_buffer_guards_its_ends() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let mut buffer = pd.alloc(100, ALL).unwrap();
    assert_eq!(buffer.len(), 100);
    buffer.write(97, b"end").unwrap();
    assert_eq!(buffer.read_vec(97, 3).unwrap(), b"end");
    assert_eq!(buffer.slice(..).unwrap().len(), 100);
    assert!(buffer.slice(100..).unwrap().is_empty());
    buffer.write(100, b"").unwrap();
    let beyond = [
        buffer.write(98, b"end").unwrap_err(),
        buffer.read_vec(0, 101).unwrap_err(),
        buffer.read_vec(usize::MAX, 2).unwrap_err(),
        buffer.slice(..=100).unwrap_err(),
        buffer.slice(101..).unwrap_err(),
        buffer.slice(..=usize::MAX).unwrap_err(),
        buffer
            .slice((
                std::ops::Bound::Excluded(usize::MAX),
                std::ops::Bound::Unbounded,
            ))
            .unwrap_err(),
        #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
        buffer.slice(5..4).unwrap_err(),
    ];
    for error in beyond {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}

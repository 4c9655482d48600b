//! Datagrams: address handles, the header in front of what is received, multicast groups.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::prelude::*;
use rdmacm_kernel_abi::uverbs::{self, ioctl};

use super::{ALL, context};
use crate::device::{Context, Gid};
use crate::error::{ErrorKind, Result};
use crate::fastpath::{Completion, GRH_LENGTH, PostError, QpType, RemoteAddress};
use crate::sys::twin::{Call, DESTROY_QP, Twin, TwinDevice};
use crate::verbs::{
    AddressHandle, Buffer, Cq, Destination, Path, Pd, Qp, QpAttr, QpModify, QpState,
};

const QKEY: u32 = 0x1234_5678;
const MULTICAST_QP: u32 = 0xff_ffff;
const GROUP: Gid = gid_of_ipv4([239, 1, 2, 3]);

const fn gid_of_ipv4(octets: [u8; 4]) -> Gid {
    let [a, b, c, d] = octets;
    Gid(Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().octets())
}

/// A queue pair for datagrams, ready to send.
struct Post {
    qp: Qp,
    cq: Cq,
    pd: Pd,
    buffer: Buffer,
}

impl Post {
    fn new(pd: &Pd) -> Self {
        let cq = pd.context().completion_queue(64).build().unwrap();
        let attr = QpAttr::new(pd).qp_type(QpType::Ud).max_inline_data(64);
        let qp = pd.create_qp(&attr.send_cq(&cq).recv_cq(&cq)).unwrap();
        let init = QpModify::to(QpState::Init).port(1).pkey_index(0).qkey(QKEY);
        qp.modify(&init).unwrap();
        qp.modify(&QpModify::to(QpState::Rtr)).unwrap();
        let rts = QpModify::to(QpState::Rts).send_psn(0);
        qp.modify(&rts).unwrap();
        Self {
            qp,
            cq,
            pd: pd.clone(),
            buffer: pd.alloc(8192, ALL).unwrap(),
        }
    }

    fn receive(&mut self, wr_id: u64, length: usize) {
        let segment = self.buffer.slice(..length).unwrap();
        self.qp.recv_half().post(wr_id, &[segment]).unwrap();
    }

    fn send(&mut self, to: Destination<'_>, bytes: &[u8]) -> Result<(), PostError> {
        let mut batch = self.qp.send_half().batch();
        batch.send_datagram(9, to).signaled().inline(bytes)?;
        batch.submit()
    }

    fn completions(&mut self) -> Vec<Completion> {
        let mut entries = [Completion::default(); 16];
        self.cq.poll(&mut entries).to_vec()
    }

    /// The one completion there is, of a receive that went well.
    fn received(&mut self) -> Completion {
        let completions = self.completions();
        assert_eq!(completions.len(), 1, "{completions:?}");
        completions[0].result().unwrap();
        completions[0]
    }

    fn header(&self) -> [u8; GRH_LENGTH] {
        let mut header = [0; GRH_LENGTH];
        self.buffer.read(0, &mut header).unwrap();
        header
    }

    fn text(&self, length: u32) -> Vec<u8> {
        self.buffer.read_vec(GRH_LENGTH, length as usize).unwrap()
    }
}

fn path(to: Gid) -> Path {
    Path {
        gid: to,
        source_gid_index: 0,
        port: 1,
        hop_limit: 1,
        traffic_class: 32,
        flow_label: 0,
        service_level: 0,
        lid: 0,
    }
}

fn path_to_itself(context: &Context) -> Path {
    path(context.gids().unwrap()[0].gid)
}

fn to(handle: &AddressHandle, qp_num: u32) -> Destination<'_> {
    Destination {
        handle,
        qp_num,
        qkey: QKEY,
    }
}

/// A kernel whose device has this address.
fn twin_at(ip: IpAddr) -> Arc<Twin> {
    Twin::with_devices(vec![TwinDevice::rxe(0, ip)])
}

#[test]
fn a_datagram_arrives_behind_its_header_and_can_be_answered() {
    let addresses = ["10.0.0.1", "fd00::7"];
    for address in addresses.map(|text| text.parse().unwrap()) {
        let twin = twin_at(address);
        let pd = context(&twin).alloc_pd().unwrap();
        let (mut one, mut other) = (Post::new(&pd), Post::new(&pd));
        let handle = pd.address_handle(&path_to_itself(pd.context())).unwrap();
        other.receive(7, 100);
        one.send(to(&handle, other.qp.number()), b"hello").unwrap();
        assert_eq!(one.completions()[0].wr_id(), 9);

        let completion = other.received();
        let received = completion.result().unwrap();
        assert_eq!((received.byte_len(), received.datagram_len()), (45, 5));
        assert_eq!(received.source_qp(), one.qp.number());
        assert!(received.has_grh());
        assert_eq!(other.text(5), b"hello");

        let back = pd.context().reply_path(&received, &other.header(), 1);
        let back = back.unwrap();
        assert_eq!((back.gid.to_ip(), back.traffic_class), (address, 32));
        assert_eq!((back.source_gid_index, back.port), (0, 1));
        let answer = other.pd.address_handle(&back).unwrap();
        one.receive(8, 100);
        let sender = received.source_qp();
        other.send(to(&answer, sender), b"hi").unwrap();
        assert_eq!(one.received().result().unwrap().datagram_len(), 2);
        assert_eq!(one.text(2), b"hi");
        drop((one, other, handle, answer, pd));
        twin.assert_clean();
    }
}

#[test]
fn immediate_data_comes_with_a_datagram() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let (mut one, mut other) = (Post::new(&pd), Post::new(&pd));
    let handle = pd.address_handle(&path_to_itself(pd.context())).unwrap();
    other.receive(1, 100);
    let mut batch = one.qp.send_half().batch();
    let destination = to(&handle, other.qp.number());
    batch
        .send_datagram_immediate(1, destination, 0x0102_0304)
        .from(&[])
        .unwrap();
    batch.submit().unwrap();
    let received = other.received();
    let received = received.result().unwrap();
    assert_eq!(
        (received.immediate(), received.datagram_len()),
        (Some(0x0102_0304), 0)
    );
}

#[test]
fn what_nobody_takes_is_sent_all_the_same() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let (mut one, mut other) = (Post::new(&pd), Post::new(&pd));
    let handle = pd.address_handle(&path_to_itself(pd.context())).unwrap();
    let there = to(&handle, other.qp.number());
    // No receive, another key, nobody.
    one.send(there, b"a").unwrap();
    other.receive(1, 100);
    one.send(Destination { qkey: 1, ..there }, b"b").unwrap();
    one.send(
        Destination {
            qp_num: 9999,
            ..there
        },
        b"c",
    )
    .unwrap();
    assert!(one.completions().iter().all(|sent| sent.result().is_ok()));
    assert!(other.completions().is_empty());
    one.send(there, b"d").unwrap();
    assert_eq!(other.text(1), b"d");
}

#[test]
fn a_datagram_longer_than_a_packet_is_refused() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let mut post = Post::new(&pd);
    let max = pd.context().port(1).unwrap().active_mtu.bytes();
    let handle = pd.address_handle(&path_to_itself(pd.context())).unwrap();
    let destination = to(&handle, post.qp.number());
    let length = max as usize;
    let (fits, too_long) = (
        post.buffer.slice(..length).unwrap(),
        post.buffer.slice(..=length).unwrap(),
    );
    let mut batch = post.qp.send_half().batch();
    batch.send_datagram(1, destination).from(&[fits]).unwrap();
    assert_eq!(
        batch.send_datagram(1, destination).from(&[too_long]),
        Err(PostError::DatagramTooLong {
            length: length + 1,
            max
        })
    );
}

#[test]
fn what_a_type_cannot_do_is_refused_before_the_ring_is_touched() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let handle = pd.address_handle(&path_to_itself(pd.context())).unwrap();
    let remote = RemoteAddress {
        address: 0,
        rkey: 0,
    };
    let cq = pd.context().completion_queue(4).build().unwrap();
    let buffer = pd.alloc(8, ALL).unwrap();
    let answer = buffer.slice(..).unwrap();
    let able = [
        (QpType::Rc, [true, true, true, true, true, true, false]),
        (QpType::Uc, [true, true, false, false, false, false, false]),
        (QpType::Ud, [false, false, false, false, false, false, true]),
    ];
    for (qp_type, expected) in able {
        let attr = QpAttr::new(&pd).qp_type(qp_type).send_cq(&cq).recv_cq(&cq);
        let mut qp = pd.create_qp(&attr).unwrap();
        assert_eq!(qp.qp_type(), qp_type);
        let mut batch = qp.send_half().batch();
        let outcomes = [
            batch.send(1).from(&[]),
            batch.write(1, remote).from(&[]),
            batch.read(1, remote).into(&[]),
            batch.compare_swap(1, remote, 0, 1).into(answer),
            batch.fetch_add(1, remote, 1).into(answer),
            batch.atomic_write(1, remote).bytes([0; 8]),
            batch.send_datagram(1, to(&handle, 1)).from(&[]),
        ];
        for (outcome, can) in outcomes.into_iter().zip(expected) {
            let wanted = match can {
                true => Ok(()),
                false => Err(PostError::WrongQpType { qp_type }),
            };
            assert_eq!(outcome, wanted, "{qp_type:?}");
        }
    }
}

#[test]
fn an_address_handle_works_in_its_own_domain_only() {
    let twin = Twin::new();
    let context = context(&twin);
    let (pd, foreign) = (context.alloc_pd().unwrap(), context.alloc_pd().unwrap());
    assert_ne!(pd, foreign);
    assert_eq!(context.default_pd().unwrap(), context.default_pd().unwrap());
    let mut post = Post::new(&pd);
    let handle = foreign.address_handle(&path_to_itself(&context)).unwrap();
    let refused = post.send(to(&handle, post.qp.number()), b"x");
    assert_eq!(refused, Err(PostError::ForeignAddressHandle));
}

#[test]
fn a_way_that_the_device_does_not_have_is_explained() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let to = path_to_itself(pd.context());
    let no_port = Path { port: 2, ..to };
    let no_gid = Path {
        source_gid_index: 9,
        ..to
    };
    for wrong in [no_port, no_gid] {
        let error = pd.address_handle(&wrong).unwrap_err();
        assert!(error.to_string().contains("GID table"), "{error}");
    }
    assert_eq!(twin.census().ahs, 0);
}

#[test]
fn a_handle_without_a_number_is_given_back() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let to = path_to_itself(pd.context());
    twin.tamper(|call, attr, answer| {
        if call.is_write(uverbs::Command::CREATE_AH) && attr == ioctl::UHW_OUT {
            answer.fill(0);
        }
    });
    let error = pd.address_handle(&to).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    drop(pd);
    twin.assert_clean();
}

/// A GID that is in the table twice, for each version of RoCE.
#[test]
fn the_answer_goes_in_packets_like_those_that_came() {
    let address: IpAddr = "fd00::7".parse().unwrap();
    let twin = Twin::with_devices(vec![TwinDevice {
        ips: vec![address; 3],
        ..TwinDevice::rxe(0, address)
    }]);
    let pd = context(&twin).alloc_pd().unwrap();
    let (mut one, mut other) = (Post::new(&pd), Post::new(&pd));
    let handle = pd.address_handle(&path_to_itself(pd.context())).unwrap();
    other.receive(7, 100);
    one.send(to(&handle, other.qp.number()), b"hello").unwrap();
    let completion = other.received();
    let received = completion.result().unwrap();
    let mut header = other.header();

    use ioctl::device::{QUERY_GID_TABLE, query_gid_table};
    let gids = (ioctl::object::DEVICE, QUERY_GID_TABLE);
    twin.tamper(move |call, attr, answer| {
        if call.is_method(gids) && attr == query_gid_table::RESP_ENTRIES {
            // The first entry is of RoCE v1.
            answer[24..28].copy_from_slice(&1u32.to_ne_bytes());
        }
    });
    let index = |header: [u8; GRH_LENGTH]| {
        let path = pd.context().reply_path(&received, &header, 1).unwrap();
        path.source_gid_index
    };
    assert_eq!(index(header), 1);
    const NEXT_HEADER: usize = 6;
    header[NEXT_HEADER] = 0x1b;
    assert_eq!(index(header), 0);
    twin.behave();
    assert_eq!(index(header), 0, "for want of a better one");
}

#[test]
fn a_group_hears_what_is_sent_to_it_until_it_is_left() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let (mut one, mut other) = (Post::new(&pd), Post::new(&pd));
    let handle = pd.address_handle(&path(GROUP)).unwrap();
    for post in [&mut one, &mut other] {
        post.qp.attach_multicast(GROUP, 0).unwrap();
        post.qp.attach_multicast(GROUP, 0).unwrap();
        post.receive(1, 100);
        post.receive(2, 100);
    }
    let group = to(&handle, MULTICAST_QP);
    one.send(group, b"all").unwrap();
    let completion = other.received();
    let error = pd
        .context()
        .reply_path(&completion.result().unwrap(), &other.header(), 1)
        .unwrap_err();
    assert!(error.to_string().contains("239.1.2.3"), "{error}");
    assert_eq!(one.completions().len(), 2, "sent, and received itself");

    assert!(other.qp.detach_multicast(GROUP, 0).unwrap());
    assert!(!other.qp.detach_multicast(GROUP, 0).unwrap());
    one.send(group, b"one").unwrap();
    assert!(other.completions().is_empty());
    drop((one, other, handle, pd));
    twin.assert_clean();
}

#[test]
fn only_groups_are_attached_to_and_only_for_datagrams() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let post = Post::new(&pd);
    let connected = pd
        .create_qp(&QpAttr::new(&pd).send_cq(&post.cq).recv_cq(&post.cq))
        .unwrap();
    twin.forget_calls();
    let nobody = gid_of_ipv4([10, 0, 0, 1]);
    for error in [
        post.qp.attach_multicast(nobody, 0).unwrap_err(),
        connected.attach_multicast(GROUP, 0).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    assert_eq!(twin.calls(), [], "the kernel was asked");
}

#[test]
fn an_attached_queue_pair_leaves_its_groups_before_it_goes() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let (destroyed, dropped) = (Post::new(&pd), Post::new(&pd));
    let groups = [
        GROUP,
        Gid(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 1).octets()),
    ];
    for (post, group) in [&destroyed, &dropped].into_iter().zip([groups, groups]) {
        for gid in group {
            post.qp.attach_multicast(gid, 0).unwrap();
        }
    }
    assert!(destroyed.qp.destroy().unwrap());
    let error = destroyed.qp.attach_multicast(GROUP, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Destroyed);
    // A passing shortage is not the end.
    twin.fail(0, libc::ENOMEM, |call| {
        call.is_write(uverbs::Command::DETACH_MCAST)
    });
    drop((destroyed, dropped, pd));
    twin.assert_clean();
}

#[test]
fn a_group_that_cannot_be_left_keeps_the_queue_pair() {
    let twin = Twin::new();
    let pd = context(&twin).alloc_pd().unwrap();
    let post = Post::new(&pd);
    post.qp.attach_multicast(GROUP, 0).unwrap();
    twin.fail(0, libc::ENOMEM, |call| {
        call.is_write(uverbs::Command::DETACH_MCAST)
    });
    let error = post.qp.destroy().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EBUSY), "{error}");
    assert!(error.to_string().contains("1 multicast group"), "{error}");
    assert!(post.qp.destroy().unwrap());
    let is_destroy = |call: &&Call| call.is_method(DESTROY_QP);
    assert_eq!(twin.calls().iter().filter(is_destroy).count(), 2);
    drop((post, pd));
    twin.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever stands in front of a datagram, the answer is a way from a GID of the port or an
    /// error.
    #[test]
    fn a_header_is_not_trusted(
        mut header: [u8; GRH_LENGTH],
        version in prop::sample::select(vec![0x00u8, 0x45, 0x60, 0x6f]),
        second in prop::sample::select(vec![0x00u8, 0x45, 0x46]),
        names_us: bool,
    ) {
        let twin = Twin::new();
        let context = context(&twin);
        (header[0], header[20]) = (version, second);
        if names_us {
            header[36..].copy_from_slice(&[10, 0, 0, 1]);
        }
        let mut wc = uverbs::Wc {
            opcode: uverbs::WcOpcode::RECV.0,
            wc_flags: uverbs::WcFlags::GRH.bits(),
            ..Default::default()
        };
        let completion = Completion::of_kernel(wc);
        let outcome = context.reply_path(&completion.result().unwrap(), &header, 1);
        match outcome {
            Ok(path) => {
                prop_assert!(names_us && second == 0x45, "{path:?}");
                prop_assert_eq!(path.gid.0[12..].to_vec(), header[32..36].to_vec());
                prop_assert_eq!((path.source_gid_index, path.port), (0, 1));
            }
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::InvalidInput),
        }
        // No entry of another port.
        prop_assert!(context.reply_path(&completion.result().unwrap(), &header, 2).is_err());
        wc.wc_flags = 0;
        let bare = Completion::of_kernel(wc);
        prop_assert!(context.reply_path(&bare.result().unwrap(), &header, 1).is_err());
    }
}

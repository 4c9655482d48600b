//! Memory windows and flushes between two queue pairs.

use rdmacm_kernel_abi::uverbs;

use super::{ALL, End, context, ends};
use crate::error::ErrorKind;
use crate::fastpath::{
    Completion, CompletionStatus, FlushPlacement, Opcode, PostError, RemoteAddress,
};
use crate::sys::twin::{Twin, TwinDevice};
use crate::verbs::mr::Range;
use crate::verbs::{Access, Batch, Buffer, Mr, Mw, MwType, Pd, Qp, QpAttr, QpModify, QpState};

const BINDABLE: Access = Access::LOCAL_WRITE.union(Access::MW_BIND);

impl End {
    /// Opens a window for a part of a region and waits for it.
    fn open(&mut self, window: &mut Mw, region: &Buffer) -> RemoteAddress {
        let mut batch = self.qp.send_half().batch();
        let bind = batch.bind_window(1, window).signaled();
        let opened = bind.to(region, 8..16, Access::REMOTE_WRITE).unwrap();
        batch.submit().unwrap();
        let done = self.completion();
        assert_eq!(done.result().unwrap().opcode(), Opcode::BindWindow);
        opened
    }

    fn write(&mut self, to: RemoteAddress, bytes: &[u8]) -> CompletionStatus {
        let mut batch = self.qp.send_half().batch();
        batch.write(2, to).signaled().inline(bytes).unwrap();
        batch.submit().unwrap();
        self.status()
    }
}

/// Gives an end another queue pair, with a peer, and returns its first and the peer.
fn another(end: &mut End) -> (Qp, End) {
    let attr = QpAttr::new(&end.pd).send_cq(&end.cq).recv_cq(&end.cq);
    let first = std::mem::replace(&mut end.qp, end.pd.create_qp(&attr).unwrap());
    let peer = End::new(&end.context).unwrap();
    end.raise(&peer, QpState::Rts).unwrap();
    peer.raise(end, QpState::Rts).unwrap();
    (first, peer)
}

fn bindable(pd: &Pd) -> Buffer {
    pd.alloc(64, BINDABLE).unwrap()
}

#[test]
fn a_window_opens_a_range_until_it_is_invalidated() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    let opened = other.open(&mut window, &memory);
    assert_eq!(opened.address, memory.remote().address + 8);
    assert_eq!(opened.rkey, window.rkey());
    assert_eq!(one.write(opened, b"12345678"), CompletionStatus::Success);
    assert_eq!(memory.read_vec(8, 8).unwrap(), b"12345678");
    let mut batch = other.qp.send_half().batch();
    batch.invalidate(3, &window).signaled().add().unwrap();
    batch.submit().unwrap();
    let done = other.completion();
    assert_eq!(done.result().unwrap().opcode(), Opcode::LocalInvalidate);
    assert_eq!(one.write(opened, b"x"), CompletionStatus::RemoteAccess);
    drop((one, other, memory, window));
    twin.assert_clean();
}

/// A kernel with rxe does not survive it.
#[test]
fn a_window_that_is_not_open_is_not_closed() {
    let twin = Twin::new();
    let (one, mut other) = ends(&twin);
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    let close = |end: &mut End, window: &Mw| {
        let mut batch = end.qp.send_half().batch();
        batch.invalidate(3, window).signaled().add()?;
        batch.submit()
    };
    let closed = Err(PostError::WindowClosed);
    assert_eq!(close(&mut other, &window), closed);
    for _ in 0..2 {
        other.open(&mut window, &memory);
        assert_eq!(close(&mut other, &window), Ok(()));
        assert_eq!(other.status(), CompletionStatus::Success);
        assert_eq!(close(&mut other, &window), closed);
    }
    // Its bind was never carried out.
    let key = window.rkey();
    let mut batch = other.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window).key_byte(key as u8);
    bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
    drop(batch);
    assert_eq!(close(&mut other, &window), closed);
    // The peer has closed it.
    other.open(&mut window, &memory);
    window.set_rkey(window.rkey()).unwrap();
    assert_eq!(close(&mut other, &window), closed);
    drop((one, other, memory, window));
    twin.assert_clean();
}

#[test]
fn the_peer_says_which_window_it_closed() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    let opened = other.open(&mut window, &memory);
    other.post_receive(7, 16);
    let mut batch = one.qp.send_half().batch();
    let message = batch.send_invalidate(4, opened.rkey).signaled();
    message.inline(b"done").unwrap();
    batch.submit().unwrap();
    let sent = one.completion();
    assert_eq!(sent.result().unwrap().opcode(), Opcode::Send);
    let received = other.completion();
    let received = received.result().unwrap();
    assert_eq!(received.invalidated(), Some(opened.rkey));
    assert_eq!((received.immediate(), received.byte_len()), (None, 4));
    assert_eq!(one.write(opened, b"x"), CompletionStatus::RemoteAccess);
    drop((one, other, memory, window));
    twin.assert_clean();
}

#[test]
fn keys_differ_in_the_last_byte_only() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let memory = bindable(&one.pd);
    let mut window = one.pd.alloc_mw(MwType::Two).unwrap();
    let high = window.rkey() & !0xff;
    window.set_rkey(high | 0xff).unwrap();
    let mut batch = one.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window);
    let wrapped = bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
    assert_eq!(wrapped.rkey, high, "255 is followed by 0");
    let bind = batch.bind_window(1, &mut window).key_byte(0x5a);
    let chosen = bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
    assert_eq!(chosen.rkey, high | 0x5a);
    drop(batch);
    let error = window.set_rkey(high ^ 0x100).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(window.rkey(), high | 0xff);
    drop((one, other, memory, window));
    twin.assert_clean();
}

#[test]
fn binds_that_no_device_takes_leave_batch_and_window_as_they_were() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let pd = &one.pd;
    let foreign_pd = one.context.alloc_pd().unwrap();
    let (memory, plain) = (bindable(pd), pd.alloc(64, ALL).unwrap());
    let readable = pd.alloc(64, Access::MW_BIND).unwrap();
    let foreign = bindable(&foreign_pd);
    let [mut one_type, mut two_type] =
        [MwType::One, MwType::Two].map(|kind| pd.alloc_mw(kind).unwrap());
    let mut foreign_window = foreign_pd.alloc_mw(MwType::Two).unwrap();
    let keys = [one_type.rkey(), two_type.rkey()];
    twin.forget_calls();
    let read = Access::REMOTE_READ;
    let mut batch = one.qp.send_half().batch();
    let to = |batch: &mut Batch<'_>, window: &mut Mw, region: &Buffer, range, access| {
        batch.bind_window(1, window).to(region, range, access)
    };
    let no_windows = to(&mut batch, &mut two_type, &plain, 0..1, read);
    assert_eq!(no_windows, Err(PostError::NoWindowsInRegion));
    for access in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::LOCAL_WRITE,
        BINDABLE,
    ] {
        let refused = to(&mut batch, &mut two_type, &readable, 0..1, access);
        assert_eq!(refused, Err(PostError::WindowAccess), "{access:?}");
    }
    for (offset, length) in [(0, 0), (64, 1), (63, 2), (0, 65)] {
        let refused = to(
            &mut batch,
            &mut one_type,
            &memory,
            offset..offset + length,
            read,
        );
        assert_eq!(refused, Err(PostError::WindowRange { offset, length }));
    }
    let refused = to(&mut batch, &mut two_type, &foreign, 0..1, read);
    assert_eq!(refused, Err(PostError::ForeignWindow));
    let refused = to(&mut batch, &mut foreign_window, &memory, 0..1, read);
    assert_eq!(refused, Err(PostError::ForeignWindow));
    let refused = batch.invalidate(1, &foreign_window).add();
    assert_eq!(refused, Err(PostError::ForeignWindow));
    let refused = batch.invalidate(1, &one_type).add();
    assert_eq!(refused, Err(PostError::WindowOfType1));
    let chosen = batch.bind_window(1, &mut one_type).key_byte(3);
    assert_eq!(
        chosen.to(&memory, 0..1, read),
        Err(PostError::WindowOfType1)
    );
    let refused = batch.bind_window(1, &mut two_type).unbind();
    assert_eq!(refused, Err(PostError::WindowOfType2));
    batch.submit().unwrap();
    assert_eq!(twin.calls(), [], "the kernel was asked");
    assert_eq!([one_type.rkey(), two_type.rkey()], keys);
    drop((one, other, memory, plain, readable, foreign));
    drop((one_type, two_type, foreign_window, foreign_pd));
    twin.assert_clean();
}

#[test]
fn a_queue_pair_takes_the_windows_along_that_are_open_through_it() {
    let twin = Twin::new();
    let (one, mut other) = ends(&twin);
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    other.open(&mut window, &memory);
    other.qp.destroy().unwrap();
    assert_eq!(twin.census().mws, 0);
    let attr = QpAttr::new(&other.pd).send_cq(&other.cq).recv_cq(&other.cq);
    let mut next = other.pd.create_qp(&attr).unwrap();
    let mut batch = next.send_half().batch();
    let refused = batch.invalidate(1, &window).add();
    assert_eq!(refused, Err(PostError::WindowDestroyed));
    let bind = batch.bind_window(1, &mut window);
    let refused = bind.to(&memory, 0..1, Access::REMOTE_READ);
    assert_eq!(refused, Err(PostError::WindowDestroyed));
    drop(batch);
    drop((one, other, memory, window, next));
    twin.assert_clean();
}

#[test]
fn a_window_goes_with_the_queue_pair_that_it_was_last_bound_through() {
    let twin = Twin::new();
    let (one, mut other) = ends(&twin);
    let attr = QpAttr::new(&other.pd).send_cq(&other.cq).recv_cq(&other.cq);
    let mut third = other.pd.create_qp(&attr).unwrap();
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    other.open(&mut window, &memory);
    let mut batch = other.qp.send_half().batch();
    batch.invalidate(3, &window).add().unwrap();
    batch.submit().unwrap();
    let second = another(&mut other);
    let mut batch = other.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window);
    bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
    batch.submit().unwrap();
    // A bind that is refused does not count.
    let mut batch = third.send_half().batch();
    let bind = batch.bind_window(1, &mut window);
    assert!(bind.to(&memory, 0..65, Access::REMOTE_READ).is_err());
    drop(batch);
    third.destroy().unwrap();
    drop((one, second));
    assert_eq!(twin.census().mws, 1);
    other.qp.destroy().unwrap();
    assert_eq!(twin.census().mws, 0);
    drop((memory, window, other, third));
    twin.assert_clean();
}

/// What it was bound to, and through, is what the kernel still has to be asked to let go of.
#[test]
fn a_batch_that_never_starts_leaves_windows_as_they_were() {
    type GiveUp = fn(Batch<'_>, bool);
    let ways: [GiveUp; 3] = [
        |batch, _| drop(batch),
        |batch, is_connected| match is_connected {
            true => drop(batch),
            false => assert_eq!(batch.submit(), Err(PostError::NotConnected)),
        },
        |batch, _| std::mem::forget(batch),
    ];
    for give_up in ways {
        let twin = Twin::new();
        let (mut one, mut other) = ends(&twin);
        let attr = QpAttr::new(&other.pd).send_cq(&other.cq).recv_cq(&other.cq);
        let mut second = other.pd.create_qp(&attr).unwrap();
        let memory = bindable(&other.pd);
        let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
        let opened = other.open(&mut window, &memory);
        drop(memory);
        for (qp, is_connected) in [(&mut second, false), (&mut other.qp, true)] {
            let mut batch = qp.send_half().batch();
            for _ in 0..2 {
                let memory = bindable(&other.pd);
                let bind = batch.bind_window(1, &mut window);
                bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
                batch.invalidate(2, &window).add().unwrap();
            }
            give_up(batch, is_connected);
            // One that was forgotten is noticed when the next one changes windows.
            let mut next = qp.send_half().batch();
            let mut closed = other.pd.alloc_mw(MwType::Two).unwrap();
            let refused = next.invalidate(3, &closed).add();
            assert_eq!(refused, Err(PostError::WindowClosed));
            let key = closed.rkey();
            closed.set_rkey(key).unwrap();
            drop(next);
            assert_eq!(window.rkey(), opened.rkey);
        }
        assert_eq!(one.write(opened, b"x"), CompletionStatus::Success);
        drop(second);
        assert_eq!(twin.census().mws, 1, "it was not bound through that one");
        let mut batch = other.qp.send_half().batch();
        batch.invalidate(3, &window).signaled().add().unwrap();
        batch.submit().unwrap();
        assert_eq!(other.status(), CompletionStatus::Success);
        assert_eq!(one.write(opened, b"x"), CompletionStatus::RemoteAccess);
        drop((one, other, window));
        twin.assert_clean();
    }
}

#[test]
fn a_window_goes_with_either_queue_pair_while_its_bind_has_not_started() {
    let twin = Twin::new();
    let (one, mut other) = ends(&twin);
    let attr = QpAttr::new(&other.pd).send_cq(&other.cq).recv_cq(&other.cq);
    let mut second = other.pd.create_qp(&attr).unwrap();
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    other.open(&mut window, &memory);
    let mut batch = second.send_half().batch();
    let bind = batch.bind_window(1, &mut window);
    bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
    // The twin complains where a window is left that is open through it.
    other.qp.destroy().unwrap();
    drop(batch);
    assert_eq!(twin.census().mws, 0);
    drop((one, other, memory, window, second));
    twin.assert_clean();
}

/// Where the bind failed, the request would reach the kernel through another queue pair.
#[test]
fn a_window_is_closed_through_the_queue_pair_that_opened_it() {
    let twin = Twin::new();
    let (one, mut other) = ends(&twin);
    let memory = bindable(&other.pd);
    let mut window = other.pd.alloc_mw(MwType::Two).unwrap();
    let key = window.rkey();
    window.set_rkey(key ^ 1).unwrap();
    let mut batch = other.qp.send_half().batch();
    let bind = batch.bind_window(1, &mut window).key_byte(key as u8);
    bind.to(&memory, 0..1, Access::REMOTE_READ).unwrap();
    batch.submit().unwrap();
    assert_eq!(other.status(), CompletionStatus::MemoryWindowBind);
    other.qp.modify(&QpModify::to(QpState::Reset)).unwrap();
    other.raise(&one, QpState::Rts).unwrap();
    let close = |end: &mut End, window: &Mw| {
        let mut batch = end.qp.send_half().batch();
        batch.invalidate(2, window).signaled().add()?;
        batch.submit()
    };
    let closed = Err(PostError::WindowClosed);
    assert_eq!(close(&mut other, &window), closed, "it was reset");
    let failed = another(&mut other);
    assert_eq!(close(&mut other, &window), closed);
    let opened = other.open(&mut window, &memory);
    assert_eq!(opened.rkey, window.rkey());
    assert_eq!(close(&mut other, &window), Ok(()));
    drop((one, other, failed, memory, window));
    twin.assert_clean();
}

#[test]
fn a_region_stays_while_a_window_is_bound_to_it() {
    let twin = Twin::new();
    let (mut one, mut other) = ends(&twin);
    for mw_type in [MwType::One, MwType::Two] {
        let memory = bindable(&other.pd);
        let mut window = other.pd.alloc_mw(mw_type).unwrap();
        let opened = other.open(&mut window, &memory);
        drop(memory);
        // The twin complains where memory is unmapped that is registered.
        assert_eq!(one.write(opened, b"x"), CompletionStatus::Success);
        assert_eq!(twin.census().mrs, 3);
        window.dealloc().unwrap();
        assert_eq!(twin.census().mrs, 2);
    }
    let mut window = other.pd.alloc_mw(MwType::One).unwrap();
    for _ in 0..4 {
        let memory = bindable(&other.pd);
        other.open(&mut window, &memory);
    }
    assert_eq!(twin.census().mrs, 4, "those of the last two binds");
    drop((one, other, window));
    twin.assert_clean();
}

#[test]
fn a_region_with_windows_says_why_it_cannot_go() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let mut window = one.pd.alloc_mw(MwType::One).unwrap();
    let address = one.buffer.remote().address;
    let region = Mr::register(&one.pd, Range::of(address, 64), BINDABLE, None).unwrap();
    let mut batch = one.qp.send_half().batch();
    batch
        .bind_window(1, &mut window)
        .to(&region, 0..64, Access::REMOTE_READ)
        .unwrap();
    batch.submit().unwrap();
    let error = region.deregister().unwrap_err();
    assert_eq!(error.errno(), Some(libc::EINVAL));
    assert!(error.to_string().contains("memory windows"), "{error}");
    drop((window, one, other));
    twin.assert_clean();
}

#[test]
fn a_device_without_windows_is_not_asked_for_one() {
    let device = TwinDevice {
        capabilities: uverbs::DeviceCapFlags::MEM_WINDOW_TYPE_2A,
        ..TwinDevice::rxe(0, std::net::Ipv4Addr::LOCALHOST.into())
    };
    let twin = Twin::with_devices(vec![device]);
    let pd = context(&twin).alloc_pd().unwrap();
    pd.alloc_mw(MwType::Two).unwrap();
    twin.forget_calls();
    let error = pd.alloc_mw(MwType::One).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported, "{error}");
    assert_eq!(twin.calls(), []);
    drop(pd);
    twin.assert_clean();
}

#[test]
fn flushes_need_the_access_and_answer() {
    let twin = Twin::new();
    let (mut one, other) = ends(&twin);
    let memory = other.pd.alloc(64, ALL | Access::FLUSH_GLOBAL).unwrap();
    let mut batch = one.qp.send_half().batch();
    let global = FlushPlacement::Global;
    batch
        .flush(1, memory.remote(), global)
        .signaled()
        .range(64)
        .unwrap();
    batch.flush(2, memory.remote(), global).region().unwrap();
    batch
        .flush(3, memory.remote(), FlushPlacement::Persistent)
        .region()
        .unwrap();
    batch.submit().unwrap();
    let mut entries = [Completion::default(); 4];
    let done = one.cq.poll(&mut entries);
    assert_eq!(done.len(), 2);
    assert_eq!(done[0].result().unwrap().opcode(), Opcode::Flush);
    let failure = done[1].result().unwrap_err();
    assert_eq!(
        (failure.wr_id, failure.status),
        (3, CompletionStatus::RemoteAccess)
    );
    drop((one, other, memory));
    twin.assert_clean();
}

#[test]
fn a_device_without_flushes_is_not_given_one() {
    let device = TwinDevice {
        capabilities: uverbs::DeviceCapFlags::FLUSH_GLOBAL,
        ..TwinDevice::rxe(0, std::net::Ipv4Addr::LOCALHOST.into())
    };
    let twin = Twin::with_devices(vec![device]);
    let (mut one, other) = ends(&twin);
    let at = other.buffer.remote();
    let mut batch = one.qp.send_half().batch();
    batch.flush(1, at, FlushPlacement::Global).range(1).unwrap();
    for placement in [
        FlushPlacement::Persistent,
        FlushPlacement::GlobalAndPersistent,
    ] {
        let refused = batch.flush(1, at, placement).range(1);
        assert_eq!(refused, Err(PostError::NoFlush), "{placement:?}");
    }
}

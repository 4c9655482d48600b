//! Devices that go under objects of every kind, come back, and lose their network for a while.

use std::thread;

use rdmacm::{AsyncEvent, Completion, ErrorKind, QpState, Result};

use super::async_events::set_link;
use super::one_of_each::OneOfEach;
use crate::bad_situations::second_device::SecondDevice;
use crate::endurance::removal::Removal;
use crate::environment::{self, kernel};
use crate::harness::{Outcome, Test, TestResult, tests};
use crate::pair::{PATIENCE, Pair, Plan, QUIET, assert_holds};

/// The tests of this module.
pub fn tests() -> Vec<Test> {
    tests![
        all_can_be_let_go_of_while_the_device_goes,
        all_say_that_the_device_is_gone,
        waits_end_with_the_device,
        a_device_that_is_made_again_is_another,
        traffic_goes_on_when_the_network_is_back,
    ]
}

fn on_second(device: &SecondDevice) -> Result<OneOfEach> {
    OneOfEach::new(&device.open()?, environment::plain_addr())
}

fn on_first() -> Result<OneOfEach> {
    OneOfEach::new(&environment::context(), environment::addr())
}

/// Kernels before 7 let a device go when the last context of it is closed, and until then nobody
/// notices anything.
fn waits_for_contexts() -> bool {
    kernel() < (7, 0)
}

fn is_listed() -> bool {
    let devices = rdmacm::devices().expect("the devices can be listed");
    devices
        .iter()
        .any(|device| device.name() == SecondDevice::name())
}

/// Whether all are destroyed one by one or dropped in any order.
fn all_can_be_let_go_of_while_the_device_goes() -> TestResult {
    let mut other = on_first()?;
    for is_explicit in [true, false] {
        let device = SecondDevice::add()?;
        let mut all = on_second(&device)?;
        all.exercise(1)?;
        let removal = Removal::of(device);
        thread::sleep(QUIET);
        if waits_for_contexts() {
            all.exercise(2)?;
        }
        other.exercise(3)?;
        match is_explicit {
            true => {
                for (name, outcome) in all.destroy() {
                    assert_eq!(outcome, Ok(()), "{name}");
                }
            }
            false => drop(all),
        }
        removal.wait()?;
        assert!(!is_listed());
        other.exercise(4)?;
    }
    Ok(Outcome::Pass)
}

fn all_say_that_the_device_is_gone() -> TestResult {
    if waits_for_contexts() {
        return Ok(Outcome::Skip(
            "rxe of this kernel goes on for those who have it open".into(),
        ));
    }
    let device = SecondDevice::add()?;
    let mut all = on_second(&device)?;
    Removal::of(device).wait()?;
    assert_eq!(
        all.events.next_event(Some(PATIENCE))?,
        AsyncEvent::DeviceFatal
    );
    let complaints: Vec<String> = all
        .ask()
        .into_iter()
        .filter(|(name, answer)| !is_as_it_should_be(name, answer))
        .map(|(name, answer)| format!("{name}: {answer:?}"))
        .collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    for (name, outcome) in all.destroy() {
        assert_eq!(outcome, Ok(()), "{name}");
    }
    Ok(Outcome::Pass)
}

/// Everything that asks the kernel is told. Receives are put into memory, which is still there, and
/// after the news of the device's end its stream is silent.
fn is_as_it_should_be(name: &str, answer: &Result<()>) -> bool {
    let expected = match name {
        "recv" | "srq_recv" | "try_next_async_event" => Ok(()),
        "next_async_event" => Err(ErrorKind::TimedOut),
        _ => Err(ErrorKind::DeviceRemoved),
    };
    answer.as_ref().map(drop).map_err(|error| error.kind()) == expected
}

/// Whoever waits for a completion or an event is told.
fn waits_end_with_the_device() -> TestResult {
    if waits_for_contexts() {
        return Ok(Outcome::Skip(
            "rxe of this kernel goes on for those who have it open".into(),
        ));
    }
    let device = SecondDevice::add()?;
    let mut all = on_second(&device)?;
    let channel = device.open()?.completion_channel()?;
    let (cq, events) = (&mut all.cq, &all.events);
    let removal = thread::scope(|scope| {
        let completion = scope.spawn(|| {
            let mut entry = [Completion::default()];
            cq.wait(&mut entry, Some(PATIENCE)).map(drop)
        });
        let event = scope.spawn(|| channel.next_event(Some(PATIENCE)).map(drop));
        let asynchronous = scope.spawn(|| events.next_event(Some(PATIENCE)));
        thread::sleep(QUIET);
        let removal = Removal::of(device);
        let told = asynchronous.join().expect("no thread panics");
        assert_eq!(told, Ok(AsyncEvent::DeviceFatal));
        for wait in [completion, event] {
            let error = wait.join().expect("no thread panics").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeviceRemoved, "{error}");
        }
        removal
    });
    drop((all, channel));
    removal.wait()
}

/// It has the name, the GUID and the addresses of the one before.
fn a_device_that_is_made_again_is_another() -> TestResult {
    let device = SecondDevice::add()?;
    let mut old = on_second(&device)?;
    let (index, guid) = {
        let known = old.context.device();
        (known.index(), known.node_guid())
    };
    old.exercise(1)?;
    let removal = Removal::of(device);
    let kept = match waits_for_contexts() {
        true => {
            drop(old);
            None
        }
        false => Some(old),
    };
    removal.wait()?;

    let device = SecondDevice::add()?;
    let mut new = on_second(&device)?;
    assert_eq!(new.context.device().node_guid(), guid);
    assert_ne!(new.context.device().index(), index);
    new.exercise(2)?;
    if let Some(old) = kept {
        assert!(!old.context.same_as(&new.context));
        let error = old.context.port(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeviceRemoved);
        drop(old);
        new.exercise(3)?;
    }
    drop(new);
    Ok(Outcome::Pass)
}

/// Who was silent meanwhile does not notice. A request that is posted while the network is away finds
/// no way to the peer: it fails at once and takes its queue pair along. The others go on when the
/// network is back.
fn traffic_goes_on_when_the_network_is_back() -> TestResult {
    let device = SecondDevice::add()?;
    let (mut all, mut other) = (on_second(&device)?, on_first()?);
    let plan = Plan {
        address: (environment::plain_addr(), 0).into(),
        ..Plan::default()
    };
    let mut pair = plan.connect()?;
    for seed in 0..3 {
        all.exercise(seed)?;
        write(&mut pair)?;
        with_link_down(|| other.exercise(seed))?;
        all.exercise(seed + 10)?;
        write(&mut pair)?;
    }

    let failed = with_link_down(|| all.exercise(20)).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::WorkFailed, "{failed}");
    let queues = [&all.near, &all.far, &all.datagrams];
    let states = queues.map(|qp| qp.query_state().expect("it is there"));
    assert_eq!(states, [QpState::Error, QpState::Rts, QpState::Rts]);
    all.send_datagram()?;
    // The way back is to connect again.
    on_second(&device)?.exercise(30)?;
    write(&mut plan.connect()?)?;
    drop((all, pair));
    Ok(Outcome::Pass)
}

/// Runs this while the second device's network is down.
fn with_link_down<T>(during: impl FnOnce() -> Result<T>) -> Result<T> {
    set_link(SecondDevice::INTERFACE, "down").expect("the link goes down");
    let outcome = during();
    set_link(SecondDevice::INTERFACE, "up").expect("the link comes up");
    outcome
}

fn write(pair: &mut Pair) -> Result<()> {
    let target = pair.server.buffer(8)?;
    let source = pair.client.buffer_of(b"through!")?;
    let segment = source.slice(..)?;
    pair.client
        .post(|batch| batch.write(1, target.remote()).signaled().from(&[segment]))?;
    pair.client.sent()?.result()?;
    assert_holds(&target, 0, b"through!");
    Ok(())
}

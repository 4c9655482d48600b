//! What goes to the running kernel and how its answers are read, as far as no device is needed.

use std::io::{Read, Write};
use std::os::fd::{AsFd, IntoRawFd};

use proptest::prelude::*;
use rdmacm_kernel_abi::netlink::{NLMSG_DONE, NLMSG_ERROR, NlMsgHdr, NlmFlags};

use super::*;

/// A netlink message that counts itself.
fn message(kind: u16, flags: NlmFlags, payload: &[u8]) -> Vec<u8> {
    let header = NlMsgHdr {
        nlmsg_len: (size_of::<NlMsgHdr>() + payload.len()) as u32,
        nlmsg_type: kind,
        nlmsg_flags: flags.bits(),
        ..Default::default()
    };
    let mut message = [header.as_bytes(), payload].concat();
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

/// The payloads in a datagram, and how many requests it answers.
fn read(datagram: &[u8]) -> io::Result<(Vec<Vec<u8>>, usize)> {
    let mut payloads = Vec::new();
    let answered = each_netlink_message(datagram, &mut |_, payload| payloads.push(payload.into()))?;
    Ok((payloads, answered))
}

#[test]
fn answers_are_counted() {
    let single = message(0x1401, NlmFlags::empty(), b"one");
    let many = message(0x1401, NlmFlags::MULTI, b"many");
    let done = message(NLMSG_DONE, NlmFlags::MULTI, &[0; 4]);
    let acknowledged = message(NLMSG_ERROR, NlmFlags::empty(), &[0; 20]);
    assert_eq!(read(&single).unwrap(), (vec![b"one".to_vec()], 1));
    assert_eq!(read(&many).unwrap(), (vec![b"many".to_vec()], 0));
    let dump = [&many[..], &many, &done].concat();
    assert_eq!(read(&dump).unwrap(), (vec![b"many".to_vec(); 2], 1));
    assert_eq!(read(&[single, acknowledged].concat()).unwrap().1, 2);
    assert_eq!(read(&[]).unwrap(), (vec![], 0));
}

#[test]
fn a_refusal_is_its_errno() {
    for (number, errno) in [(-22i32, 22), (i32::MIN, i32::MAX)] {
        let refusal = message(NLMSG_ERROR, NlmFlags::empty(), &number.to_ne_bytes());
        assert_eq!(read(&refusal).unwrap_err().raw_os_error(), Some(errno));
    }
}

#[test]
fn messages_that_miscount_themselves_are_malformed() {
    let whole = message(0x1401, NlmFlags::empty(), b"payload");
    for length in [0u32, 1, 15, 17 + 7, u32::MAX, u32::MAX - 2] {
        let mut wrong = whole.clone();
        wrong[..4].copy_from_slice(&length.to_ne_bytes());
        let outcome = read(&wrong);
        let is_malformed = outcome.is_err_and(|e| e.kind() == io::ErrorKind::InvalidData);
        assert_eq!(is_malformed, length != 24, "{length}");
    }
    for length in 1..size_of::<NlMsgHdr>() {
        assert!(read(&whole[..length]).is_err());
    }
    assert!(read(&message(NLMSG_ERROR, NlmFlags::empty(), &[1])).is_err());
}

/// Fewer cases under Miri, which is slow.
fn config() -> ProptestConfig {
    let cases = if cfg!(miri) { 8 } else { 256 };
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_datagram_is_read_for_ever(datagram in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&datagram);
    }
}

#[test]
fn short_inputs_travel_inside_their_attribute() {
    let long = [7; 9];
    let mut room = [0; 3];
    let attr = |value| encode_attr(&mut Attr::new(5, value));
    let inline = attr(Value::In(&[1, 2, 3]));
    assert_eq!((inline.attr_id, inline.len), (5, 3));
    assert_eq!(inline.data.to_ne_bytes(), [1, 2, 3, 0, 0, 0, 0, 0]);
    assert_eq!(attr(Value::In(&[])).len, 0);
    let pointed = attr(Value::In(&long));
    assert_eq!((pointed.len, pointed.data), (9, long.as_ptr() as u64));
    let address = room.as_ptr() as u64;
    let answered = attr(Value::Out(&mut room));
    assert_eq!((answered.len, answered.data), (3, address));
    let handle = attr(Value::Handle(9));
    assert_eq!((handle.len, handle.data), (0, 9));
}

#[test]
fn the_header_counts_the_attributes() {
    let mut handle = 0;
    let mut attrs = [
        Attr::new(0, Value::NewHandle(&mut handle)),
        Attr::new(1, Value::Handle(3)),
    ];
    let mut command = IoctlCommand {
        object: 4,
        method: 1,
        driver_id: 14,
        attrs: &mut attrs,
    };
    let mut packet = IoctlPacket::encode(&mut command);
    let header = packet.header;
    assert_eq!((header.length, header.num_attrs), (24 + 2 * 16, 2));
    assert_eq!(
        (header.object_id, header.method_id, header.driver_id),
        (4, 1, 14)
    );
    packet.attrs[0].data = 77;
    packet.decode(&mut attrs).unwrap();
    assert_eq!(handle, 77);
}

#[test]
fn addresses_are_put_where_the_command_says() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut request = [1; 32];
    let mut response = [0; 4];
    let input = [0; 8];
    let (to, from) = (response.as_ptr() as u64, input.as_ptr() as u64);
    let command = WriteCommand {
        request: &mut request,
        response: Some((8, &mut response)),
        indirect: Some((24, &input)),
        new_fd: None,
    };
    Linux.write_command(writer.as_fd(), command).unwrap();
    let mut written = [0; 32];
    reader.read_exact(&mut written).unwrap();
    assert_eq!(written[..8], [1; 8]);
    assert_eq!(written[8..16], to.to_ne_bytes());
    assert_eq!(written[16..24], [1; 8]);
    assert_eq!(written[24..], from.to_ne_bytes());
}

/// Writes a command that makes a descriptor, whose number the kernel puts behind the first four of
/// these bytes.
fn write_for_descriptor(answer: &mut [u8]) -> io::Result<Option<OwnedFd>> {
    let (_reader, writer) = io::pipe()?;
    let mut fd = None;
    let command = WriteCommand {
        request: &mut [0; 16],
        response: Some((8, answer)),
        indirect: None,
        new_fd: Some((4, &mut fd)),
    };
    Linux.write_command(writer.as_fd(), command)?;
    Ok(fd)
}

#[test]
fn a_descriptor_that_a_written_command_makes_is_taken_over() {
    let (reader, mut writer) = io::pipe().unwrap();
    let number = reader.into_raw_fd() as u32;
    let mut answer = [0; 8];
    answer[4..].copy_from_slice(&number.to_ne_bytes());
    let fd = write_for_descriptor(&mut answer).unwrap().unwrap();
    assert_eq!(fd.as_raw_fd() as u32, number);
    drop(fd);
    let closed = writer.write_all(&[1]).unwrap_err();
    assert_eq!(closed.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn what_can_be_no_descriptor_is_an_error() {
    for answer in [&mut [0xff; 8][..], &mut [0; 7], &mut [0; 4]] {
        let error = write_for_descriptor(answer).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    }
}

#[test]
fn a_wait_never_ends_before_its_time() {
    let millis = |timeout| i32::from(poll_timeout(timeout));
    assert_eq!(millis(None), -1);
    assert_eq!(millis(Some(Duration::ZERO)), 0);
    assert_eq!(millis(Some(Duration::from_nanos(1))), 1);
    assert_eq!(millis(Some(Duration::from_micros(1001))), 2);
    assert_eq!(millis(Some(Duration::MAX)), i32::MAX);
}

#[test]
fn fresh_memory_is_zeroed_and_given_back() {
    let address = Linux.map_memory(8192).unwrap();
    // SAFETY: the mapping has 8192 bytes, zeroed, and nobody else has it.
    let bytes = unsafe { address.cast::<[u8; 8192]>().as_ref() };
    assert!(bytes.iter().all(|byte| *byte == 0));
    // SAFETY: the whole mapping, not used any more.
    unsafe { Linux.unmap(address, 8192) };
    assert_eq!(
        Linux.map_memory(0).unwrap_err().raw_os_error(),
        Some(libc::EINVAL)
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no O_NONBLOCK")]
fn what_is_no_character_device_has_no_number() {
    let (reader, _writer) = io::pipe().unwrap();
    assert_eq!(Linux.device_number(reader.as_fd()).unwrap(), None);
    let null = Linux.open(Path::new("/dev/null")).unwrap();
    assert_eq!(
        Linux.device_number(null.as_fd()).unwrap(),
        Some(libc::makedev(1, 3))
    );
}

#[test]
fn a_short_write_is_an_error() {
    let (mut reader, writer) = io::pipe().unwrap();
    let room = 64 << 10;
    Linux.set_nonblocking(writer.as_fd()).unwrap();
    (&writer).write_all(&vec![0; room - 4096]).unwrap();
    let mut request = vec![1; 2 * 4096];
    let command = WriteCommand {
        request: &mut request,
        response: None,
        indirect: None,
        new_fd: None,
    };
    let error = Linux.write_command(writer.as_fd(), command).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODATA));
    drop(writer);
    assert_eq!(io::copy(&mut reader, &mut io::sink()).unwrap(), room as u64);
}

#[test]
fn an_errno_that_nix_does_not_know_keeps_its_number() {
    for number in [libc::EINVAL, 524] {
        Errno::set_raw(number);
        let error = with_any_errno(Errno::last());
        assert_eq!(error.raw_os_error(), Some(number));
    }
}

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rdmacm::fuzzing::datagram_headers(bytes));

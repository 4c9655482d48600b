#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rdmacm::fuzzing::path_service(bytes));

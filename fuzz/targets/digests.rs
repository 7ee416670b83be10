//! Different contents have different digests and hashes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::digests(input));

//! Pod templates differ if more than what is ours differs.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::templates(input));

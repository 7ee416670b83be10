//! Any bytes are a review that can be answered, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::reviews(input));

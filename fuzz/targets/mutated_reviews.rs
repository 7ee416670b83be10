//! Reviews with some changes are answered with a patch that applies.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::mutated_reviews(input));

//! The loop's patch applies to the workload that it was made from alone.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::patches(input));

//! Every use of a config object in a pod spec is found.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::discovery(input));

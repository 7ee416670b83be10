//! Pods lack what keeps a kubelet from starting them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::needs(input));

//! All names of pinned ConfigMaps in a pod are replaced, or none.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::pinned_pods(input));

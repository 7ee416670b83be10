//! A workload is read the same whether it is built or not.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_reloader_fuzz::workloads(input));

//! Compares the weight of workloads with the memory they really take, in a process of their own.

use std::fmt::Write;
use std::sync::{LazyLock, Mutex, PoisonError};

use peak_alloc::PeakAlloc;
use pod_reloader_core::annotations::CONFIG_HASH;
use pod_reloader_core::index::Index;
use pod_reloader_core::kind::WorkloadKind;
use pod_reloader_core::name::Name;
use pod_reloader_core::object::{Object, WorkloadObject};
use pod_reloader_core::workload::{Reading, Workload};
use serde_json::{Value, json};

/// The number of workloads of which the memory is counted: three fifths of a table of 8,192.
const COUNT: usize = 5_000;
/// The memory that an ordinary workload may take in the index, in bytes. It takes 873, so one more copy of a short name
/// is too much: 32 bytes with its counts.
const ORDINARY: usize = 890;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// All workloads share it, as in the operator.
static READING: LazyLock<Reading> = LazyLock::new(Reading::default);

/// Held while memory is measured: the memory of all threads is.
static ALONE: Mutex<()> = Mutex::new(());

/// Each lists a Secret of its own, and a ConfigMap that all of them list and use.
#[test]
fn an_ordinary_workload_takes_no_more_memory_in_the_index_than_it_should() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ordinary = |number: usize| {
        let secret = json!({"pod-reloader.cs.sap.com/secrets": format!("secret-{number:05}")});
        deployment(number, "common", secret)
    };
    let mut index = Index::default();
    // What is made only once does not count.
    index.apply(ordinary(COUNT));
    let before = MEMORY.current_usage();
    for number in 0..COUNT {
        index.apply(ordinary(number));
    }
    let each = (MEMORY.current_usage() - before) / COUNT;
    println!("an ordinary workload takes {each} bytes");
    assert_eq!(index.referenced(), (COUNT + 2, 2 * COUNT + 2));
    // As in `measure`: memory freed here would be reused there.
    std::mem::forget(index);
    assert!(each <= ORDINARY, "{each} bytes");
}

/// The index alone must take less than the weight: the rest is for the other tables of the loop.
#[test]
fn workloads_take_no_more_memory_than_they_weigh() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let distinct = |number: usize| deployment(number, &names(number, 256, ""), json!({}));
    measure("256 names that nobody else lists", 75, distinct);
    let common = |number: usize| deployment(number, "common,other", json!({}));
    measure("two names that all list", 5_000, common);
    let keys =
        |number: usize| deployment(number, &names(number, 20, "[log.level,mode]"), json!({}));
    measure("names with keys", 500, keys);
    let wrong = |number: usize| deployment(number, &"/,".repeat(100), json!({}));
    measure("what is no name", 1_000, wrong);
    let large = json!({"pod-reloader.cs.sap.com/baseline": "<".repeat(200_000)});
    let large = |number: usize| deployment(number, "common", large.clone());
    measure("a baseline of 200 kB", 50, large);
}

#[test]
fn five_thousand_ordinary_deployments_fit_in_one_namespace() {
    let web = deployment(1, "web-config,web-features,common", json!({}));
    let share = 32 << 20;
    assert!(5_000 * web.weight() <= share, "{}", web.weight());
}

fn measure(what: &str, count: usize, workload: impl Fn(usize) -> Workload) {
    let mut index = Index::default();
    let before = resident();
    for number in 0..count {
        index.apply(workload(number));
    }
    let grown = resident().saturating_sub(before);
    let weight = index.weight(&Name::parse("ns").expect("it is a name"));
    let (_, references) = index.referenced();
    println!(
        "{what}: {count} workloads take {grown} bytes and weigh {weight}, {} and {} for each of {references} references",
        grown / references.max(1),
        weight / references.max(1)
    );
    // Memory freed here would be reused by the next workloads.
    std::mem::forget(index);
    // Large texts take whole pages.
    assert!(
        grown <= weight + weight / 8,
        "{what}: {grown} bytes, and they weigh {weight}"
    );
    assert!(
        weight <= 12 * grown,
        "{what}: {grown} bytes, and they weigh {weight}"
    );
}

/// Returns a list of the names of `count` ConfigMaps, each followed by `keys`.
fn names(number: usize, count: usize, keys: &str) -> String {
    (0..count).fold(String::new(), |mut list, name| {
        let _ = write!(list, "config-{number:05}-{name:03}{keys},");
        list
    })
}

fn deployment(number: usize, config_maps: &str, annotations: Value) -> Workload {
    let mut object = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": format!("web-{number:05}"),
            "namespace": "ns",
            "uid": "0b5c2b6c-3ffb-4a54-8a4e-2b5b3f0f5d0a",
            "annotations": annotations,
        },
        "spec": {"template": {
            "metadata": {"annotations": {(CONFIG_HASH): format!("v1.dcdaaec6.{number:064}")}},
            "spec": {"containers": [{"name": "web", "envFrom": [
                {"configMapRef": {"name": "common"}},
            ]}]},
        }},
    });
    object["metadata"]["annotations"]["pod-reloader.cs.sap.com/configmaps"] = json!(config_maps);
    let object: WorkloadObject = serde_json::from_value(object).expect("it is a Deployment");
    object
        .into_workload(
            WorkloadKind::DEPLOYMENT,
            &READING,
            &pod_reloader_core::annotations::Inherited::default(),
        )
        .expect("its namespace is a name")
}

/// Returns the memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("this is Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<usize>().ok());
    kib.expect("the status of a process has its VmRSS in kB") << 10
}

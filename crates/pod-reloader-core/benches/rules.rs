//! Measures how long the rules take: `make bench-rules`.

mod shared;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pod_reloader_core::annotations::CONFIG_MAPS;
use pod_reloader_core::decision::{FirstStamp, decide};
use pod_reloader_core::digest::{Contents, Objects};
use pod_reloader_core::index::Index;
use pod_reloader_core::patch::{Stamp, stamp};
use pod_reloader_core::reference::ConfigKind;
use pod_reloader_core::review::Request;
use pod_reloader_core::workload::Workload;
use shared::{inputs, paths};

criterion_group!(
    rules, reviews, lists, objects, hashes, decisions, restarts, indexes
);
criterion_main!(rules);

fn reviews(c: &mut Criterion) {
    let review = inputs::review_that_keeps();
    let (scope, keys) = (inputs::scope(), inputs::keys());
    let mut group = c.benchmark_group("review of 8 KB");
    group.throughput(Throughput::Bytes(review.len() as u64));
    group.bench_function("parse", |b| {
        b.iter(|| Request::parse(black_box(&review)).is_ok());
    });
    group.bench_function("answer that keeps", |b| {
        b.iter(|| paths::admission(black_box(&review), &scope, &keys));
    });
    let review = inputs::review_that_reads();
    let objects = inputs::objects("green");
    group.bench_function("answer that reads", |b| {
        b.iter(|| paths::admission_read(black_box(&review), &objects, &scope, &keys));
    });
}

fn lists(c: &mut Criterion) {
    let hundred = (0..100)
        .map(|n| format!("config-{n}, "))
        .collect::<String>();
    let mut group = c.benchmark_group("a workload that lists");
    for (name, config_maps) in [("2", "web-config"), ("101", &hundred)] {
        let json = inputs::stamped("").replace("web-config", config_maps);
        group.bench_function(name, |b| b.iter(|| inputs::workload(black_box(&json))));
    }
}

fn objects(c: &mut Criterion) {
    let mut group = c.benchmark_group("digest of a Secret");
    for (name, bytes) in [("4 KiB", 4 << 10), ("1 MiB", 1 << 20)] {
        let secret = inputs::secret(bytes);
        group.throughput(Throughput::Bytes(secret.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| inputs::parsed(black_box(&secret)).is_ok());
        });
    }
}

fn hashes(c: &mut Criterion) {
    let keys = inputs::keys();
    let present = inputs::present(&inputs::secret(4 << 10));
    let mut group = c.benchmark_group("config hash over objects");
    for count in [1, 20] {
        let objects: Objects = (0..count)
            .map(|n| inputs::reference(ConfigKind::Secret, &format!("secret-{n}")))
            .map(|reference| (reference, present.clone()))
            .collect();
        group.bench_function(count.to_string(), |b| {
            b.iter(|| keys.hash(&Contents::whole(black_box(&objects))).to_string());
        });
    }
}

fn decisions(c: &mut Criterion) {
    let keys = inputs::keys();
    let hash = inputs::config_hash("blue");
    let workload = inputs::workload(&inputs::stamped(&hash));
    let mut group = c.benchmark_group("decide");
    for (name, color) in [("keep", "blue"), ("set", "green")] {
        let objects: Objects = inputs::objects(color)
            .into_iter()
            .map(|(reference, json)| (reference, inputs::present(&json)))
            .collect();
        group.bench_function(name, |b| {
            b.iter(|| decide(&workload, black_box(&objects), &keys, FirstStamp::Rollout));
        });
    }
    group.finish();
    c.bench_function("patch, as JSON", |b| {
        b.iter(|| serde_json::to_vec(&stamp(black_box(&workload), &Stamp::of(&hash))).is_ok());
    });
}

fn restarts(c: &mut Criterion) {
    let keys = inputs::keys();
    let objects = inputs::objects("green");
    let before = inputs::workload(&inputs::stamped(&inputs::config_hash("blue")));
    let after = inputs::stamped(&inputs::config_hash("green"));
    c.bench_function("restart of a Deployment", |b| {
        b.iter_batched_ref(
            || index(vec![before.clone()]),
            |index| paths::reconcile(index, &before.id, black_box(&objects), &keys, &after),
            BatchSize::SmallInput,
        );
    });
}

fn indexes(c: &mut Criterion) {
    let workloads = workloads();
    let listed = workloads[5_000].references.named().next().cloned();
    let listed = listed.expect("each lists ten objects");
    let unlisted = inputs::reference(ConfigKind::ConfigMap, "config-0");
    let mut group = c.benchmark_group("index of 10,000 workloads with 100,000 references");
    group.sample_size(10);
    group.bench_function("apply all", |b| {
        b.iter_batched(|| workloads.clone(), index, BatchSize::PerIteration);
    });
    group.sample_size(100);
    let index = index(workloads);
    group.bench_function("workloads of an object", |b| {
        b.iter(|| index.workloads_of(black_box(&listed)).count());
    });
    for (name, reference) in [("hit", &listed), ("miss", &unlisted)] {
        group.bench_function(format!("is referenced, {name}"), |b| {
            b.iter(|| index.is_referenced(black_box(reference)));
        });
    }
}

fn index(workloads: Vec<Workload>) -> Index {
    let mut index = Index::default();
    for workload in workloads {
        index.apply(workload);
    }
    index
}

/// Returns 100 workloads in each of 100 namespaces. Each lists ten objects, each of which is listed by five.
fn workloads() -> Vec<Workload> {
    let workload = |namespace: usize, n: usize| {
        let lists = |item: usize| format!("config-{}", (n * 10 + item) % 200);
        inputs::workload(
            &serde_json::json!({
                "metadata": {
                    "name": format!("web-{n}"),
                    "namespace": format!("shop-{namespace}"),
                    "annotations": {CONFIG_MAPS: (0..10).map(lists).collect::<Vec<_>>().join(",")},
                },
                "spec": {"template": {}},
            })
            .to_string(),
        )
    };
    (0..100)
        .flat_map(|namespace| (0..100).map(move |n| workload(namespace, n)))
        .collect()
}

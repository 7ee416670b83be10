//! Tests of the metrics route through its router.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

#[tokio::test(start_paused = true)]
async fn metrics_that_a_thousand_ask_for_are_rendered_once() {
    let renderings = AtomicUsize::new(0);
    let rendered = Rendered::new(|| renderings.fetch_add(1, Ordering::Relaxed).to_string());
    for _ in 0..1000 {
        assert_eq!(rendered.text(), "0");
    }
    tokio::time::advance(FRESH).await;
    assert_eq!(rendered.text(), "1");
}

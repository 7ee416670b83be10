//! Tests of the page as a browser shows it.

use std::{fs, path::PathBuf};

use anyhow::{Result, ensure};
use pod_reloader_browser::{Browser, Key};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Graph,
    examples::{HOSTILE, hostile, many, shop},
    html,
};

/// Opens the page of a graph at `fragment`, runs `test`, and checks everything that the page has requested.
fn on_screen(
    graph: &Graph,
    fragment: &str,
    test: impl FnOnce(&mut Browser) -> Result<()>,
) -> Result<()> {
    let Some(mut browser) = Browser::start()? else {
        return Ok(());
    };
    let directory = TempDir::new()?;
    let file = written(&directory, graph)?;
    browser.look(1200, 900, true)?;
    browser.open(&file, fragment)?;
    test(&mut browser)?;
    ensure!(browser.evaluate("document.documentElement.dataset.ready")? == "true");
    ensure!(
        browser.complaints().is_empty(),
        "{:?}",
        browser.complaints()
    );
    let requests = browser.requests();
    let page = format!("file://{}", file.display());
    ensure!(requests == [page], "{requests:?}");
    Ok(())
}

fn written(directory: &TempDir, graph: &Graph) -> Result<PathBuf> {
    let file = directory.path().join("graph.html");
    fs::write(&file, html(graph, "What restarts what"))?;
    Ok(file)
}

/// Returns the names of the visible nodes that `selector` picks, sorted.
fn names(browser: &mut Browser, selector: &str) -> Result<Value> {
    browser.evaluate(&format!(
        "[...document.querySelectorAll({})].filter(node => node.checkVisibility())\
         .map(node => decodeURIComponent(node.getAttribute('href').slice(1))).sort()",
        json!(selector)
    ))
}

fn text(browser: &mut Browser, selector: &str) -> Result<Value> {
    browser.evaluate(&format!(
        "document.querySelector({})?.textContent",
        json!(selector)
    ))
}

#[test]
fn every_node_and_line_is_drawn_and_nothing_is_chosen_at_first() -> Result<()> {
    let graph = shop();
    on_screen(&graph, "", |browser| {
        let counts = browser.evaluate(
            "[document.querySelectorAll('a.node').length, document.querySelectorAll('svg .edges .edge').length, \
              document.querySelectorAll('section').length]",
        )?;
        let nodes = graph.objects.len() + graph.workloads.len();
        assert_eq!(counts, json!([nodes, graph.edges.len(), 2]));
        assert_eq!(names(browser, ".chosen, .related")?, json!([]));
        let panel = text(browser, "#panel")?.to_string();
        assert!(panel.contains("db-creds3 workloads, 12 pods"), "{panel}");
        Ok(())
    })
}

#[test]
fn the_fragment_chooses_an_object_and_what_it_restarts() -> Result<()> {
    on_screen(&shop(), "Secret/shop/db-creds", |browser| {
        assert_eq!(names(browser, ".chosen")?, json!(["Secret/shop/db-creds"]));
        assert_eq!(
            names(browser, ".related")?,
            json!([
                "Deployment/shop/cart",
                "Deployment/shop/catalog",
                "StatefulSet/shop/orders"
            ])
        );
        assert_eq!(
            browser.evaluate("document.querySelectorAll('.edge.lit').length")?,
            3
        );
        assert_eq!(
            text(browser, "#effect")?,
            "A change restarts 3 workloads, 12 pods."
        );
        let panel = text(browser, "#panel")?.to_string();
        assert!(panel.contains("only key password"), "{panel}");
        let opacities = "['.chosen', '.related', 'a.node:not(.chosen, .related)'].map(selector => \
                         getComputedStyle(document.querySelector(selector)).opacity)";
        assert_eq!(browser.evaluate(opacities)?, json!(["1", "1", "0.28"]));
        Ok(())
    })
}

#[test]
fn a_mouse_and_a_keyboard_choose_and_leave() -> Result<()> {
    on_screen(&shop(), "", |browser| {
        browser.click("a.node[aria-label*=orders]")?;
        browser.wait_until("location.hash === '#StatefulSet/shop/orders'")?;
        browser.wait_until("document.querySelector('.chosen')")?;
        assert_eq!(
            names(browser, ".related")?,
            json!(["ConfigMap/shop/shop-settings", "Secret/shop/db-creds"])
        );
        assert_eq!(
            text(browser, "#effect")?,
            "A change of any of 2 objects restarts it."
        );

        browser.press(Key::ArrowLeft)?;
        browser.press(Key::Enter)?;
        browser.wait_until(
            "document.querySelector('.chosen')?.classList.contains('workload') === false",
        )?;
        browser.press(Key::ArrowRight)?;
        browser.press(Key::Enter)?;
        browser.wait_until("document.querySelector('.chosen')?.classList.contains('workload')")?;

        browser.press(Key::Escape)?;
        browser.wait_until("location.hash === ''")?;
        browser.wait_until("!document.querySelector('.chosen')")?;
        assert_eq!(names(browser, ".related")?, json!([]));
        Ok(())
    })
}

#[test]
fn the_focus_stays_where_the_words_change() -> Result<()> {
    on_screen(&shop(), "Secret/shop/db-creds", |browser| {
        let said = "document.querySelector('#spoken').textContent";
        assert_eq!(
            browser.evaluate(said)?,
            "Secret db-creds. A change restarts 3 workloads, 12 pods."
        );
        browser.evaluate("document.querySelector('#panel a').focus()")?;
        browser.press(Key::Enter)?;
        browser.wait_until("document.activeElement?.matches('#panel h2')")?;
        assert_eq!(
            browser.evaluate("document.activeElement.textContent")?,
            "cart"
        );
        browser.press(Key::Escape)?;
        browser.wait_until("document.activeElement?.matches('a.node[aria-label*=cart]')")?;
        Ok(())
    })
}

#[test]
fn a_link_to_what_is_gone_says_so() -> Result<()> {
    on_screen(&shop(), "Secret/shop/%3Cgone%3E", |browser| {
        let warning = text(browser, "#panel .warning")?;
        assert_eq!(warning, "Secret shop <gone> is not in this graph.");
        assert_eq!(names(browser, ".chosen")?, json!([]));
        Ok(())
    })
}

#[test]
fn the_filter_shows_matches_and_what_they_are_connected_to() -> Result<()> {
    on_screen(&shop(), "", |browser| {
        let height = "document.querySelectorAll('section svg')[1].viewBox.baseVal.height";
        let before = browser.evaluate(height)?.as_f64();
        browser.click("#filter")?;
        browser.write("DB-c shop")?;
        browser.wait_until("document.querySelector('#count').value === '1 of 16 match'")?;
        assert_eq!(
            names(browser, "a.node")?,
            json!([
                "Deployment/shop/cart",
                "Deployment/shop/catalog",
                "Secret/shop/db-creds",
                "StatefulSet/shop/orders"
            ])
        );
        assert_eq!(
            browser.evaluate("document.querySelectorAll('section:not([hidden])').length")?,
            1
        );
        assert!(
            browser.evaluate(height)?.as_f64() < before,
            "empty bands are closed"
        );
        // A link to a node that the filter hides removes the filter.
        browser.evaluate("location.hash = '#Secret/payments/card-gateway'")?;
        browser.wait_until("document.querySelector('.chosen')?.checkVisibility()")?;
        assert_eq!(
            browser.evaluate("document.querySelectorAll('.filtered').length")?,
            0
        );

        browser.evaluate("document.querySelector('#filter').focus()")?;
        browser.write("missing")?;
        browser.wait_until("document.querySelector('#count').value === '1 of 16 match'")?;
        assert_eq!(
            names(browser, "a.node")?,
            json!(["Deployment/shop/mailer", "Secret/shop/mail-token"])
        );
        Ok(())
    })
}

#[test]
fn hostile_names_are_text_and_nothing_else() -> Result<()> {
    on_screen(&hostile(), "", |browser| {
        let counts = "[document.querySelectorAll('a.node').length, document.querySelectorAll('img').length, document.scripts.length]";
        assert_eq!(browser.evaluate(counts)?, json!([2, 0, 2]));
        browser.click("a.node.workload")?;
        browser.wait_until("document.querySelector('.chosen')")?;
        assert_eq!(text(browser, "#panel h2")?, HOSTILE);
        let panel = text(browser, "#panel")?;
        assert!(
            panel
                .as_str()
                .is_some_and(|panel| panel.contains(&format!("only keys {HOSTILE}, 1.,"))),
            "{panel}"
        );
        browser.click("#panel a")?;
        browser.wait_until("document.querySelector('.chosen.configmap')")?;
        assert_eq!(browser.evaluate(counts)?, json!([2, 0, 2]));
        Ok(())
    })
}

#[test]
fn two_thousand_workloads_are_filtered_in_one_go() -> Result<()> {
    on_screen(
        &many(20, 100),
        "Deployment/team-007/service-0042",
        |browser| {
            assert_eq!(
                browser.evaluate("document.querySelectorAll('a.node').length")?,
                3000
            );
            browser.wait_until(
                "document.querySelector('.chosen').getBoundingClientRect().bottom < innerHeight",
            )?;
            browser.click("#filter")?;
            browser.write("team-013 service-0099")?;
            browser.wait_until("document.querySelector('#count').value === '1 of 3000 match'")?;
            let before = browser.layouts()?;
            browser.evaluate(
                "(() => { const filter = document.querySelector('#filter'); filter.value = ''; \
                 filter.dispatchEvent(new Event('input')); })()",
            )?;
            browser.wait_until("document.querySelector('#count').value === ''")?;
            let layouts = browser.layouts()? - before;
            assert!((1..10).contains(&layouts), "laid out {layouts} times");
            Ok(())
        },
    )
}

#[test]
fn the_policy_of_the_page_stops_everything_that_is_not_part_of_it() -> Result<()> {
    let Some(mut browser) = Browser::start()? else {
        return Ok(());
    };
    let directory = TempDir::new()?;
    let file = written(&directory, &shop())?;
    let page = fs::read_to_string(&file)?;
    let guest = "<script>document.title = 'mine'</script><img src=\"https://example.com/x\" onerror=\"document.title = 'mine'\">";
    fs::write(
        &file,
        page.replace("</header>", &format!("</header>{guest}")),
    )?;
    browser.open(&file, "")?;
    browser.wait_until("document.documentElement.dataset.ready === 'true'")?;
    assert_eq!(browser.evaluate("document.title")?, "What restarts what");
    let complaints = browser.complaints().join("\n");
    for stopped in ["script-src", "img-src"] {
        assert!(complaints.contains(stopped), "{complaints}");
    }
    Ok(())
}

#[test]
#[ignore = "writes docs/images/graph.png: make screenshot"]
fn the_shop_as_in_the_docs() -> Result<()> {
    on_screen(&shop(), "Secret/shop/db-creds", |browser| {
        let height = browser.evaluate("document.body.getBoundingClientRect().height")?;
        let height = height.as_f64().unwrap_or_default().ceil() as u32;
        browser.look(1200, height, true)?;
        let picture = browser.screenshot()?;
        ensure!(picture.len() < 150_000, "{} bytes", picture.len());
        let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images");
        fs::create_dir_all(images)?;
        fs::write(PathBuf::from(images).join("graph.png"), picture)?;
        Ok(())
    })
}

//! Writes the graph as one page that loads nothing.

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

use super::{Graph, layout::Spacing, markup::escaped, section::sections, svg::svg, words};
use crate::cluster::encoded;
use crate::print::{self, count, is_hidden};

/// Returns a page with the graph as a drawing, a filter, and a description of the chosen node. The fragment
/// of the address chooses a node: `#Secret/shop/db-creds`.
///
/// # Guarantees
/// The page is one file that sends no requests. Its policy forbids them all, and any script and style except
/// its own. No name is read as anything other than text. The same graph gives the same page.
pub(crate) fn html(graph: &Graph, title: &str) -> String {
    page(graph, title).expect("a String takes everything")
}

fn page(graph: &Graph, title: &str) -> Result<String, fmt::Error> {
    let sections = sections(graph);
    let links = links(graph);
    let longest = graph.objects.len().max(graph.workloads.len());
    let (spacing, class) = if longest > MANY {
        (DENSE, "dense")
    } else {
        (ROOMY, "roomy")
    };
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let title = escaped(title);

    let mut text = String::new();
    write!(
        text,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{ICONS}"
    )?;
    write!(
        text,
        "<header>\n<div>\n<h1>{title}</h1>\n<p>{}, {} in {}</p>\n</div>\n{FILTER}</header>\n",
        count(graph.objects.len(), "config object"),
        count(graph.workloads.len(), "workload"),
        count(sections.len(), "namespace"),
    )?;
    text.push_str(LEGEND);
    writeln!(text, "<div class=\"columns\">\n<main class=\"{class}\">")?;
    if sections.is_empty() {
        text.push_str(
            "<p class=\"empty\">No workload is managed, so nothing restarts anything.</p>\n",
        );
    }
    for section in &sections {
        let namespace = escaped(words::namespace(section.namespace));
        writeln!(
            text,
            "<section class=\"namespace\" aria-label=\"Namespace {namespace}\">\n\
             <h2>{namespace}</h2>\n<p class=\"heads\"><span>When this changes</span><span>these restart</span></p>"
        )?;
        text.push_str(&svg(graph, section, &links, spacing)?);
        text.push_str("</section>\n");
    }
    write!(
        text,
        "<p class=\"empty\" id=\"no-match\" hidden>Nothing matches.</p>\n</main>\n{PANEL}</div>\n\
         <script type=\"application/json\" id=\"graph\">{}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        json(graph, &links, spacing)
    )?;
    Ok(text)
}

/// Returns the data for the script. Escapes may replace any character in JSON, so the end of the element
/// cannot occur in it.
fn json(graph: &Graph, links: &[Vec<String>; 2], spacing: Spacing) -> String {
    let value = serde_json::json!({
        "objects": graph.objects,
        "workloads": graph.workloads,
        "edges": graph.edges,
        "links": links,
        "spacing": { "node": spacing.node, "gap": spacing.gap, "between": spacing.between },
    });
    print::escaped(&value.to_string(), |it| "<>&".contains(it) || is_hidden(it))
}

/// Returns the fragment that names each object and each workload. If two would share one, as custom resources
/// of the same kind in two groups do, the later ones get a number.
fn links(graph: &Graph) -> [Vec<String>; 2] {
    let mut taken = BTreeSet::new();
    let mut link = |kind: &str, namespace: &str, name: &str| {
        let link = [kind, namespace, name].map(encoded).join("/");
        let numbered = (2..).map(|number| format!("{link}/{number}"));
        let mut free = std::iter::once(link.clone()).chain(numbered);
        let free = free.find(|link| taken.insert(link.clone()));
        free.expect("numbers do not end")
    };
    let objects = graph.objects.iter();
    let objects = objects
        .map(|node| link(node.kind.as_str(), &node.namespace, &node.name))
        .collect();
    let workloads = graph.workloads.iter();
    let workloads = workloads
        .map(|node| link(&node.kind, &node.namespace, &node.name))
        .collect();
    [objects, workloads]
}

/// Returns the name of a script or style for the page's policy.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

const STYLE: &str = include_str!("page/style.css");
const SCRIPT: &str = include_str!("page/script.js");
const ICONS: &str = include_str!("page/icons.svg");
const FILTER: &str = include_str!("page/filter.html");
const LEGEND: &str = include_str!("page/legend.html");
const PANEL: &str = include_str!("page/panel.html");

/// Number of nodes in a column from which on they stand closer together.
const MANY: usize = 60;

const ROOMY: Spacing = Spacing {
    node: 46.0,
    gap: 10.0,
    between: 12.0,
};

const DENSE: Spacing = Spacing {
    node: 38.0,
    gap: 5.0,
    between: 7.0,
};

#[cfg(test)]
mod tests {

    use super::*;
    use crate::picture::examples::{HOSTILE, hostile, many, shop, small};
    use crate::picture::{dot, mermaid};

    #[test]
    fn an_empty_graph_says_so() {
        let page = html(&Graph::default(), "Nothing");
        assert!(page.contains("No workload is managed"), "{page}");
        assert!(page.contains("0 config objects, 0 workloads in 0 namespaces"));
    }

    #[test]
    fn each_namespace_has_a_drawing_of_its_own() {
        let page = html(&small(), "Two");
        assert_eq!(page.matches("<section").count(), 2);
        for node in [
            "ConfigMap/a/app",
            "Secret/b/app",
            "Deployment/a/web",
            "Deployment/a/worker",
            "Deployment/b/web",
        ] {
            assert_eq!(
                page.matches(&format!("href=\"#{node}\"")).count(),
                1,
                "{node}"
            );
        }
        assert!(page.contains("aria-label=\"Secret app, restarts 1 workload, missing\""));
    }

    #[test]
    fn only_its_own_script_and_style_run() {
        let page = html(&shop(), "Shop");
        let between = |from: &str, to: &str| {
            let (_, rest) = page.split_once(from).unwrap();
            rest.split_once(to).unwrap().0.to_owned()
        };
        let policy = between("content=\"default-src 'none'; ", "\"");
        assert!(policy.contains(&format!(
            "script-src '{}'",
            hash(&between("\n<script>", "</script>"))
        )));
        assert!(policy.contains(&format!(
            "style-src '{}'",
            hash(&between("<style>", "</style>"))
        )));
        assert!(!policy.contains("unsafe"), "{policy}");
        for elsewhere in [
            "http:", "https:", "src=", "url(", "@import", "<link", " style=",
        ] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn a_name_is_never_more_than_text() {
        let page = html(&hostile(), HOSTILE);
        assert!(!page.contains("<img"), "{page}");
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains(['\u{2028}', '\u{202e}']));
        let (_, rest) = page.split_once("id=\"graph\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(value["objects"][0]["name"], HOSTILE);
        assert_eq!(value["edges"][0]["keys"][0], HOSTILE);
    }

    #[test]
    fn two_custom_resources_of_one_kind_and_name_have_links_of_their_own() {
        let graph = Graph::default()
            .workload("Cluster", "a", "db", 1, &[])
            .workload("Cluster", "a", "db", 1, &[]);
        assert_eq!(links(&graph)[1], ["Cluster/a/db", "Cluster/a/db/2"]);
    }

    /// Never ends in reasonable time if all lines are searched for each node.
    #[test]
    fn many_workloads_are_drawn_in_one_namespace_and_in_many() {
        for graph in [many(1, 10_000), many(1000, 5)] {
            let page = html(&graph, "Many");
            assert!(page.len() < 20_000_000, "{}", page.len());
            let lines = dot(&graph).matches(" -> ").count();
            assert_eq!(lines, graph.edges.len());
            assert!(mermaid(&graph).len() < page.len());
        }
    }
}

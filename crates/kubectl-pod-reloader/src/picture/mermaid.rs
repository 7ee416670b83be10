//! Writes the graph in the language of Mermaid, which GitHub and GitLab draw in Markdown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write},
};

use super::{
    Edge, Graph,
    section::{Section, sections},
    words,
};

/// Writes a flowchart. Each namespace is a subgraph, with objects on the left and workloads on the right. A
/// dotted line means that the pods can start without the object.
///
/// # Guarantees
/// GitHub draws it: the numbers of edges and characters stay within the limits that GitHub sets for Mermaid.
///
/// # Caveats
/// Workloads that do not fit are left out, and a node at the end gives their number.
pub(crate) fn mermaid(graph: &Graph) -> String {
    drawn(graph).expect("a String takes everything")
}

fn drawn(graph: &Graph) -> Result<String, fmt::Error> {
    let mut text = String::from(HEAD);
    let mut room = Room {
        edges: MOST_EDGES,
        bytes: MOST_BYTES,
    };
    let mut left_out = 0;
    for (index, section) in sections(graph).iter().enumerate() {
        let namespace = escaped(words::namespace(section.namespace));
        // Without a direction of its own, a subgraph that no line connects to others would turn around.
        let head = format!("  subgraph s{index}[\"{namespace}\"]\n    direction LR\n");
        let part = Part::that_fits(graph, section, head.len() + END.len(), &mut room)?;
        left_out += part.left_out;
        if !part.nodes.is_empty() {
            for piece in [&head, &part.nodes, &part.edges, END] {
                text.push_str(piece);
            }
        }
    }
    if left_out > 0 {
        let left_out = crate::print::count(left_out, "workload");
        writeln!(
            text,
            "  more[\"{left_out} left out: too much for Mermaid\"]:::notice"
        )?;
    }
    if !graph.workloads.is_empty() {
        text.push_str(LEGEND);
    }
    text.push_str(CLASSES);
    Ok(text)
}

/// The room that is left to draw in.
#[derive(Clone, Copy)]
struct Room {
    edges: usize,
    bytes: usize,
}

impl Room {
    fn without(self, edges: usize, bytes: usize) -> Option<Self> {
        Some(Self {
            edges: self.edges.checked_sub(edges)?,
            bytes: self.bytes.checked_sub(bytes)?,
        })
    }
}

/// The drawn part of one namespace.
#[derive(Default)]
struct Part {
    nodes: String,
    edges: String,
    left_out: usize,
}

impl Part {
    /// Draws workload by workload, each with the objects that restart it.
    fn that_fits(
        graph: &Graph,
        section: &Section<'_>,
        frame: usize,
        room: &mut Room,
    ) -> Result<Self, fmt::Error> {
        let mut part = Self::default();
        let mut objects = BTreeSet::new();
        let mut by_workload: BTreeMap<usize, Vec<&Edge>> = BTreeMap::new();
        for edge in section.edges.iter().map(|&edge| &graph.edges[edge]) {
            by_workload.entry(edge.workload).or_default().push(edge);
        }
        for &workload in &section.workloads {
            let own = by_workload.remove(&workload).unwrap_or_default();
            let (mut nodes, mut edges) = (String::new(), String::new());
            for edge in &own {
                if !objects.contains(&edge.object) {
                    object_node(&mut nodes, graph, edge.object)?;
                }
                edge_line(&mut edges, edge)?;
            }
            // Without a line, the workload would stand in the column of the objects.
            let tie = section.objects.first().filter(|_| own.is_empty());
            if let Some(object) = tie.filter(|object| objects.contains(*object)) {
                writeln!(edges, "    o{object} ~~~ w{workload}")?;
            }
            workload_node(&mut nodes, graph, workload)?;
            let frame = if part.nodes.is_empty() { frame } else { 0 };
            let bytes = nodes.len() + edges.len() + frame;
            let Some(rest) = room.without(edges.lines().count(), bytes) else {
                part.left_out += 1;
                continue;
            };
            *room = rest;
            objects.extend(own.iter().map(|edge| edge.object));
            part.nodes += &nodes;
            part.edges += &edges;
        }
        Ok(part)
    }
}

fn object_node(text: &mut String, graph: &Graph, index: usize) -> fmt::Result {
    let object = &graph.objects[index];
    let (kind, name) = (object.kind.as_str(), escaped(&object.name));
    let mark = words::mark_of_object(object);
    let class = mark.map_or("object", |_| "marked");
    let mark = mark.map_or(String::new(), |mark| format!("<br/>{mark}"));
    writeln!(
        text,
        "    o{index}([\"{kind}<br/>{name}{mark}\"]):::{class}"
    )
}

fn workload_node(text: &mut String, graph: &Graph, index: usize) -> fmt::Result {
    let workload = &graph.workloads[index];
    let (kind, name) = (escaped(&workload.kind), escaped(&workload.name));
    let class = words::mark_of_workload(workload).map_or("workload", |_| "marked");
    let notes = match words::notes_of_workload(workload) {
        notes if notes.is_empty() => notes,
        notes => format!("<br/>{notes}"),
    };
    writeln!(text, "    w{index}[\"{kind}<br/>{name}{notes}\"]:::{class}")
}

fn edge_line(text: &mut String, edge: &Edge) -> fmt::Result {
    let arrow = if edge.is_required { "-->" } else { "-.->" };
    let keys = match &edge.keys {
        Some(_) => format!("|\"{}\"|", escaped(&words::keys(edge))),
        None => String::new(),
    };
    writeln!(
        text,
        "    o{} {arrow}{keys} w{}",
        edge.object, edge.workload
    )
}

/// Escapes a quoted text. Mermaid reads `#NUMBER;` as that character, and much else as Markdown or HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '-' | '.' | '_' | '/' | ',' | ' ' => escaped.push(character),
            _ if character.is_alphanumeric() => escaped.push(character),
            _ if character.is_control() => escaped.push(' '),
            _ => escaped += &format!("#{};", u32::from(character)),
        }
    }
    escaped
}

const HEAD: &str = "flowchart LR\n";

const END: &str = "  end\n";

const LEGEND: &str = r#"  subgraph legend["Legend"]
    direction LR
    l0(["ConfigMap or Secret"]):::object
    l1["workload"]:::workload
    l2["worth a look"]:::marked
    l0 -->|"its pods cannot start without it"| l1
    l0 -.->|"they can; keys stand on the line where only these matter"| l2
  end
"#;

// Readable on light and on dark pages.
const CLASSES: &str = "  classDef object fill:#e3edf9,stroke:#2f6db5,color:#12263f
  classDef workload fill:#e2f3ee,stroke:#1d7a63,color:#0f2c25
  classDef marked fill:#fdf1dc,stroke:#96610a,color:#3a2600,stroke-width:2px,stroke-dasharray:5 3
  classDef notice fill:#fdf1dc,stroke:#96610a,color:#3a2600
";

/// Mermaid's `maxEdges`, minus those of the legend.
const MOST_EDGES: usize = 500 - 2;

/// Mermaid's `maxTextSize`, minus the text before and after the namespaces. Counting bytes is safe: no text
/// has more characters than bytes.
const MOST_BYTES: usize = 50_000 - 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::examples::{hostile, many, small};

    fn body(graph: &Graph) -> String {
        let text = mermaid(graph);
        let body = text.strip_prefix(HEAD).unwrap().strip_suffix(CLASSES);
        let body = body.unwrap();
        body.strip_suffix(LEGEND).unwrap_or(body).to_owned()
    }

    #[test]
    fn an_empty_graph_is_drawn() {
        assert_eq!(body(&Graph::default()), "");
    }

    #[test]
    fn each_namespace_is_a_subgraph() {
        let expected = r#"  subgraph s0["a"]
    direction LR
    o0(["ConfigMap<br/>app"]):::object
    w0["Deployment<br/>web<br/>1 pod"]:::workload
    w1["Deployment<br/>worker<br/>2 pods, baseline"]:::marked
    o0 -.-> w0
    o0 ~~~ w1
  end
  subgraph s1["b"]
    direction LR
    o1(["Secret<br/>app<br/>missing"]):::marked
    w2["Deployment<br/>web<br/>3 pods"]:::workload
    o1 -->|"user, password"| w2
  end
"#;
        assert_eq!(body(&small()), expected);
    }

    #[test]
    fn a_legend_says_what_lines_and_colours_mean() {
        let text = mermaid(&small());
        let legend = format!("{LEGEND}{CLASSES}");
        assert!(text.ends_with(&legend), "{text}");
        for class in ["object", "workload", "marked"] {
            assert!(LEGEND.contains(&format!(":::{class}")));
        }
        assert_eq!(
            LEGEND.matches("-->").count() + LEGEND.matches("-.->").count(),
            2
        );
        assert!(HEAD.len() + LEGEND.len() + CLASSES.len() + 100 < 1_000);
    }

    #[test]
    fn a_name_is_never_more_than_text() {
        let body = body(&hostile());
        assert_eq!(body.lines().count(), 6, "{body}");
        for line in body.lines() {
            let texts = line.replace("<br/>", "");
            assert!(!texts.contains(['<', '&', '`', '\\', '{', '$']), "{line}");
            assert!(line.matches('"').count() <= 2, "{line}");
        }
    }

    #[test]
    fn workloads_that_github_would_not_draw_are_left_out_and_counted() {
        for graph in [many(1, 2000), many(200, 10), many(70, 4)] {
            let text = mermaid(&graph);
            assert!(text.len() <= 50_000, "{}", text.len());
            let edges = text.lines().filter(|line| line.contains("-->")).count();
            assert!((200..=500).contains(&edges), "{edges}");
            let drawn = text
                .lines()
                .filter(|line| line.contains("<br/>service-"))
                .count();
            let left_out = format!("{} workloads left out", graph.workloads.len() - drawn);
            assert!(text.contains(&left_out), "{left_out}");
        }
    }
}

//! Writes the graph in the language of Graphviz.

use std::fmt::Write;

use super::{
    Graph,
    section::{Section, sections},
    words,
};

/// Writes the graph for `dot`. Each namespace is a cluster, with objects on the left and workloads on the
/// right. A dashed line means that the pods can start without the object.
pub(crate) fn dot(graph: &Graph) -> String {
    let mut text = String::from(HEAD);
    for (index, section) in sections(graph).iter().enumerate() {
        write(&mut text, graph, index, section).expect("a String takes everything");
    }
    text.push_str("}\n");
    text
}

fn write(
    text: &mut String,
    graph: &Graph,
    index: usize,
    section: &Section<'_>,
) -> std::fmt::Result {
    let namespace = escaped(words::namespace(section.namespace));
    writeln!(text, "  subgraph cluster_{index} {{")?;
    writeln!(text, "    label=\"{namespace}\";")?;
    for &index in &section.objects {
        let object = &graph.objects[index];
        let (kind, name) = (object.kind.as_str(), escaped(&object.name));
        let mark = words::mark_of_object(object);
        let style = mark.map_or("", |_| ", style=dashed");
        let mark = mark.map_or(String::new(), |mark| format!("\\n{mark}"));
        writeln!(
            text,
            "    o{index} [shape=note, label=\"{kind}\\n{name}{mark}\"{style}];"
        )?;
    }
    for &index in &section.workloads {
        let workload = &graph.workloads[index];
        let (kind, name) = (escaped(&workload.kind), escaped(&workload.name));
        let mark = words::mark_of_workload(workload);
        let style = mark.map_or("", |_| ", style=\"rounded,dashed\"");
        let notes = match words::notes_of_workload(workload) {
            notes if notes.is_empty() => notes,
            notes => format!("\\n{notes}"),
        };
        writeln!(
            text,
            "    w{index} [label=\"{kind}\\n{name}{notes}\"{style}];"
        )?;
    }
    for &index in &section.edges {
        let edge = &graph.edges[index];
        let mut attributes = Vec::new();
        if edge.keys.is_some() {
            attributes.push(format!("label=\"{}\"", escaped(&words::keys(edge))));
        }
        if !edge.is_required {
            attributes.push("style=dashed".to_owned());
        }
        let attributes = if attributes.is_empty() {
            String::new()
        } else {
            format!(" [{}]", attributes.join(", "))
        };
        writeln!(
            text,
            "    o{} -> w{}{attributes};",
            edge.object, edge.workload
        )?;
    }
    for (object, workload) in section.untied(&graph.edges) {
        writeln!(text, "    o{object} -> w{workload} [style=invis];")?;
    }
    writeln!(text, "  }}")
}

/// Escapes a quoted string. Graphviz also reads `\N` and the like in labels, and HTML entities.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("&quot;"),
            '&' => escaped.push_str("&amp;"),
            '\\' => escaped.push_str("\\\\"),
            _ if is_separator(character) => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn is_separator(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

const HEAD: &str = r##"digraph "pod-reloader" {
  rankdir=LR;
  ranksep=1.5;
  fontname="Helvetica";
  node [fontname="Helvetica", fontsize=11, shape=box, style=rounded, color="#5b6b7d"];
  edge [fontname="Helvetica", fontsize=9, color="#5b6b7d"];
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::examples::{hostile, small};

    #[test]
    fn an_empty_graph_is_drawn() {
        assert_eq!(dot(&Graph::default()), format!("{HEAD}}}\n"));
    }

    #[test]
    fn each_namespace_is_a_cluster() {
        let text = dot(&small());
        let body = text.strip_prefix(HEAD).unwrap();
        let expected = r#"  subgraph cluster_0 {
    label="a";
    o0 [shape=note, label="ConfigMap\napp"];
    w0 [label="Deployment\nweb\n1 pod"];
    w1 [label="Deployment\nworker\n2 pods, baseline", style="rounded,dashed"];
    o0 -> w0 [style=dashed];
    o0 -> w1 [style=invis];
  }
  subgraph cluster_1 {
    label="b";
    o1 [shape=note, label="Secret\napp\nmissing", style=dashed];
    w2 [label="Deployment\nweb\n3 pods"];
    o1 -> w2 [label="user, password"];
  }
}
"#;
        assert_eq!(body, expected);
    }

    #[test]
    fn no_name_ends_the_string_that_quotes_it() {
        let text = dot(&hostile());
        for line in text.strip_prefix(HEAD).unwrap().lines() {
            let without_pairs = line.replace("\\\\", "").replace("\\n", "");
            assert!(!without_pairs.contains('\\'), "{line}");
            let texts = line.matches('"').count() / 2;
            assert!(line.matches('"').count() % 2 == 0 && texts <= 2, "{line}");
        }
        assert_eq!(text.lines().count(), HEAD.lines().count() + 7);
    }
}

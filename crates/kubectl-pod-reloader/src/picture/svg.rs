//! Draws one namespace: objects on the left, workloads on the right, lines in between.

use std::fmt::{self, Write};

use super::{
    ConfigNode, Edge, Graph, WorkloadNode,
    layout::{Spacing, layout},
    markup::escaped,
    section::Section,
    words,
};

/// Draws `section`. The fragments in `links[0]` name the objects, those in `links[1]` the workloads.
///
/// Ids are `o` for an object, `w` for a workload and `e` for a line, followed by the index in the graph.
/// `data-y` is the upper edge of a node, for the script of the page.
pub(super) fn svg(
    graph: &Graph,
    section: &Section<'_>,
    links: &[Vec<String>; 2],
    spacing: Spacing,
) -> Result<String, fmt::Error> {
    let ends = ends(graph, section);
    let counts = (section.objects.len(), section.workloads.len());
    let (mut restarts, mut restarted_by) = (vec![0; counts.0], vec![0; counts.1]);
    for &(object, workload) in &ends {
        restarts[object] += 1;
        restarted_by[workload] += 1;
    }
    let layout = layout(counts.0, counts.1, &ends, spacing);
    let height = layout.height + 2.0 * MARGIN;

    let mut text = String::new();
    writeln!(
        text,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"group\" aria-label=\"What restarts what in {}\">",
        escaped(words::namespace(section.namespace))
    )?;
    text.push_str("<g class=\"edges\" aria-hidden=\"true\">\n");
    let line = |(&index, &(object, workload)): (&usize, &(usize, usize))| Line {
        index,
        edge: &graph.edges[index],
        from: layout.left[object],
        to: layout.right[workload],
        middle: spacing.node / 2.0,
    };
    let lines: Vec<_> = section.edges.iter().zip(&ends).map(line).collect();
    for line in &lines {
        line.write(&mut text)?;
    }
    for line in &lines {
        line.write_keys(&mut text)?;
    }
    text.push_str("</g>\n");
    for ((&index, top), count) in section.objects.iter().zip(&layout.left).zip(restarts) {
        Node::of_object(&graph.objects[index], count).write(
            &mut text,
            &format!("o{index}"),
            &links[0][index],
            (LEFT, top + MARGIN, spacing.node),
        )?;
    }
    let workloads = section.workloads.iter().zip(&layout.right);
    for ((&index, top), count) in workloads.zip(restarted_by) {
        Node::of_workload(&graph.workloads[index], count).write(
            &mut text,
            &format!("w{index}"),
            &links[1][index],
            (WIDTH - LEFT - NODE_WIDTH, top + MARGIN, spacing.node),
        )?;
    }
    text.push_str("</svg>\n");
    Ok(text)
}

/// Returns the nodes that each line connects, as indices in the section.
fn ends(graph: &Graph, section: &Section<'_>) -> Vec<(usize, usize)> {
    let place = |nodes: &[usize], node| nodes.binary_search(node).ok();
    let ends = |&edge: &usize| {
        let edge = &graph.edges[edge];
        let object = place(&section.objects, &edge.object)?;
        Some((object, place(&section.workloads, &edge.workload)?))
    };
    section.edges.iter().filter_map(ends).collect()
}

/// A line from an object to a workload.
struct Line<'a> {
    /// Index in the graph.
    index: usize,
    edge: &'a Edge,
    /// Upper edge of the object.
    from: f64,
    /// Upper edge of the workload.
    to: f64,
    /// Half the height of a node.
    middle: f64,
}

impl Line<'_> {
    fn write(&self, text: &mut String) -> fmt::Result {
        let Self { index, middle, .. } = self;
        let class = if self.edge.is_required {
            "edge"
        } else {
            "edge optional"
        };
        let curve = curve(self.from + MARGIN + middle, self.to + MARGIN + middle);
        writeln!(
            text,
            "<path id=\"e{index}\" class=\"{class}\" d=\"{curve}\"/>"
        )
    }

    /// Writes the keys on the line, unless all count.
    fn write_keys(&self, text: &mut String) -> fmt::Result {
        if self.edge.keys.is_none() {
            return Ok(());
        }
        let Self {
            index,
            from,
            to,
            middle,
            ..
        } = self;
        let keys = escaped(&shortened(&words::short_keys(self.edge), KEYS_WIDTH));
        // Three quarters of the way along, where the lines of one object have separated.
        let y = (5.0 * from + 27.0 * to) / 32.0 + MARGIN + middle + 4.0;
        let x = WIDTH - LEFT - NODE_WIDTH - 51.0;
        writeln!(
            text,
            "<text id=\"k{index}\" class=\"keys\" x=\"{x}\" y=\"{y}\">{keys}</text>"
        )
    }
}

/// Returns the path of a line. The page's script draws the same path when a filter moves nodes.
fn curve(from: f64, to: f64) -> String {
    let (left, right) = (LEFT + NODE_WIDTH, WIDTH - LEFT - NODE_WIDTH);
    let bend = (left + right) / 2.0;
    format!("M{left} {from}C{bend} {from} {bend} {to} {right} {to}")
}

struct Node<'a> {
    class: &'static str,
    icon: &'static str,
    kind: &'a str,
    name: &'a str,
    mark: Option<&'static str>,
    /// True if the kind has little room.
    is_narrow: bool,
    /// Note beside the kind, below the name.
    note: String,
    /// Words that a screen reader says after kind and name.
    spoken: String,
    /// Height at which lines meet the node, if any do.
    port: Option<f64>,
}

impl<'a> Node<'a> {
    fn of_object(object: &'a ConfigNode, restarts: usize) -> Self {
        let icon = match object.kind.as_str() {
            "Secret" => "secret",
            _ => "configmap",
        };
        let workloads = crate::print::count(restarts, "workload");
        let mark = words::mark_of_object(object);
        Self {
            class: icon,
            icon,
            kind: object.kind.as_str(),
            name: &object.name,
            mark,
            is_narrow: mark.is_some(),
            spoken: format!("restarts {workloads}"),
            note: workloads,
            port: (restarts > 0).then_some(NODE_WIDTH),
        }
    }

    fn of_workload(workload: &'a WorkloadNode, restarted_by: usize) -> Self {
        let icon = match workload.kind.as_str() {
            "StatefulSet" => "statefulset",
            "DaemonSet" => "daemonset",
            "CronJob" => "cronjob",
            "Deployment" => "deployment",
            _ => "custom",
        };
        let (pods, stage) = (words::pods(workload), words::stage(workload));
        let mark = words::mark_of_workload(workload);
        // There is no room for both.
        let shown = stage.clone().filter(|_| mark.is_none());
        let note = Vec::from_iter(pods.iter().cloned().chain(shown));
        let restarted = format!(
            "restarted by {}",
            crate::print::count(restarted_by, "object")
        );
        let spoken = pods.into_iter().chain(stage).chain([restarted]);
        let spoken = Vec::from_iter(spoken);
        Self {
            class: "workload",
            icon,
            kind: &workload.kind,
            name: &workload.name,
            mark,
            is_narrow: mark.is_some() || note.len() > 1,
            note: note.join(" · "),
            spoken: spoken.join(", "),
            port: (restarted_by > 0).then_some(0.0),
        }
    }

    fn write(
        &self,
        text: &mut String,
        id: &str,
        link: &str,
        (x, y, height): (f64, f64, f64),
    ) -> fmt::Result {
        let marked = if self.mark.is_some() { " marked" } else { "" };
        let (kind, name) = (escaped(self.kind), escaped(self.name));
        let mark = self.mark.map_or(String::new(), |mark| format!(", {mark}"));
        let middle = height / 2.0;
        write!(
            text,
            "<a id=\"{id}\" class=\"node {}{marked}\" href=\"#{link}\" data-y=\"{y}\" \
             transform=\"translate({x} {y})\" aria-label=\"{kind} {name}, {}{mark}\">",
            self.class, self.spoken
        )?;
        write!(text, "<title>{kind} {name}</title>")?;
        write!(
            text,
            "<rect class=\"box\" width=\"{NODE_WIDTH}\" height=\"{height}\" rx=\"9\"/>"
        )?;
        write!(
            text,
            "<use href=\"#icon-{}\" class=\"icon\" x=\"12\" y=\"{}\" width=\"18\" height=\"18\"/>",
            self.icon,
            middle - 9.0
        )?;
        let short = escaped(&shortened(self.name, NAME_WIDTH));
        write!(
            text,
            "<text class=\"name\" x=\"40\" y=\"{}\">{short}</text>",
            middle - 3.0
        )?;
        let kind = escaped(&shortened(
            self.kind,
            KIND_WIDTH[usize::from(self.is_narrow)],
        ));
        let note = match self.note.as_str() {
            "" => String::new(),
            note => format!(" · {}", escaped(note)),
        };
        write!(
            text,
            "<text class=\"note\" x=\"40\" y=\"{}\">{kind}{note}",
            middle + 12.5
        )?;
        if let Some(mark) = self.mark {
            write!(text, "<tspan class=\"mark\"> · ⚠ {mark}</tspan>")?;
        }
        text.push_str("</text>");
        if let Some(x) = self.port {
            write!(
                text,
                "<circle class=\"port\" cx=\"{x}\" cy=\"{middle}\" r=\"3.5\"/>"
            )?;
        }
        text.push_str("</a>\n");
        Ok(())
    }
}

/// Returns `text`, shortened in the middle if it is too long: often names differ only at their end.
fn shortened(text: &str, most: usize) -> String {
    // Letters from U+1100 on are taken to be twice as wide.
    let width = |character: char| if character < '\u{1100}' { 1 } else { 2 };
    if text.chars().map(width).sum::<usize>() <= most {
        return text.to_owned();
    }
    let within = |characters: &mut dyn Iterator<Item = char>, most: usize| -> Vec<char> {
        let mut used = 0;
        let fits = |character: &char| {
            used += width(*character);
            used <= most
        };
        characters.take_while(fits).collect()
    };
    let tail_width = most / 3;
    let head = within(&mut text.chars(), most - 1 - tail_width);
    let tail = within(&mut text.chars().rev(), tail_width);
    head.into_iter()
        .chain(['…'])
        .chain(tail.into_iter().rev())
        .collect()
}

const WIDTH: f64 = 780.0;
const NODE_WIDTH: f64 = 300.0;

/// Space between the left edge and the nodes, for their outlines.
const LEFT: f64 = 4.0;

/// Space above and below the nodes.
const MARGIN: f64 = 4.0;

/// Number of letters that fit into a name, even in a wide font.
const NAME_WIDTH: usize = 28;

/// Number of letters that fit into a kind, which shares its line with a note: alone, and with a stage or a mark.
const KIND_WIDTH: [usize; 2] = [20, 12];

/// Number of letters that fit into the keys on a line.
const KEYS_WIDTH: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_stays_as_it_is() {
        assert_eq!(shortened("web", 3), "web");
    }

    #[test]
    fn a_long_name_keeps_its_beginning_and_its_end() {
        assert_eq!(shortened("prometheus-operator-config", 12), "prometh…nfig");
    }

    #[test]
    fn wide_letters_count_twice() {
        assert_eq!(shortened("設定設定設定", 6), "設…定");
    }
}

//! Places objects and workloads in two columns so that few lines cross.

use std::collections::BTreeMap;

/// The height of nodes, and the space between them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spacing {
    /// Height of a node.
    pub(super) node: f64,
    /// Space between two nodes.
    pub(super) gap: f64,
    /// Additional space between nodes that nothing connects, not even through others.
    pub(super) between: f64,
}

/// Two columns of nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layout {
    /// Upper edge of each node on the left.
    pub(super) left: Vec<f64>,
    /// Upper edge of each node on the right.
    pub(super) right: Vec<f64>,
    /// Height of the whole layout.
    pub(super) height: f64,
}

/// Places `left` nodes beside `right` ones. Each line goes from a left node to a right one.
///
/// # Guarantees
/// No node overlaps another. Parts that nothing connects stand one below the other, in the order of their
/// first nodes. In each part, the longer column has no holes, and a node of the shorter one is as near as
/// possible to the middle of its neighbours. The same input gives the same picture.
pub(super) fn layout(
    left: usize,
    right: usize,
    lines: &[(usize, usize)],
    spacing: Spacing,
) -> Layout {
    let mut layout = Layout {
        left: vec![0.0; left],
        right: vec![0.0; right],
        height: 0.0,
    };
    for part in parts(left, right, lines) {
        if layout.height > 0.0 {
            layout.height += spacing.gap + spacing.between;
        }
        let [lefts, rights] = part.untangled().placed(spacing.node + spacing.gap);
        for (nodes, tops) in [(&lefts, &mut layout.left), (&rights, &mut layout.right)] {
            for &(node, top) in nodes {
                tops[node] = layout.height + top;
            }
        }
        let last = lefts.iter().chain(&rights).map(|(_, top)| *top);
        layout.height += last.fold(0.0, f64::max) + spacing.node;
    }
    layout
}

/// Counts the pairs of lines that cross, with nodes at these heights.
#[cfg(test)]
pub(super) fn crossings(left: &[f64], right: &[f64], lines: &[(usize, usize)]) -> usize {
    let order = |tops: &[f64]| {
        let mut nodes: Vec<usize> = (0..tops.len()).collect();
        nodes.sort_by(|a, b| tops[*a].total_cmp(&tops[*b]));
        nodes
    };
    Part {
        columns: [order(left), order(right)],
        lines: lines.to_vec(),
    }
    .crossings()
}

/// A connected set of nodes, each column from top to bottom.
#[derive(Clone, Debug, Default)]
struct Part {
    columns: [Vec<usize>; 2],
    lines: Vec<(usize, usize)>,
}

fn parts(left: usize, right: usize, lines: &[(usize, usize)]) -> Vec<Part> {
    let mut roots: Vec<usize> = (0..left + right).collect();
    for &(from, to) in lines {
        let (from, to) = (root(&mut roots, from), root(&mut roots, left + to));
        // The smaller root stays, so that a part stands where its first node does.
        roots[from.max(to)] = from.min(to);
    }
    let mut parts: BTreeMap<usize, Part> = BTreeMap::new();
    for node in 0..left + right {
        let part = parts.entry(root(&mut roots, node)).or_default();
        match node.checked_sub(left) {
            None => part.columns[0].push(node),
            Some(node) => part.columns[1].push(node),
        }
    }
    for &line in lines {
        let part = parts.entry(root(&mut roots, line.0)).or_default();
        part.lines.push(line);
    }
    parts.into_values().collect()
}

fn root(roots: &mut [usize], mut node: usize) -> usize {
    while roots[node] != node {
        roots[node] = roots[roots[node]];
        node = roots[node];
    }
    node
}

impl Part {
    /// Applies the barycentre heuristic: sorts each column in turn by the mean place of each node's
    /// neighbours, and retains the order with the fewest crossings.
    fn untangled(mut self) -> Self {
        let mut fewest = self.crossings();
        let mut best = self.columns.clone();
        for round in 0..ROUNDS {
            if fewest == 0 {
                break;
            }
            let side = (round + 1) % 2;
            let means = self.means(side);
            self.columns[side].sort_by(|a, b| means[a].total_cmp(&means[b]));
            let crossings = self.crossings();
            if crossings < fewest {
                fewest = crossings;
                best = self.columns.clone();
            }
        }
        self.columns = best;
        self
    }

    /// Returns the mean place of the neighbours of each node of one column.
    fn means(&self, side: usize) -> BTreeMap<usize, f64> {
        let places = self.places(1 - side);
        let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for &(from, to) in &self.lines {
            let (node, other) = if side == 0 { (from, to) } else { (to, from) };
            let sum = sums.entry(node).or_default();
            *sum = (sum.0 + places[&other], sum.1 + 1.0);
        }
        let mean = |node: &usize| match sums.get(node) {
            Some((sum, count)) => sum / count,
            None => 0.0,
        };
        let column = self.columns[side].iter();
        column.map(|node| (*node, mean(node))).collect()
    }

    fn places(&self, side: usize) -> BTreeMap<usize, f64> {
        let column = self.columns[side].iter();
        column.copied().zip((0_u32..).map(f64::from)).collect()
    }

    /// Counts the pairs of lines that cross. A tree of sums makes it fast even for thousands of lines.
    fn crossings(&self) -> usize {
        let [from, to] = [0, 1].map(|side| {
            let column = self.columns[side].iter().enumerate();
            column
                .map(|(place, node)| (*node, place))
                .collect::<BTreeMap<_, _>>()
        });
        let mut lines: Vec<(usize, usize)> =
            self.lines.iter().map(|(a, b)| (from[a], to[b])).collect();
        lines.sort_unstable();
        let mut sums = vec![0; to.len() + 1];
        let mut crossings = 0;
        for (seen, (_, place)) in lines.into_iter().enumerate() {
            let mut not_below = 0;
            let mut at = place + 1;
            while at > 0 {
                not_below += sums[at];
                at &= at - 1;
            }
            crossings += seen - not_below;
            let mut at = place + 1;
            while at < sums.len() {
                sums[at] += 1;
                at += at & at.wrapping_neg();
            }
        }
        crossings
    }

    /// Returns each node with its upper edge, one column after the other.
    fn placed(&self, pitch: f64) -> [Vec<(usize, f64)>; 2] {
        let long = usize::from(self.columns[1].len() > self.columns[0].len());
        let short = 1 - long;
        let room = pitch
            * count(
                self.columns[long]
                    .len()
                    .saturating_sub(self.columns[short].len()),
            );
        let means = self.means(short);
        let wishes: Vec<f64> = self.columns[short]
            .iter()
            .zip(0_u32..)
            .map(|(node, place)| means[node] * pitch - f64::from(place) * pitch)
            .collect();
        let shifts = nearest_that_never_fall(&wishes);
        let stacked = |side: usize, shift: &dyn Fn(usize) -> f64| {
            let column = self.columns[side].iter().enumerate();
            let top = |(place, node): (usize, &usize)| (*node, count(place) * pitch + shift(place));
            column.map(top).collect::<Vec<_>>()
        };
        let longer = stacked(long, &|_| 0.0);
        let shorter = stacked(short, &|place| shifts[place].clamp(0.0, room));
        if long == 0 {
            [longer, shorter]
        } else {
            [shorter, longer]
        }
    }
}

/// Returns the non-decreasing numbers that are nearest to `wishes`: neighbours in the wrong order share their
/// mean.
fn nearest_that_never_fall(wishes: &[f64]) -> Vec<f64> {
    let mut runs: Vec<(f64, usize)> = Vec::new();
    for &wish in wishes {
        runs.push((wish, 1));
        while let [.., (before, many), (last, more)] = runs[..] {
            if before <= last {
                break;
            }
            runs.truncate(runs.len() - 2);
            let mean = (before * count(many) + last * count(more)) / count(many + more);
            runs.push((mean, many + more));
        }
    }
    let repeated = |(value, many)| std::iter::repeat_n(value, many);
    runs.into_iter().flat_map(repeated).collect()
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).expect("no cluster has so many objects"))
}

/// Number of sorting rounds. More rounds hardly improve anything.
const ROUNDS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    const SPACING: Spacing = Spacing {
        node: 40.0,
        gap: 10.0,
        between: 20.0,
    };

    #[test]
    fn an_empty_graph_takes_no_room() {
        assert_eq!(layout(0, 0, &[], SPACING), Layout::default());
    }

    #[test]
    fn an_object_stands_in_the_middle_of_what_it_restarts() {
        let layout = layout(1, 3, &[(0, 0), (0, 1), (0, 2)], SPACING);
        assert_eq!(layout.left, [50.0]);
        assert_eq!(layout.right, [0.0, 50.0, 100.0]);
        assert_eq!(layout.height, 140.0);
    }

    #[test]
    fn unconnected_parts_are_placed_apart_in_the_order_of_their_first_nodes() {
        let layout = layout(2, 3, &[(0, 2), (1, 0)], SPACING);
        assert_eq!(layout.left, [0.0, 70.0]);
        assert_eq!(layout.right, [70.0, 140.0, 0.0]);
    }

    #[test]
    fn lines_that_need_not_cross_do_not() {
        let lines = [(0, 3), (1, 2), (2, 1), (3, 0), (0, 2), (1, 1), (2, 0)];
        let layout = layout(4, 4, &lines, SPACING);
        assert_eq!(crossings(&layout.left, &layout.right, &lines), 0);
    }

    #[test]
    fn fewer_lines_cross_than_if_sorted_by_name() {
        let lines: Vec<(usize, usize)> = (0..60)
            .flat_map(|workload| {
                [workload * 7 % 30, workload * 11 % 30].map(|object| (object, workload))
            })
            .collect();
        let by_name: Vec<f64> = (0..60).map(f64::from).collect();
        let layout = layout(30, 60, &lines, SPACING);
        let before = crossings(&by_name[..30], &by_name, &lines);
        let after = crossings(&layout.left, &layout.right, &lines);
        assert!(after * 2 < before, "{after} of {before}");
    }

    #[test]
    fn the_number_of_crossings_matches_a_check_of_each_pair() {
        let lines: Vec<(usize, usize)> = (0..40).map(|n| (n * n % 17, n * 5 % 23)).collect();
        let tops: Vec<f64> = (0..23).map(|n| f64::from(n * 13 % 23)).collect();
        let mut pairs = 0;
        for (at, a) in lines.iter().enumerate() {
            for b in &lines[..at] {
                let left = tops[a.0].total_cmp(&tops[b.0]);
                let right = tops[a.1].total_cmp(&tops[b.1]);
                pairs += usize::from(left != right && left.is_ne() && right.is_ne());
            }
        }
        assert_eq!(crossings(&tops[..17], &tops, &lines), pairs);
    }

    #[test]
    fn no_node_overlaps_another_whatever_the_lines_are() {
        for seed in 0..50_usize {
            let (left, right) = (1 + seed % 9, 1 + seed * 7 % 13);
            let lines: Vec<(usize, usize)> = (0..seed)
                .map(|n| ((n * 31 + seed) % left, (n * n + 3 * seed) % right))
                .collect();
            let layout = layout(left, right, &lines, SPACING);
            for mut column in [layout.left, layout.right] {
                column.sort_by(f64::total_cmp);
                for pair in column.windows(2) {
                    assert!(pair[1] - pair[0] > 49.99, "{pair:?} with seed {seed}");
                }
                let last = column.last().expect("each column has a node");
                assert!(column[0] >= 0.0 && last + 40.0 <= layout.height + 0.01);
            }
        }
    }
}

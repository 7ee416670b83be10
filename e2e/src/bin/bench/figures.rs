//! The results: a table to read, and JSON to compare.

use std::{fmt, time::Duration};

use serde::Serialize;

/// One line of the table.
#[derive(Debug, Serialize)]
struct Figure {
    what: String,
    floor: Option<String>,
    ours: String,
    ratio: Option<f64>,
    spreads: Option<[Spread; 2]>,
    goal: &'static str,
}

/// All lines, in the order of measurement.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Figures(Vec<Figure>);

impl Figures {
    /// Adds a line of durations, with their ratio.
    pub(crate) fn compare(&mut self, what: &str, floor: Spread, ours: Spread, goal: &'static str) {
        self.add(Figure {
            what: what.to_owned(),
            floor: Some(floor.to_string()),
            ours: ours.to_string(),
            ratio: Some(ours.median / floor.median),
            spreads: Some([floor, ours]),
            goal,
        });
    }

    /// Adds a line without a floor, or with one in words.
    pub(crate) fn say(
        &mut self,
        what: &str,
        floor: Option<&str>,
        ours: String,
        goal: &'static str,
    ) {
        self.add(Figure {
            what: what.to_owned(),
            floor: floor.map(str::to_owned),
            ours,
            ratio: None,
            spreads: None,
            goal,
        });
    }

    fn add(&mut self, figure: Figure) {
        println!("{figure}");
        self.0.push(figure);
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}"));
        write!(
            f,
            "| {} | {} | {} | {} | {} |",
            self.what,
            self.floor.as_deref().unwrap_or("-"),
            self.ours,
            ratio.as_deref().unwrap_or("-"),
            self.goal
        )
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| what | floor | ours | ratio | goal |")?;
        writeln!(f, "| --- | --- | --- | --- | --- |")?;
        self.0.iter().try_for_each(|figure| writeln!(f, "{figure}"))
    }
}

/// The spread of several measurements of one thing, in seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) least: f64,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) greatest: f64,
}

impl Spread {
    /// Returns the spread of `all`, which must not be empty.
    pub(crate) fn of(mut all: Vec<Duration>) -> Self {
        all.sort();
        let last = all.len() - 1;
        let of_a_hundred = |share: usize| all[last * share / 100].as_secs_f64();
        Self {
            count: all.len(),
            least: of_a_hundred(0),
            median: of_a_hundred(50),
            p99: of_a_hundred(99),
            greatest: of_a_hundred(100),
        }
    }

    /// Returns the spread moved by this many seconds.
    pub(crate) fn plus(self, more: f64) -> Self {
        Self {
            count: self.count,
            least: self.least + more,
            median: self.median + more,
            p99: self.p99 + more,
            greatest: self.greatest + more,
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (factor, unit, digits) = match self.median.abs() {
            ..1e-3 => (1e6, "us", 0),
            ..1.0 => (1e3, "ms", 2),
            _ => (1.0, "s", 2),
        };
        let [median, least, p99, greatest] =
            [self.median, self.least, self.p99, self.greatest].map(|it| it * factor);
        write!(
            f,
            "**{median:.digits$} {unit}** ({least:.digits$} to {greatest:.digits$}"
        )?;
        if self.count >= 100 {
            write!(f, ", p99 {p99:.digits$}")?;
        }
        write!(f, ", n {})", self.count)
    }
}

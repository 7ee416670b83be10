//! The number of watches of a leader, as the tables of `docs/scale.md` have it.

use anyhow::{Context, Result, bail, ensure};
use pod_reloader_e2e::{PATIENCE, Scene, done_if, wait_for};
use serde_json::{Value, json};

const PAGE: &str = include_str!("../../../docs/scale.md");

/// Asserts that the operator of a scene, which leads, has begun as many watches as the table says for its values.
pub(crate) async fn are_as_documented(scene: &Scene) -> Result<()> {
    let expected = documented(&scene.values())?;
    wait_for("the documented number of watches", PATIENCE, async || {
        let watches = scene.watches_of(&scene.installation, scene.began()).await?;
        let seen = format!("{expected} are documented: {watches:?}");
        ensure!(watches.len() <= expected, "{seen}");
        done_if(watches.len() == expected, seen)
    })
    .await
}

#[test]
fn the_watches_of_several_releases_are_those_of_one_times_their_number() -> Result<()> {
    let selector = json!({"watch": {"namespaceSelector": {"matchLabels": {"team": "shop"}}}});
    let each = documented(&selector)?;
    let rows = rows("| releases | ")?;
    ensure!(!rows.is_empty(), "the page has rows of releases");
    for row in rows {
        let [releases, _, _, watches, _] = row[..] else {
            bail!("{row:?}: not five cells");
        };
        let expected = releases.parse::<usize>()? * each;
        ensure!(watches == expected.to_string(), "{row:?}");
    }
    Ok(())
}

/// Returns the number of watches that the table says for these values of the chart.
fn documented(values: &Value) -> Result<usize> {
    let mut sum = 0;
    for row in rows("| with | watches | ")? {
        let [with, watches, _] = row[..] else {
            bail!("{row:?}: not three cells");
        };
        sum += watches.parse::<isize>()? * isize::try_from(times(with, values))?;
    }
    Ok(usize::try_from(sum)?)
}

/// Returns how often a row counts for these values of the chart: once for each element of a list, else once if one of
/// the values that it names is set. A row that names none always counts once.
fn times(with: &str, values: &Value) -> usize {
    let codes = with.split('`').skip(1).step_by(2);
    let times = codes.map(|code| {
        let (name, wanted) = code.split_once(": ").unwrap_or((code, "true"));
        let path = format!("/{}", name.replace('.', "/"));
        match values.pointer(&path) {
            None => 0,
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(fields)) => usize::from(!fields.is_empty()),
            Some(Value::String(text)) => usize::from(text == wanted),
            Some(value) => {
                let text = value.to_string();
                usize::from(text == wanted)
            }
        }
    });
    times.max().unwrap_or(1)
}

/// Returns the cells of each row of the table of the page whose head begins like this.
fn rows(head: &str) -> Result<Vec<Vec<&'static str>>> {
    let mut lines = PAGE.lines().skip_while(|line| !line.starts_with(head));
    lines.next().with_context(|| head.to_owned())?;
    let rows = lines.skip(1).take_while(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim));
    Ok(cells.map(Iterator::collect).collect())
}

//! Compares `docs/flags.md` with the command line.

use std::fs;

use super::*;

/// Where the page is.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flags.md");
/// What is between these two lines is written by `make golden`.
const BEGINS: &str = "<!-- flags -->\n";
const ENDS: &str = "<!-- end of flags -->\n";

#[test]
fn the_documented_flags_are_those_of_the_command_line() {
    let page = fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGINS).unwrap();
    let (_, after) = rest.split_once(ENDS).unwrap();
    let current = format!("{before}{BEGINS}{}{ENDS}{after}", table());
    if env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(PAGE, &current).unwrap();
        return;
    }
    assert!(page == current, "{PAGE} differs: `make golden` writes it");
}

#[test]
fn the_documented_ports_are_those_of_the_command_line() {
    let page = include_str!("../../../../docs/network.md");
    let command = Args::command();
    for (name, value) in [
        ("webhook-bind-address", "webhook.port"),
        ("metrics-bind-address", "ports.metrics"),
        ("health-probe-bind-address", "ports.probes"),
    ] {
        let flag = command
            .get_arguments()
            .find(|it| it.get_long() == Some(name));
        let port = default(flag.unwrap()).replace(':', "");
        let row = format!("| {port} | `{value}` |");
        assert!(page.contains(&row), "{row}");
    }
}

/// Returns a row for each flag, in the order of the help.
fn table() -> String {
    let header = "| flag | variable | value of the chart | default | meaning |\n| --- | --- | --- | --- | --- |\n";
    let values = values_of_the_chart();
    let set = flags_of_the_chart();
    let command = Args::command();
    let flags = command
        .get_arguments()
        .filter(|flag| *flag.get_id() != "help");
    let rows = flags.map(|flag| {
        let name = flag.get_long().unwrap();
        let value = if set.contains(name) {
            value_of_the_chart(name, &values)
        } else {
            String::new()
        };
        row(flag, name, &value)
    });
    header.to_owned() + &rows.collect::<String>()
}

/// Returns the values of the chart that a flag comes from.
fn value_of_the_chart(flag: &str, values: &BTreeMap<String, String>) -> String {
    let otherwise = NAMED_OTHERWISE.iter().find(|(name, ..)| *name == flag);
    match otherwise {
        Some((_, [], _)) => "set by the chart".to_owned(),
        Some((_, names, _)) => in_ticks(names),
        None => in_ticks(&[values[flag].as_str()]),
    }
}

fn row(flag: &Arg, name: &str, value: &str) -> String {
    let variable = flag.get_env().and_then(OsStr::to_str).unwrap();
    let help = flag.get_help().unwrap().to_string();
    // A default that is not one value is at the end of the help.
    let (meaning, said) = match help.rsplit_once(" [default") {
        Some((meaning, said)) => (meaning, said.strip_suffix(']')),
        None => (help.as_str(), None),
    };
    let default = match said {
        Some(said) => said.trim_start_matches([':', ' ']).to_owned(),
        None => default(flag),
    };
    let mut names = format!("`--{name}`");
    for alias in flag.get_all_aliases().unwrap_or_default() {
        names += &format!(", `--{alias}`");
    }
    let cells = [
        names,
        format!("`{variable}`"),
        value.to_owned(),
        default,
        format!("{meaning}{}", words(flag)),
    ];
    let cells = cells.map(|cell| cell.replace('|', r"\|"));
    format!("| {} |\n", cells.join(" | "))
}

fn default(flag: &Arg) -> String {
    let defaults = flag.get_default_values().iter();
    let defaults: Vec<_> = defaults.filter_map(|value| value.to_str()).collect();
    if defaults.is_empty() || flag.is_hide_default_value_set() {
        "none".to_owned()
    } else {
        in_ticks(&defaults)
    }
}

/// Returns the words of which a flag takes one, as a sentence.
fn words(flag: &Arg) -> String {
    let words = flag.get_possible_values();
    let words: Vec<_> = words.iter().map(|word| word.get_name()).collect();
    match words[..] {
        [] | ["true", "false"] => String::new(),
        _ => format!(". One of {}", in_ticks(&words)),
    }
}

fn in_ticks(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

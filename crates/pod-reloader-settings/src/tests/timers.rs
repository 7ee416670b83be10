//! Compares `docs/timers.md` with the constants and the flags that it names.

use std::fs;

use pod_reloader_core::duration::parse;

use super::*;

/// The folder of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn the_documented_timers_are_those_of_the_code() {
    let page = fs::read_to_string(format!("{ROOT}/docs/timers.md")).unwrap();
    let mut compared = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split('|').collect();
        let [_, _, _, defaults, _, source] = cells[..] else {
            panic!("{row}");
        };
        let source = ticked(source);
        let actual: Vec<_> = match source.as_slice() {
            [] => continue,
            [flag] => vec![default_of(flag)],
            [path, names @ ..] => {
                let code = fs::read_to_string(format!("{ROOT}/{path}")).unwrap();
                names.iter().map(|name| constant(&code, name)).collect()
            }
        };
        let documented: Vec<_> = ticked(defaults).into_iter().filter_map(parse).collect();
        assert_eq!(documented, actual, "{row}");
        compared += 1;
    }
    assert!(compared > 40, "{compared}");
}

/// Returns the default of a flag for a duration.
fn default_of(flag: &str) -> Duration {
    let command = Args::command();
    let is_it = |arg: &&Arg| arg.get_long() == flag.strip_prefix("--");
    let arg = command.get_arguments().find(is_it).unwrap();
    let default = arg.get_default_values()[0].to_str();
    default.and_then(parse).unwrap()
}

/// Returns the duration that a file declares under this name: a sum of products.
fn constant(code: &str, name: &str) -> Duration {
    let declaration = format!(
        r"const {name}: (?:Signed)?Duration = (?:Signed)?Duration::from_(secs|mins)\(([0-9 *+]+)\);"
    );
    let declaration = regex::Regex::new(&declaration).unwrap();
    let Some(found) = declaration.captures(code) else {
        panic!("there is no duration {name}");
    };
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    let product = |text: &str| text.split('*').map(number).product::<u64>();
    let count: u64 = found[2].split('+').map(product).sum();
    match &found[1] {
        "mins" => Duration::from_secs(count * 60),
        _ => Duration::from_secs(count),
    }
}

/// Returns the parts of a text that are in backticks.
fn ticked(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

//! The two rules: no arrow back up, and no cycle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use crate::arrows::Module;
use crate::source::{Arrow, Crate};

/// Returns the faults of a crate, a line each.
pub(crate) fn faults(of: &Crate) -> Vec<String> {
    let arrows = siblings(of);
    let mut faults = Vec::new();
    for ((from, to), arrow) in &arrows {
        if let ([from], [to]) = (&from[..], &to[..])
            && layer(of, from) < layer(of, to)
        {
            faults.push(format!(
                "{} uses {}, which stands in a layer below it in {}",
                at(of, arrow),
                file(of, &arrow.to),
                file(of, &[])
            ));
        }
    }
    faults.extend(cycles(of, &arrows));
    faults
}

/// Each pair of modules in one folder of which one uses the other, with the first line that does so.
fn siblings(of: &Crate) -> BTreeMap<(Module, Module), &Arrow> {
    let mut arrows = BTreeMap::new();
    for arrow in &of.uses {
        let common = arrow.from.iter().zip(&arrow.to);
        let common = common.take_while(|(from, to)| from == to).count();
        // A module and what is inside it are one.
        if common < arrow.from.len() && common < arrow.to.len() {
            let pair = (arrow.from[..=common].to_vec(), arrow.to[..=common].to_vec());
            arrows.entry(pair).or_insert(arrow);
        }
    }
    arrows
}

/// The shortest cycles: none that has all modules of a shorter one.
fn cycles(of: &Crate, arrows: &BTreeMap<(Module, Module), &Arrow>) -> Vec<String> {
    let mut rounds = Vec::new();
    for (from, to) in arrows.keys() {
        let back = way(arrows, to, from);
        rounds.extend(back.map(|back| [vec![from.clone()], back].concat()));
    }
    rounds.sort_by_key(Vec::len);
    let mut told: Vec<BTreeSet<Module>> = Vec::new();
    let mut faults = Vec::new();
    for round in rounds {
        let members: BTreeSet<_> = round.iter().cloned().collect();
        if told.iter().any(|told| told.is_subset(&members)) {
            continue;
        }
        told.push(members);
        let steps = round.windows(2).map(|step| {
            let arrow = arrows[&(step[0].clone(), step[1].clone())];
            format!("{} uses {}", at(of, arrow), file(of, &arrow.to))
        });
        faults.push(format!(
            "these modules use each other: {}",
            steps.collect::<Vec<_>>().join(", ")
        ));
    }
    faults
}

/// The shortest way along arrows, with both ends.
fn way(
    arrows: &BTreeMap<(Module, Module), &Arrow>,
    from: &Module,
    to: &Module,
) -> Option<Vec<Module>> {
    let mut ways = VecDeque::from([vec![from.clone()]]);
    let mut seen = BTreeSet::from([from]);
    while let Some(way) = ways.pop_front() {
        let end = way.last()?;
        if end == to {
            return Some(way);
        }
        for (_, next) in arrows.keys().filter(|(from, _)| from == end) {
            if seen.insert(next) {
                ways.push_back([way.clone(), vec![next.clone()]].concat());
            }
        }
    }
    None
}

/// The place of a module's layer. What no layer names has none.
fn layer(of: &Crate, module: &str) -> Option<usize> {
    let has = |layer: &Vec<String>| layer.iter().any(|name| name == module);
    of.layers.iter().position(has)
}

fn at(of: &Crate, arrow: &Arrow) -> String {
    format!("{}:{}", file(of, &arrow.from), arrow.line)
}

fn file(of: &Crate, module: &[String]) -> String {
    let file = of.files.get(module).map(|file| file.display().to_string());
    file.unwrap_or_else(|| {
        Path::new("src")
            .join(module.join("/"))
            .display()
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The faults of a crate of these files.
    fn faults_of(files: &[(&str, &str)]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = directory.path().join("src").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let src = format!("{}/src/", directory.path().display());
        let faults = faults(&Crate::read(directory.path()).unwrap());
        faults.iter().map(|fault| fault.replace(&src, "")).collect()
    }

    #[test]
    fn a_layer_uses_itself_and_those_above_it() {
        let files = [
            (
                "lib.rs",
                "mod name;\npub mod text;\n\npub(crate) mod top;\n",
            ),
            ("name.rs", "use crate::text::Text;\n"),
            ("text.rs", "//! See [`crate::top`].\n"),
            ("top.rs", "fn run() {\n    crate::name::parse();\n}\n"),
        ];
        assert_eq!(faults_of(&files), Vec::<String>::new());
    }

    #[test]
    fn an_arrow_back_up_names_both_files() {
        let files = [
            ("lib.rs", "mod name;\n\nmod top;\n"),
            ("name.rs", "\nuse crate::top::{\n    self,\n    Top,\n};\n"),
            ("top.rs", ""),
        ];
        assert_eq!(
            faults_of(&files),
            ["name.rs:3 uses top.rs, which stands in a layer below it in lib.rs"]
        );
    }

    #[test]
    fn a_cycle_names_every_file_in_it() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::b::B;\n"),
            ("b.rs", "\ntype C = super::c::C;\n"),
            ("c.rs", "macro!(x, crate::a::A);\n"),
        ];
        assert_eq!(
            faults_of(&files),
            ["these modules use each other: a.rs:1 uses b.rs, b.rs:2 uses c.rs, c.rs:1 uses a.rs"]
        );
    }

    #[test]
    fn a_cycle_of_modules_in_a_folder_is_a_fault() {
        let files = [
            ("lib.rs", "mod server;\n"),
            (
                "server.rs",
                "mod body;\nmod limits;\npub use self::limits::Limits;\n",
            ),
            ("server/body.rs", "use super::limits::Limits;\n"),
            (
                "server/limits.rs",
                "use crate::server::body::Body;\nuse super::Server;\n",
            ),
        ];
        assert_eq!(
            faults_of(&files),
            [
                "these modules use each other: server/body.rs:1 uses server/limits.rs, \
                 server/limits.rs:1 uses server/body.rs"
            ]
        );
    }

    #[test]
    fn an_export_of_the_root_belongs_to_the_module_that_defines_it() {
        let files = [
            (
                "lib.rs",
                "mod error;\n\nmod file;\n\npub use file::{File, Opened};\n",
            ),
            ("error.rs", "use crate::File;\n"),
            ("file.rs", ""),
        ];
        assert_eq!(
            faults_of(&files),
            ["error.rs:1 uses file.rs, which stands in a layer below it in lib.rs"]
        );
    }

    #[test]
    fn tests_may_use_everything() {
        let files = [
            (
                "lib.rs",
                "mod name;\n\nmod top;\n\n#[cfg(test)]\nmod fixtures;\n",
            ),
            (
                "name.rs",
                "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod more {\n    use crate::top::Top;\n}\n",
            ),
            ("name/tests.rs", "use crate::top::Top;\n"),
            ("top.rs", "use crate::name::Name;\n"),
            ("fixtures.rs", "use crate::top::Top;\n"),
        ];
        assert_eq!(faults_of(&files), Vec::<String>::new());
    }
}

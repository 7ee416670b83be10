//! The files of a crate, and what each of them uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use proc_macro2::TokenStream;

use crate::arrows::{Declared, Module, Use, scan};

/// A crate's modules, without those of its tests.
pub(crate) struct Crate {
    /// The layers of `lib.rs`, in its order.
    pub(crate) layers: Vec<Vec<String>>,
    pub(crate) files: BTreeMap<Module, PathBuf>,
    pub(crate) uses: Vec<Arrow>,
}

/// A line of one module that uses another.
#[derive(Clone, Debug)]
pub(crate) struct Arrow {
    pub(crate) from: Module,
    pub(crate) to: Module,
    pub(crate) line: usize,
}

impl Crate {
    /// Reads the crate of `directory`, the folder with `src/lib.rs`, or `src/main.rs`.
    ///
    /// # Errors
    /// A file cannot be read, or is no Rust.
    pub(crate) fn read(directory: &Path) -> Result<Self> {
        let root = directory.join("src");
        let roots = ["lib.rs", "main.rs"].map(|name| root.join(name));
        let lib = roots.into_iter().find(|file| file.is_file());
        let lib = lib.with_context(|| format!("{} is no crate", directory.display()))?;
        let mut files = BTreeMap::from([(Module::new(), lib.clone())]);
        let mut uses = Vec::new();
        let mut exports = BTreeMap::new();
        let mut left = vec![Module::new()];
        while let Some(module) = left.pop() {
            let text = read(&files[&module])?;
            let tokens: TokenStream = text
                .parse()
                .map_err(|error| anyhow!("{}: {error}", files[&module].display()))?;
            let Declared {
                modules,
                uses: found,
                exports: exported,
            } = scan(&module, tokens);
            for name in modules {
                let inner = [module.clone(), vec![name]].concat();
                let path = root.join(inner.join("/"));
                let file = [path.with_extension("rs"), path.join("mod.rs")]
                    .into_iter()
                    .find(|file| file.is_file());
                if let Some(file) = file {
                    files.insert(inner.clone(), file);
                    left.push(inner);
                }
            }
            if module.is_empty() {
                exports = exported;
            } else {
                uses.extend(found.into_iter().map(|found| (module.clone(), found)));
            }
        }
        let known: BTreeSet<_> = files.keys().cloned().collect();
        let uses = uses
            .into_iter()
            .map(|(from, Use { path, line })| Arrow {
                from,
                to: module_of(&path, &known, &exports),
                line,
            })
            .collect();
        Ok(Self {
            layers: layers(&read(&lib)?),
            files,
            uses,
        })
    }
}

/// The innermost module that a path leads to. `crate::Name` is in the module that `lib.rs` exports it from.
fn module_of(
    path: &[String],
    known: &BTreeSet<Module>,
    exports: &BTreeMap<String, Module>,
) -> Module {
    let exported = path.first().and_then(|name| exports.get(name));
    let path = match exported {
        Some(module) if !known.contains(&path[..1]) => module,
        _ => path,
    };
    let depths = (0..=path.len()).rev();
    let inner = depths.map(|depth| &path[..depth]);
    let found = inner.into_iter().find(|inner| known.contains(*inner));
    found.map(<[String]>::to_vec).unwrap_or_default()
}

/// Each run of lines that declare modules.
fn layers(lib: &str) -> Vec<Vec<String>> {
    let mut layers = vec![Vec::new()];
    for line in lib.lines() {
        if line.trim().is_empty() {
            layers.push(Vec::new());
        }
        let declared = line
            .strip_suffix(';')
            .and_then(|line| line.rsplit_once("mod "))
            .filter(|(before, _)| before.is_empty() || before.starts_with("pub"));
        if let (Some((_, name)), Some(layer)) = (declared, layers.last_mut()) {
            layer.push(name.to_owned());
        }
    }
    layers.retain(|layer| !layer.is_empty());
    layers
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

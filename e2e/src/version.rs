//! A version of pod-reloader: the program of its operator, and its chart.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::programs::of_the_workspace;

/// Variable that names the operator's program. Without it, the one built beside this program is used.
pub const OPERATOR_VARIABLE: &str = "POD_RELOADER_BIN";

/// The operator and the chart of the same sources.
#[derive(Clone, Debug)]
pub struct Version {
    /// Folder of the chart.
    pub chart: PathBuf,
    /// What is known of an earlier version; `None` for the present one.
    earlier: Option<Earlier>,
}

#[derive(Clone, Debug)]
struct Earlier {
    operator: PathBuf,
    /// The text of `--help`.
    help: String,
    /// The source of the annotations that it reads.
    annotations: String,
}

impl Version {
    /// Returns the version of these sources.
    pub fn present() -> Self {
        Self {
            chart: chart(),
            earlier: None,
        }
    }

    /// Returns an earlier version, from a folder that `scripts/earlier` has made.
    ///
    /// # Errors
    /// When the folder lacks something.
    pub fn earlier(folder: &Path) -> Result<Self> {
        let sources = folder.join("sources");
        let annotations = sources.join("crates/pod-reloader-core/src/annotations.rs");
        let operator = folder.join("pod-reloader");
        let help = Command::new(&operator).arg("--help").output();
        let help = help.with_context(|| format!("running {}", operator.display()))?;
        Ok(Self {
            chart: sources.join("charts").join("pod-reloader"),
            earlier: Some(Earlier {
                operator,
                help: String::from_utf8(help.stdout)?,
                annotations: fs::read_to_string(&annotations)
                    .with_context(|| format!("reading {}", annotations.display()))?,
            }),
        })
    }

    /// Returns true if its operator takes an argument such as `--drain-period=0s`.
    pub fn takes(&self, argument: &str) -> bool {
        let flag = argument.split('=').next().unwrap_or_default();
        let takes = |earlier: &Earlier| {
            let mut words = earlier.help.split([' ', '=', '[', ',', '\n']);
            words.any(|word| word == flag)
        };
        self.earlier.as_ref().is_none_or(takes)
    }

    /// Returns true if it reads an annotation such as `pod-reloader.cs.sap.com/auto`.
    pub fn knows(&self, annotation: &str) -> bool {
        let constant = format!("\"{annotation}\"");
        let knows = |earlier: &Earlier| earlier.annotations.contains(&constant);
        self.earlier.as_ref().is_none_or(knows)
    }

    /// Returns true if its chart has a value of this name, in whatever part of it.
    pub fn has_value(&self, name: &str) -> bool {
        let schema = fs::read_to_string(self.chart.join("values.schema.json"));
        schema.is_ok_and(|schema| schema.contains(&format!("\"{name}\": {{")))
    }

    /// Returns the program of its operator.
    pub(crate) fn operator(&self) -> Result<PathBuf> {
        if let Some(earlier) = &self.earlier {
            return Ok(earlier.operator.clone());
        }
        if let Some(path) = env::var_os(OPERATOR_VARIABLE) {
            return Ok(path.into());
        }
        of_the_workspace("pod-reloader").with_context(|| {
            format!("the operator is not built: run `cargo build -p pod-reloader`, or set {OPERATOR_VARIABLE}")
        })
    }
}

/// Returns the folder of the chart.
pub fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name("charts")
        .join("pod-reloader")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_version_takes_only_the_flags_in_its_help() {
        let version = Version {
            chart: chart(),
            earlier: Some(Earlier {
                operator: PathBuf::new(),
                help: "  --drain-period <DURATION>  how long\n  --leader-elect[=<BOOL>]".to_owned(),
                annotations: "pub const AUTO: &str = \"example.com/auto\";".to_owned(),
            }),
        };
        assert!(version.takes("--drain-period=0s") && version.takes("--leader-elect"));
        assert!(!version.takes("--drain=0s") && !version.takes("--max-restarts=0"));
        assert!(version.knows("example.com/auto") && !version.knows("example.com/pin"));
        assert!(Version::present().takes("--max-restarts=0"));
    }
}

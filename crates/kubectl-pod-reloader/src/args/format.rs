//! The formats of answers.

use std::ffi::OsStr;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ValueEnum};

use super::LIST_WATCH;
use crate::jsonpath::{Invalid, Template};

/// The format of an answer, with its template.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    pub(crate) output: Output,
    /// `None` unless the output is [`Output::JsonPath`].
    pub(crate) template: Option<Template>,
}

#[derive(Clone)]
pub(super) struct FormatParser;

impl TypedValueParser for FormatParser {
    type Value = Format;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Format, clap::Error> {
        let Some(text) = value.to_str().and_then(|it| it.strip_prefix("jsonpath=")) else {
            let output = EnumValueParser::new().parse_ref(command, arg, value)?;
            return Ok(Format {
                output,
                template: None,
            });
        };
        let invalid = |invalid: Invalid| {
            let kind = ErrorKind::ValueValidation;
            command.clone().error(kind, invalid)
        };
        Ok(Format {
            output: Output::JsonPath,
            template: Some(Template::parse(text).map_err(invalid)?),
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let all = Output::value_variants().iter();
        Some(Box::new(all.filter_map(ValueEnum::to_possible_value)))
    }
}

/// The name of a format of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs, and easier to read.
    Yaml,
    /// For people, with more columns.
    Wide,
    /// Names alone, as kubectl takes them.
    Name,
    /// The JSON in a template, as by kubectl: for example jsonpath='{.items}'.
    #[value(name = "jsonpath=TEMPLATE")]
    JsonPath,
    /// Mermaid, which Markdown shows. For graphs only.
    Mermaid,
    /// The language of Graphviz. For graphs only.
    Dot,
    /// A page that opens offline. For graphs only.
    Html,
}

impl Output {
    /// Returns the formats of a command, by its name.
    pub(crate) fn of(command: &str) -> &'static [Self] {
        match command {
            "graph" => &[
                Self::Text,
                Self::Mermaid,
                Self::Dot,
                Self::Html,
                Self::Json,
                Self::Yaml,
                Self::JsonPath,
            ],
            "list" => &[
                Self::Text,
                Self::Wide,
                Self::Json,
                Self::Yaml,
                Self::Name,
                Self::JsonPath,
            ],
            LIST_WATCH => &[Self::Text, Self::Wide],
            _ => &[Self::Text, Self::Json, Self::Yaml, Self::JsonPath],
        }
    }

    /// Returns an error if a command does not have this format.
    ///
    /// # Errors
    /// Names the formats that it has.
    pub(crate) fn is_of(self, command: &str) -> Result<(), String> {
        let formats = Self::of(command);
        if formats.contains(&self) {
            return Ok(());
        }
        let named = formats.iter().map(|format| format.name());
        Err(format!(
            "{command} has no output format {}; its formats are {}",
            self.name(),
            Vec::from_iter(named).join(", ")
        ))
    }

    /// Returns the format as typed.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

//! Parses templates, and translates their paths into the syntax of RFC 9535.

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use serde_json::Value;

use super::{Invalid, Part};

/// The characters that end a name after a dot.
const NAME_ENDS: &[char] = &['.', ',', '[', ']', '$', '@', '{', '}'];
/// The same in a filter, where an operator may follow.
const FILTERED_NAME_ENDS: &[char] = &[
    '.', ',', '[', ']', '$', '@', '{', '}', '(', ')', '=', '!', '<', '>', '&', '|',
];
/// The maximum number of ranges, filters and parentheses within each other. Each takes a part of the stack, and the time
/// in which jsonpath-rust refuses a wrong filter triples with each.
pub(super) const MAX_DEPTH: usize = 10;
/// The maximum number of paths for which lists of names may stand: two lists make a path of each pair of names.
const MAX_PATHS: usize = 256;

/// Returns the parts of a template.
///
/// # Errors
/// Names the first problem and its place.
pub(super) fn parts(text: &str) -> Result<Vec<Part>, Invalid> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
    };
    parser.parts(Until::TheEnd)
}

/// The end of the parts that are parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    TheEnd,
    EndOfRange,
}

struct Parser<'a> {
    text: &'a str,
    /// The number of bytes that have been parsed.
    at: usize,
    /// The number of ranges, filters and parentheses that have begun and not ended.
    depth: usize,
}

impl<'a> Parser<'a> {
    fn parts(&mut self, until: Until) -> Result<Vec<Part>, Invalid> {
        let mut parts = Vec::new();
        loop {
            let text = self.take_while(|character| character != '{');
            if !text.is_empty() {
                parts.push(Part::Text(text.to_owned()));
            }
            if !self.take("{") {
                return match until {
                    Until::TheEnd => Ok(parts),
                    Until::EndOfRange => Err(self.invalid("{end} of {range} is missing")),
                };
            }
            self.skip_blanks();
            if self.take_word("end") {
                self.close()?;
                return match until {
                    Until::EndOfRange => Ok(parts),
                    Until::TheEnd => Err(self.invalid("{end} is without {range}")),
                };
            }
            if self.take_word("range") {
                self.skip_blanks();
                let paths = self.paths()?;
                self.close()?;
                self.enter()?;
                parts.push(Part::Each(paths, self.parts(Until::EndOfRange)?));
                self.depth -= 1;
                continue;
            }
            while !self.take("}") {
                parts.push(match self.peek() {
                    Some('"' | '\'') => Part::Text(self.quoted()?),
                    _ => Part::Values(self.paths()?),
                });
                self.skip_blanks();
            }
        }
    }

    fn close(&mut self) -> Result<(), Invalid> {
        self.skip_blanks();
        match self.take("}") {
            true => Ok(()),
            false => Err(self.invalid("} is missing")),
        }
    }

    /// Parses a path. It is several if it has a list of names, such as `['metadata.name', 'status']`.
    fn paths(&mut self) -> Result<Vec<JpQuery>, Invalid> {
        let begin = self.at;
        let paths = self.steps(NAME_ENDS)?;
        if self.at == begin {
            return Err(self.invalid(match self.peek() {
                None => "} is missing",
                Some(_) => "a path has to begin with a dot, such as .items[*].name",
            }));
        }
        let paths = paths
            .iter()
            .map(|path| parse_json_path(&format!("${path}")));
        let paths: Result<_, _> = paths.collect();
        paths.map_err(|_| Invalid {
            problem: "the path is not valid",
            at: self.position(begin),
        })
    }

    /// Translates the steps of a path into RFC 9535.
    fn steps(&mut self, ends: &[char]) -> Result<Vec<String>, Invalid> {
        let _ = self.take("$") || self.take("@");
        let begin = self.at;
        let mut paths = vec![String::new()];
        loop {
            if self.take("..") {
                append(&mut paths, "..");
                if self.peek() != Some('[') {
                    append(&mut paths, &self.name(ends)?);
                }
            } else if self.take(".") {
                let is_whole = self.at == begin + 1 && self.ends_here(ends);
                if !is_whole && self.peek() != Some('[') {
                    append(&mut paths, &self.name(ends)?);
                }
            } else if self.take("[") {
                let selected = self.selected()?;
                if selected.len() * paths.len() > MAX_PATHS {
                    return Err(self.invalid("too many names are listed"));
                }
                let each = selected
                    .iter()
                    .flat_map(|step| paths.iter().map(move |path| format!("{path}{step}")));
                paths = each.collect();
            } else {
                return Ok(paths);
            }
        }
    }

    /// Parses the name after a dot.
    fn name(&mut self, ends: &[char]) -> Result<String, Invalid> {
        let mut name = String::new();
        while !self.ends_here(ends) {
            let is_escaped = self.take("\\");
            let Some(character) = self.next() else {
                return Err(self.invalid("a character has to follow the backslash"));
            };
            if character == '*' && !is_escaped && name.is_empty() && self.ends_here(ends) {
                return Ok("[*]".to_owned());
            }
            name.push(character);
        }
        match name.is_empty() {
            true => Err(self.invalid("a name is missing")),
            false => Ok(step(&name)),
        }
    }

    fn ends_here(&self, ends: &[char]) -> bool {
        self.peek()
            .is_none_or(|character| character.is_whitespace() || ends.contains(&character))
    }

    /// Parses what is in brackets, up to the end of them. It is several steps if names are listed.
    fn selected(&mut self) -> Result<Vec<String>, Invalid> {
        self.skip_blanks();
        if self.take("?") {
            self.enter()?;
            let filter = self.filter()?;
            self.depth -= 1;
            return self.end_brackets(vec![format!("[?{filter}]")]);
        }
        if !matches!(self.peek(), Some('"' | '\'')) {
            let numbers = self
                .take_while(|character| character.is_ascii_digit() || "-:,* ".contains(character));
            if numbers.trim().is_empty() {
                return Err(self.invalid("a number, * or a name in quotes has to follow ["));
            }
            return self.end_brackets(vec![format!("[{}]", numbers.trim())]);
        }
        let mut names = vec![self.quoted_names()?];
        self.skip_blanks();
        while self.take(",") {
            self.skip_blanks();
            names.push(self.quoted_names()?);
            self.skip_blanks();
        }
        self.end_brackets(names)
    }

    fn end_brackets(&mut self, steps: Vec<String>) -> Result<Vec<String>, Invalid> {
        self.skip_blanks();
        match self.take("]") {
            true => Ok(steps),
            false => Err(self.invalid("] is missing")),
        }
    }

    /// Parses a filter with its parentheses.
    fn filter(&mut self) -> Result<String, Invalid> {
        let mut filter = String::new();
        let outside = self.depth;
        loop {
            match self.peek() {
                Some('"' | '\'') => filter += &literal(&self.quoted()?),
                Some(root @ ('@' | '$')) => {
                    filter.push(root);
                    let paths = self.steps(FILTERED_NAME_ENDS)?;
                    let [path] = &*paths else {
                        return Err(self.invalid("a filter cannot have a list of names"));
                    };
                    filter += path;
                }
                None | Some('{' | '}') => return Err(self.invalid(") is missing")),
                Some(character) => {
                    self.next();
                    filter.push(character);
                    match character {
                        '(' => self.enter()?,
                        _ if self.depth == outside => {
                            return Err(self.invalid("( has to follow ?"));
                        }
                        ')' => {
                            self.depth -= 1;
                            if self.depth == outside {
                                return Ok(filter);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Parses names in quotes. A dot separates them, unless a backslash stands before it.
    fn quoted_names(&mut self) -> Result<String, Invalid> {
        let Some(quote @ ('"' | '\'')) = self.peek() else {
            return Err(self.invalid("a name in quotes has to follow"));
        };
        self.next();
        let mut names = vec![String::new()];
        loop {
            let is_escaped = self.take("\\");
            let Some(character) = self.next() else {
                return Err(self.invalid("the quote has no end"));
            };
            match character {
                '.' if !is_escaped => names.push(String::new()),
                end if end == quote && !is_escaped => break,
                other => names.last_mut().expect("there is one").push(other),
            }
        }
        if names.iter().any(String::is_empty) {
            return Err(self.invalid("a name is missing"));
        }
        Ok(names.iter().map(|name| step(name)).collect())
    }

    /// Parses a text in quotes.
    fn quoted(&mut self) -> Result<String, Invalid> {
        let quote = self.next();
        let mut text = String::new();
        loop {
            match self.next() {
                None => return Err(self.invalid("the quote has no end")),
                Some('\\') => text.push(match self.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some(same @ ('\\' | '"' | '\'')) => same,
                    _ => return Err(self.invalid("the character after the backslash is unknown")),
                }),
                end if end == quote => return Ok(text),
                Some(other) => text.push(other),
            }
        }
    }

    /// Notes that a range, a filter or a parenthesis begins.
    fn enter(&mut self) -> Result<(), Invalid> {
        self.depth += 1;
        match self.depth > MAX_DEPTH {
            true => {
                Err(self.invalid("too many ranges, filters or parentheses are within each other"))
            }
            false => Ok(()),
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        if is_there {
            self.at += text.len();
        }
        is_there
    }

    fn take_word(&mut self, word: &str) -> bool {
        let after = self.rest().strip_prefix(word);
        let is_word = after.is_some_and(|after| !after.starts_with(char::is_alphanumeric));
        is_word && self.take(word)
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest
            .find(|character: char| !is_wanted(character))
            .unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn skip_blanks(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn invalid(&self, problem: &'static str) -> Invalid {
        Invalid {
            problem,
            at: self.position(self.at),
        }
    }

    fn position(&self, at: usize) -> usize {
        self.text[..at].chars().count() + 1
    }
}

fn append(paths: &mut [String], step: &str) {
    for path in paths {
        path.push_str(step);
    }
}

fn step(name: &str) -> String {
    format!("[{}]", literal(name))
}

/// Returns a text in quotes. RFC 9535 has the escapes of JSON.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

//! The paths in the tokens of a file.

use std::collections::BTreeMap;
use std::iter::Peekable;

use proc_macro2::{Delimiter, TokenStream, TokenTree, token_stream};

/// The names that lead from the root of a crate to a module: `["server", "connection"]`.
pub(crate) type Module = Vec<String>;

/// A path from the root of the crate, and the line where it stands.
pub(crate) struct Use {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// The declarations and uses in a file, except those for tests alone.
#[derive(Default)]
pub(crate) struct Declared {
    pub(crate) modules: Vec<String>,
    pub(crate) uses: Vec<Use>,
    /// The modules of the names that `pub use` exports from the root.
    pub(crate) exports: BTreeMap<String, Module>,
}

/// Reads the tokens of `module`.
pub(crate) fn scan(module: &[String], tokens: TokenStream) -> Declared {
    let mut declared = Declared::default();
    declared.read(module, tokens);
    declared
}

impl Declared {
    fn read(&mut self, module: &[String], tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == '#' => {
                    let Some(TokenTree::Group(attribute)) = tokens.peek().cloned() else {
                        continue;
                    };
                    tokens.next();
                    if attribute.to_string().replace(' ', "") == "[cfg(test)]" {
                        skip_item(&mut tokens);
                    } else {
                        self.read(module, attribute.stream());
                    }
                }
                TokenTree::Ident(word) if word == "mod" => {
                    if let Some(TokenTree::Ident(name)) = tokens.next() {
                        self.module(module, name.to_string(), &mut tokens);
                    }
                }
                TokenTree::Ident(word) if word == "pub" => {
                    skip_visibility(&mut tokens);
                    if next_is(&mut tokens, "use") {
                        tokens.next();
                        self.export(module, &mut tokens);
                    }
                }
                TokenTree::Ident(word) => {
                    let line = word.span().start().line;
                    if let Some(start) = start(module, &word.to_string())
                        && skip_colons(&mut tokens)
                    {
                        self.path(module, start, &mut tokens, line);
                    }
                }
                TokenTree::Group(group) => self.read(module, group.stream()),
                _ => {}
            }
        }
    }

    /// Reads what follows `mod name`.
    fn module(&mut self, module: &[String], name: String, tokens: &mut Tokens) {
        match tokens.peek() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inner = group.stream();
                tokens.next();
                // Paths in it are seen from there, and it is part of this file.
                let here = [module.to_vec(), vec![name]].concat();
                self.read(&here, inner);
            }
            _ => self.modules.push(name),
        }
    }

    /// Reads what follows `pub use`.
    fn export(&mut self, module: &[String], tokens: &mut Tokens) {
        let before = self.uses.len();
        let word = tokens.peek().map(ToString::to_string).unwrap_or_default();
        let line = tokens.peek().map_or(0, |token| token.span().start().line);
        let start = start(module, &word);
        if start.is_some() {
            tokens.next();
            skip_colons(tokens);
        }
        let start = start.unwrap_or_else(|| module.to_vec());
        self.path(module, start, tokens, line);
        if module.is_empty() {
            for Use { path, .. } in self.uses.drain(before..) {
                if let Some((name, module)) = path.split_last() {
                    self.exports.insert(name.clone(), module.to_vec());
                }
            }
        }
    }

    /// Reads the rest of a path that has begun with `start`, and every branch of it.
    fn path(&mut self, module: &[String], start: Vec<String>, tokens: &mut Tokens, line: usize) {
        let mut path = start;
        loop {
            match tokens.peek() {
                Some(TokenTree::Ident(word)) => {
                    let word = word.to_string();
                    tokens.next();
                    match word.as_str() {
                        "super" => drop(path.pop()),
                        "self" => {}
                        _ => path.push(word),
                    }
                    if !skip_colons(tokens) {
                        break;
                    }
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let branches = group.stream();
                    tokens.next();
                    self.branches(module, &path, branches);
                    return;
                }
                _ => break,
            }
        }
        self.uses.push(Use { path, line });
    }

    fn branches(&mut self, module: &[String], path: &[String], branches: TokenStream) {
        let mut tokens = branches.into_iter().peekable();
        while let Some(token) = tokens.peek() {
            let line = token.span().start().line;
            self.path(module, path.to_vec(), &mut tokens, line);
            // `as name`, and the comma.
            let is_comma = |token: TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            tokens.by_ref().any(is_comma);
        }
    }
}

type Tokens = Peekable<token_stream::IntoIter>;

/// Where a path begins that starts with this word in `module`, if it is one of this crate.
fn start(module: &[String], word: &str) -> Option<Vec<String>> {
    match word {
        "crate" => Some(Vec::new()),
        "self" => Some(module.to_vec()),
        "super" => Some(module.split_last()?.1.to_vec()),
        _ => None,
    }
}

/// Skips an item, with the attributes that are left.
fn skip_item(tokens: &mut Tokens) {
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}

fn skip_visibility(tokens: &mut Tokens) {
    tokens.next_if(|token| {
        matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis)
    });
}

/// Skips `::`. Says whether it was there.
fn skip_colons(tokens: &mut Tokens) -> bool {
    let is_colon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    tokens.next_if(is_colon).is_some() && tokens.next_if(is_colon).is_some()
}

fn next_is(tokens: &mut Tokens, word: &str) -> bool {
    matches!(tokens.peek(), Some(TokenTree::Ident(ident)) if ident == word)
}

//! Follows many paths through one object.

use std::collections::BTreeMap;

use jsonptr::{PointerBuf, Token};
use pod_reloader_api::MAX_PATH_LENGTH;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{NoPlace, Path, Place, SPEC, Step, Steps, text};
use crate::raw::{elements, is_list, is_object, member, members, single};

/// The longest value by which a path finds an element, in bytes.
const LONGEST_VALUE: usize = 4 * MAX_PATH_LENGTH;

/// Returns the place in `object` to which each path leads, as [`Path::place`] does. The object is passed through once
/// for each step of the longest path, however many paths there are.
pub fn places<'a>(object: &'a RawValue, paths: &[&Path]) -> Vec<Result<Place<'a>, NoPlace>> {
    let walks = paths.iter().enumerate().map(|(index, path)| Walk {
        index,
        before: SPEC,
        steps: path.steps(),
        pointer: PointerBuf::from_tokens([SPEC]),
        elements: Vec::new(),
    });
    let walks = walks.collect();
    let mut places = vec![Err(NoPlace::NotAField); paths.len()];
    walk_on(member(object, SPEC).ok().flatten(), walks, &mut places);
    places
}

/// A walk along a path, as far as it has come.
struct Walk<'p> {
    /// The position of the path among all of them.
    index: usize,
    /// The path up to here.
    before: &'p str,
    /// The steps that are left.
    steps: Steps<'p>,
    /// The place so far.
    pointer: PointerBuf,
    elements: Vec<(PointerBuf, Value)>,
}

/// The walks that go on to the same value, which may be missing.
#[derive(Default)]
struct Onward<'a, 'p> {
    value: Option<&'a RawValue>,
    walks: Vec<Walk<'p>>,
}

/// The walks that go on to the element of a list that has a certain value in a certain field.
#[derive(Default)]
struct Chosen<'a, 'p> {
    walks: Vec<Walk<'p>>,
    /// The first element that fits, its position, and the value of the field.
    first: Option<(usize, &'a RawValue, Value)>,
    has_another: bool,
}

impl Walk<'_> {
    /// Returns the place where the walk ends.
    fn end(self, here: Option<&RawValue>) -> Result<Place<'_>, NoPlace> {
        if here.is_some_and(|it| is_object(it) || is_list(it)) {
            return Err(NoPlace::NotAField);
        }
        Ok(Place {
            pointer: self.pointer,
            value: here.filter(|it| it.get() != "null"),
            elements: self.elements,
        })
    }
}

/// Walks on from `here`, where all of these walks have come.
fn walk_on<'a, 'p>(
    here: Option<&'a RawValue>,
    walks: Vec<Walk<'p>>,
    places: &mut [Result<Place<'a>, NoPlace>],
) {
    let mut fields: BTreeMap<&'p str, Onward<'a, 'p>> = BTreeMap::new();
    let mut chosen: BTreeMap<&'p str, BTreeMap<&'p str, Chosen<'a, 'p>>> = BTreeMap::new();
    for mut walk in walks {
        let (index, before) = (walk.index, walk.before);
        let Some((step, upto)) = walk.steps.next() else {
            places[index] = walk.end(here);
            continue;
        };
        walk.before = upto;
        match (step, here) {
            (Step::Field(name), Some(here)) if is_object(here) => {
                walk.pointer.push_back(Token::new(name));
                fields.entry(name).or_default().walks.push(walk);
            }
            (Step::Element { field, value }, Some(here)) if is_list(here) => {
                let of_field = chosen.entry(field).or_default();
                of_field.entry(value).or_default().walks.push(walk);
            }
            _ => places[index] = Err(NoPlace::Missing(before.into())),
        }
    }
    let Some(here) = here else {
        return;
    };
    if !fields.is_empty() {
        // It is well-formed, so what is left out at worst is a name that is no text.
        let _ = members(here, |name, value| {
            if let Some(onward) = fields.get_mut(name) {
                onward.value = Some(value);
            }
        });
        for Onward { value, walks } in fields.into_values() {
            walk_on(value, walks, places);
        }
    }
    if !chosen.is_empty() {
        walk_into(here, chosen, places);
    }
}

/// Walks on into the elements of a list. `chosen` has the walks by the field and the value that find an element.
fn walk_into<'a, 'p>(
    list: &'a RawValue,
    mut chosen: BTreeMap<&'p str, BTreeMap<&'p str, Chosen<'a, 'p>>>,
    places: &mut [Result<Place<'a>, NoPlace>],
) {
    let mut found: BTreeMap<&'p str, &'a RawValue> = BTreeMap::new();
    for (at, element) in elements(list.get()).into_iter().flatten().enumerate() {
        found.clear();
        let _ = members(element, |name, value| {
            if let Some((field, _)) = chosen.get_key_value(name) {
                found.insert(*field, value);
            }
        });
        for (field, value) in &found {
            let Some(value) = single(value, LONGEST_VALUE) else {
                continue;
            };
            let its_text = text(&value).unwrap_or_default();
            let of_field = chosen.get_mut(*field);
            let Some(chosen) = of_field.and_then(|it| it.get_mut(&*its_text)) else {
                continue;
            };
            chosen.has_another = chosen.first.is_some();
            chosen.first.get_or_insert((at, element, value));
        }
    }
    let mut onwards: BTreeMap<usize, Onward<'a, 'p>> = BTreeMap::new();
    for (field, of_field) in chosen {
        for Chosen {
            walks,
            first,
            has_another,
        } in of_field.into_values()
        {
            let Some((at, element, value)) = first.filter(|_| !has_another) else {
                for walk in walks {
                    let upto = walk.before.into();
                    places[walk.index] = Err(match has_another {
                        true => NoPlace::Ambiguous(upto),
                        false => NoPlace::Missing(upto),
                    });
                }
                continue;
            };
            let onward = onwards.entry(at).or_default();
            onward.value = Some(element);
            onward.walks.extend(walks.into_iter().map(|mut walk| {
                walk.pointer.push_back(Token::from(at));
                let mut test = walk.pointer.clone();
                test.push_back(Token::new(field));
                walk.elements.push((test, value.clone()));
                walk
            }));
        }
    }
    for Onward { value, walks } in onwards.into_values() {
        walk_on(value, walks, places);
    }
}

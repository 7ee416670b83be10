use proptest::prelude::*;
use regex::bytes::RegexBuilder;

use super::*;
use crate::name::MAX_LENGTH as LONGEST_NAME;

fn compiled(text: &str) -> (Option<NameRegex>, usize) {
    let mut work = Work::new();
    let regex = NameRegex::compile(text, &mut work);
    (regex, Work::MAX - work.left())
}

fn anchored(items: impl IntoIterator<Item = String>) -> String {
    format!("^({})$", Vec::from_iter(items).join("|"))
}

#[test]
fn an_expression_that_explodes_is_refused_within_its_work() {
    let counted = (1..=250).rev().map(|n| format!("[ab]*a[ab]{{{n}}}z"));
    for (explosive, most) in [
        ("[ab]*a[ab]{250}z".to_owned(), Work::MAX),
        (anchored(counted.take(30)), Work::MAX),
        ("([a-z]{1,30}){1,30}x".to_owned(), Work::MAX),
        ("(.*a){40}".to_owned(), Work::MAX),
        // An expression refused before it is made deterministic still uses up some of the work.
        ("(a{1000}){1000}".to_owned(), Work::MAX / 8),
        ("((((a{9}){9}){9}){9}){9}".to_owned(), Work::MAX / 8),
        ("a".repeat(MAX_LENGTH + 1), 0),
        (r"(?u)\w".to_owned(), 0),
        ("(?iu:x)".to_owned(), 0),
    ] {
        let (regex, work) = compiled(&explosive);
        if let Some(regex) = regex {
            assert!(
                regex.size() <= 64 << 10,
                "{explosive}: {} bytes",
                regex.size()
            );
        }
        assert!(work <= most, "{explosive}: {work}");
    }
    assert_eq!(compiled("[ab]*a[ab]{250}z").0, None);
}

#[test]
fn nothing_is_compiled_once_the_work_is_used_up() {
    let mut work = Work::new();
    assert_eq!(NameRegex::compile("^[ab]*a[ab]{250}z$", &mut work), None);
    assert_eq!(work.left(), 0);
    assert_eq!(NameRegex::compile("^a$", &mut work), None);
}

#[test]
fn expressions_that_people_write_are_compiled() {
    let name = |n: usize| format!("{}-{n:02}-config", "team-a-service-of-the-shop".repeat(2));
    let names = anchored((0..32).map(name).inspect(|name| assert_eq!(name.len(), 62)));
    let one_by_one = |text: &str| {
        let mut work = Work::new();
        let all = (0..32).map(|n| NameRegex::compile(&format!("^{text}{n}$"), &mut work));
        (
            all.map(|it| it.map_or(0, |it| it.size()))
                .collect::<Vec<_>>(),
            work.left(),
        )
    };
    let (regex, _) = compiled(&names);
    assert!(regex.expect("it is small").size() < 64 << 10);
    for usual in [
        "app-.*",
        ".*-config",
        "team-.*-(dev|test|prod)-.*",
        "[a-z]+-service-[0-9]{1,3}",
        "(orders|payments|shipping)-(api|worker)(-v[0-9]+)?",
        r".*\.tls\..*",
    ] {
        let (sizes, left) = one_by_one(usual);
        assert!(
            sizes.iter().all(|size| (1..8 << 10).contains(size)),
            "{usual}: {sizes:?}"
        );
        assert!(left > 0, "{usual}");
    }
}

#[test]
fn the_longest_name_takes_one_step_for_each_character() {
    let name = Name::parse(&"a".repeat(LONGEST_NAME)).unwrap();
    let (regex, _) = compiled("^[a-z]*b?[a-z]*c?$");
    let regex = regex.unwrap();
    assert!(regex.matches(&name));
    // The table is the whole automaton, so checking every target covers it.
    let ways = regex.transitions.iter().map(|it| it.to);
    let ways = ways
        .chain(regex.rows.iter().copied())
        .filter(|to| *to < DEAD);
    assert!(ways.map(usize::from).all(|to| to < regex.states.len()));
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[ab.-]{1,3}",
        Just("[a-c]".to_owned()),
        Just("[^a]".to_owned()),
        Just(r"\w".to_owned()),
        Just(r"\b".to_owned()),
        Just(r"\B".to_owned()),
        Just(r"\b{start}".to_owned()),
        Just(r"\.".to_owned()),
        Just("^".to_owned()),
        Just("$".to_owned()),
        Just("(?m)$".to_owned()),
        Just("(?i:A)".to_owned()),
        Just(r"\n".to_owned()),
        Just(String::new()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 2..4)
                .prop_map(|parts| format!("({})", parts.join("|"))),
            (
                inner,
                prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "*?"])
            )
                .prop_map(|(part, times)| format!("(?:{part}){times}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_compiled_expression_matches_what_the_crate_regex_matches(
        text in expression(),
        is_anchored: bool,
        names in prop::collection::vec("[ab0]([ab0.-]{0,6}[ab0])?", 1..8),
    ) {
        let text = if is_anchored { format!("^{text}$") } else { text };
        let expected = RegexBuilder::new(&text).unicode(false).build();
        let (regex, work) = compiled(&text);
        // A few of them explode, such as `(^|-.)(?:...){1,3}\w`.
        let is_too_large = regex.is_none() && work == Work::MAX;
        prop_assert_eq!(expected.is_ok(), regex.is_some() || is_too_large, "{}", text);
        if let (Ok(expected), Some(regex)) = (expected, regex) {
            for name in names {
                let Ok(name) = Name::parse(&name) else { continue };
                let is_match = expected.is_match(name.as_str().as_bytes());
                prop_assert_eq!(regex.matches(&name), is_match, "{} {}", &text, name);
            }
        }
    }
}

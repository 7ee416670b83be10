use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, ValueEnum};
use pod_reloader_core::dialect::Dialect;

use super::*;

mod page;
mod timers;

#[test]
fn an_amount_of_memory_has_a_binary_unit() {
    assert_eq!(memory("512Ki"), Ok(512 << 10));
    assert_eq!(memory("32Mi"), Ok(32 << 20));
    assert_eq!(memory("1Gi"), Ok(1 << 30));
    for wrong in [
        "",
        "32",
        "32M",
        "0Mi",
        "-1Mi",
        "1.5Gi",
        "Mi",
        "99999999999999999Gi",
    ] {
        assert!(memory(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_command_line_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn every_flag_has_an_environment_variable_and_a_line_of_help() {
    for flag in Args::command()
        .get_arguments()
        .filter(|flag| *flag.get_id() != "help")
    {
        let name = flag.get_id();
        assert!(
            flag.get_env().is_some(),
            "{name} has no environment variable"
        );
        assert!(flag.get_help().is_some(), "{name} has no help");
    }
}

#[test]
fn the_help_and_the_chart_name_every_dialect() {
    let all = Dialect::ALL.map(Dialect::as_str);
    let command = Args::command();
    let flag = command
        .get_arguments()
        .find(|it| *it.get_id() == "dialects");
    let help = flag.and_then(Arg::get_help).unwrap().to_string();
    assert!(help.contains(&all.join(", ")), "{help}");
    let schema = include_str!("../../../charts/pod-reloader/values.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let names = &schema["properties"]["dialects"]["items"]["enum"];
    assert_eq!(*names, serde_json::json!(all));
}

#[test]
fn controllers_are_named_as_in_kube_controller_manager() {
    use ControllerName::{Bind, Keep, Restart, Sync};
    let running = |text: &str| {
        let set = controllers(text).unwrap();
        [Restart, Keep, Sync, Bind].map(|it| set.include(it))
    };
    assert_eq!(running("*"), [true; 4]);
    assert_eq!(running("sync,bind"), [false, false, true, true]);
    assert_eq!(running("*, -sync,-bind"), [true, true, false, false]);
    assert_eq!(running("*,-sync,sync"), [true; 4], "it is named");
    assert_eq!(running("-sync"), [false; 4], "no others are named");
    for wrong in ["", "all", "restart,", "-*", "Sync"] {
        assert!(controllers(wrong).is_err(), "{wrong}");
    }
    let error = controllers("copy").unwrap_err();
    assert_eq!(error, "\"copy\" is none of restart, keep, sync, bind");
}

#[test]
fn the_help_and_the_chart_name_every_controller() {
    let variants = ControllerName::value_variants();
    let all: Vec<_> = variants.iter().map(|it| it.as_str()).collect();
    let of_flag = variants.iter().filter_map(ValueEnum::to_possible_value);
    let of_flag: Vec<_> = of_flag.map(|it| it.get_name().to_owned()).collect();
    assert_eq!(of_flag, all);
    let command = Args::command();
    let flag = command
        .get_arguments()
        .find(|it| *it.get_id() == "controllers");
    let help = flag.and_then(Arg::get_help).unwrap().to_string();
    let (_, list) = help.split_once("comma-separated: ").unwrap();
    let (list, _) = list.split_once('.').unwrap();
    let named = list.split(", ").filter_map(|it| it.split(' ').next());
    assert_eq!(named.collect::<Vec<_>>(), all, "{help}");

    // Each runs in one of the two processes.
    let template = include_str!("../../../charts/pod-reloader/templates/_helpers.tpl");
    let lists = regex::Regex::new(r#""writer" \| ternary "([a-z,]+)" "([a-z,]+)""#).unwrap();
    let lists = lists.captures(template).unwrap();
    for (list, is_writer) in [(&lists[1], true), (&lists[2], false)] {
        let run = variants
            .iter()
            .filter(|it| it.runs_in_writer() == is_writer);
        let mut run: Vec<_> = run.map(|it| it.as_str()).collect();
        let mut list: Vec<_> = list.split(',').collect();
        run.sort_unstable();
        list.sort_unstable();
        assert_eq!(list, run);
    }
    let [writer, operator] = [1, 2].map(|it| lists[it].replace(',', "`, `"));
    let page = include_str!("../../../docs/architecture.md");
    assert!(page.contains(&format!("| `{operator}` | `{writer}` |")));
}

#[test]
fn the_flags_of_saps_controller_are_understood() {
    let args = Args::parse_from([
        "pod-reloader",
        "--webhook-bind-address=:2443",
        "--webhook-tls-directory=/tls",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=127.0.0.1:8081",
        "--leader-elect",
        "--leader-election-namespace=operator",
    ]);
    assert_eq!(args.webhook_bind_address, "[::]:2443".parse().unwrap());
    assert_eq!(args.metrics_bind_address, OptionalAddress(None));
    assert!(args.leader_elect);
    assert!(!Args::parse_from(["pod-reloader", "--leader-elect=false"]).leader_elect);
}

#[test]
fn the_arguments_of_a_container_take_precedence_over_its_variables() {
    let variable = |name: &str| match name {
        "POD_RELOADER_RECONCILE" => Some("none".to_owned()),
        "POD_RELOADER_SETTLE_PERIOD" => Some("9s".to_owned()),
        "POD_RELOADER_WATCH_NAMESPACES" => Some(String::new()),
        _ => None,
    };
    let args = Args::of_container(["--reconcile=observe", "--auto-reload-all"], variable).unwrap();
    assert_eq!(args.reconcile, Reconcile::Observe);
    assert_eq!(args.settle_period, Duration::from_secs(9));
    assert!(args.auto_reload_all);
    assert!(Args::of_container(["--of-the-future"], |_| None).is_err());
}

#[test]
fn the_last_value_of_a_flag_given_twice_applies() {
    let args = Args::parse_from([
        "pod-reloader",
        "--reconcile=none",
        "--reconcile=observe",
        "--watch-namespaces=a,b",
        "--watch-namespaces=c",
        "--leader-elect",
        "--leader-elect=false",
    ]);
    assert_eq!(args.reconcile, Reconcile::Observe);
    assert_eq!(args.watch_namespaces.0, [Name::parse("c").unwrap()]);
    assert!(!args.leader_elect);
}

#[test]
fn no_namespaces_means_all_namespaces() {
    for none in [
        &["pod-reloader"][..],
        &["pod-reloader", "--watch-namespaces="],
    ] {
        assert_eq!(Args::parse_from(none).watch_namespaces.0, []);
    }
    let two = Args::parse_from(["pod-reloader", "--watch-namespaces=a, b"]);
    assert_eq!(
        two.watch_namespaces.0,
        ["a", "b"].map(|name| Name::parse(name).unwrap())
    );
}

#[test]
fn an_empty_environment_variable_is_treated_as_not_set() {
    let empty = "POD_RELOADER_RECONCILE";
    let command = command(|variable| (variable == empty).then(OsString::new));
    for flag in command
        .get_arguments()
        .filter(|flag| *flag.get_id() != "help")
    {
        assert_eq!(flag.get_env().is_none(), *flag.get_id() == "reconcile");
    }
}

#[test]
fn a_certificate_is_mounted_or_made_not_both() {
    let both = [
        "pod-reloader",
        "--webhook-tls-directory=/tls",
        "--webhook-tls-secret=tls",
    ];
    assert!(Args::try_parse_from(both).is_err());
    let args = Args::parse_from([both[0], both[2]]);
    assert_eq!(args.webhook_tls_secret.unwrap().as_str(), "tls");
    assert_eq!(args.webhook_service.as_str(), "pod-reloader");
    assert_eq!(args.webhook_configuration.as_str(), "pod-reloader");
}

#[test]
fn the_level_of_the_log_is_understood_in_the_words_of_other_programs() {
    for (word, level) in [
        ("warning", tracing::Level::WARN),
        ("WARN", tracing::Level::WARN),
        ("Info", tracing::Level::INFO),
        ("fatal", tracing::Level::ERROR),
    ] {
        let flag = format!("--log-level={word}");
        assert_eq!(Args::parse_from(["pod-reloader", &flag]).log_level, level);
    }
}

#[test]
fn settings_that_cannot_be_right_are_refused() {
    for wrong in [
        "--webhook-bind-address=nowhere",
        "--settle-period=-1s",
        "--settle-period=soon",
        "--settle-period=5 minutes",
        "--log-level=loud",
        "--settle-period=1000000000h",
        "--watch-namespaces=a,?limit=1",
        "--watch-namespaces=a,",
        "--reconcile=maybe",
        "--reconcile=on",
        "--reconcile=off",
        "--staged-by-default=true",
        "--staged-by-default=false",
        "--watch-workload-selector=team near shop",
        "--dialects=",
        "--dialects=pod-reloader,klingon",
        "--resources-to-ignore=configmaps,secrets",
        "--watch-workload-selector={}",
        "--notifications-format=pager",
        "--notifications-proxy=proxy:3128",
        "--notifications-proxy=http://user:password@proxy:3128",
        r#"--watch-namespace-selector={"matchLabels":{"a":"b"},"matchExpresions":[]}"#,
        r#"--watch-namespace-selector={"matchExpressions":[{"key":"a","operator":"Near"}]}"#,
    ] {
        assert!(
            Args::try_parse_from(["pod-reloader", wrong]).is_err(),
            "{wrong}"
        );
    }
}

#[test]
fn no_word_that_the_chart_takes_is_a_boolean_of_yaml() {
    let schema = include_str!("../../../charts/pod-reloader/values.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let mut words = Vec::new();
    words_of(&schema, &mut words);
    assert!(words.contains(&"observe"), "{words:?}");
    for boolean in ["on", "off", "yes", "no", "y", "n", "true", "false"] {
        assert!(!words.contains(&boolean), "{boolean} needs quotes");
    }
}

/// Collects the words of a schema, without those in an `if`: there are the old ones, which a template refuses.
fn words_of<'a>(schema: &'a serde_json::Value, words: &mut Vec<&'a str>) {
    for (name, member) in schema.as_object().into_iter().flatten() {
        match name.as_str() {
            "if" => {}
            "enum" => {
                let all = member.as_array().into_iter().flatten();
                words.extend(all.filter_map(serde_json::Value::as_str));
            }
            _ => words_of(member, words),
        }
    }
    for item in schema.as_array().into_iter().flatten() {
        words_of(item, words);
    }
}

/// Flags that the chart sets and that have no name of a value: the values that they come from, and why.
const NAMED_OTHERWISE: [(&str, &[&str], &str); 14] = [
    ("leader-elect", &[], "always set: replicas need it"),
    ("leader-election-lease", &[], "an object of the release"),
    ("webhook-tls-secret", &[], "an object of the release"),
    ("webhook-service", &[], "an object of the release"),
    ("webhook-configuration", &[], "an object of the release"),
    ("controllers", &[], "which of two processes it is"),
    (
        "webhook-bind-address",
        &["webhook.port"],
        "also takes a host, as SAP's",
    ),
    (
        "metrics-bind-address",
        &["ports.metrics"],
        "also takes a host, as SAP's",
    ),
    (
        "health-probe-bind-address",
        &["ports.probes"],
        "also takes a host, as SAP's",
    ),
    (
        "resources-to-ignore",
        &["ignoreSecrets", "ignoreConfigMaps"],
        "one of two exclusive values",
    ),
    (
        "webhook-tls-directory",
        &["webhook.existingSecret", "webhook.certManager.enabled"],
        "where a Secret is mounted",
    ),
    (
        "webhook-client-ca-file",
        &["webhook.clientCA.configMap", "webhook.clientCA.secret"],
        "where a CA is mounted",
    ),
    (
        "notifications-url-file",
        &["notifications.existingSecret"],
        "where a Secret is mounted",
    ),
    (
        "notifications-ca-file",
        &["notifications.caConfigMap"],
        "where a ConfigMap is mounted",
    ),
];

#[test]
fn every_flag_that_the_chart_sets_has_the_name_of_its_value() {
    let set = flags_of_the_chart();
    assert!(set.len() > 40, "{set:?}");
    let named = values_of_the_chart();
    let command = Args::command();
    for flag in &set {
        let is_one = |it: &Arg| it.get_long() == Some(flag.as_str());
        assert!(command.get_arguments().any(is_one), "unknown flag {flag}");
        let is_otherwise = NAMED_OTHERWISE.iter().any(|(name, ..)| name == flag);
        let is_named = named.contains_key(flag);
        assert!(
            is_named != is_otherwise,
            "{flag}: has the name of a value: {is_named}, is an exception: {is_otherwise}"
        );
    }
    for (flag, values, why) in NAMED_OTHERWISE {
        assert!(set.contains(flag), "the chart does not set {flag}: {why}");
        for value in values {
            let is_one = named.values().any(|known| known == value);
            assert!(is_one, "{flag}: unknown value {value}");
        }
    }
}

/// Returns the flags that the chart sets, without their dashes.
fn flags_of_the_chart() -> BTreeSet<String> {
    let template = include_str!("../../../charts/pod-reloader/templates/_deployment.tpl");
    let begins = r#"(?:^ *- (?:\{\{ printf ")?|include "pod-reloader.switch" .* ")"#;
    let flag = regex::Regex::new(&format!("(?m){begins}--([a-z-]+)")).unwrap();
    let found = flag.captures_iter(template);
    found.map(|groups| groups[1].to_owned()).collect()
}

/// Returns the values of the chart, by the names that their flags have.
fn values_of_the_chart() -> BTreeMap<String, String> {
    let schema = include_str!("../../../charts/pod-reloader/values.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let mut named = BTreeMap::new();
    names_of_values(&[], &schema, &mut named);
    named
}

/// Collects the values of a schema, by the names that their flags have: their paths, without `enabled`.
fn names_of_values(
    path: &[&str],
    schema: &serde_json::Value,
    names: &mut BTreeMap<String, String>,
) {
    let words = regex::Regex::new("([a-z0-9])([A-Z])").unwrap();
    let values = schema["properties"].as_object();
    for (name, value) in values.into_iter().flatten() {
        let whole = [path, &[name.as_str()]].concat();
        names_of_values(&whole, value, names);
        let of_flag = match name.as_str() {
            "enabled" if !path.is_empty() => path,
            _ => whole.as_slice(),
        };
        let flag = words
            .replace_all(&of_flag.join("-"), "$1-$2")
            .to_lowercase();
        names.entry(flag).or_insert_with(|| whole.join("."));
    }
}

/// With such a value the chart would be installed, and its container would end at once.
#[test]
fn no_duration_or_number_that_the_chart_takes_is_refused_here() {
    let schema = include_str!("../../../charts/pod-reloader/values.schema.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let values = &schema["properties"];
    let is_parsed =
        |flag: &str, value: &str| Args::try_parse_from(["", &format!("{flag}={value}")]).is_ok();

    let settle_period = values["settlePeriod"]["pattern"].as_str().unwrap();
    let settle_period = regex::Regex::new(settle_period).unwrap();
    let is_taken = |value: &str| {
        let is_taken = settle_period.is_match(value);
        assert!(!is_taken || is_parsed("--settle-period", value), "{value}");
        is_taken
    };
    for number in NUMBERS {
        for unit in UNITS {
            let value = format!("{number}{unit}");
            is_taken(&value);
            for more in [
                "s", "0s", "1s", "30s", "59s", "60s", "0.5s", "1ms", "3m", "1h",
            ] {
                for between in ["", " ", "  ", ", ", "\n"] {
                    is_taken(&format!("{value}{between}{more}"));
                }
            }
        }
    }
    for usual in [
        "0s", "500ms", "1.5s", "5s", "90s", "3600s", "1m", "1m30s", "60m", "0.5h", "1h",
    ] {
        assert!(is_taken(usual), "{usual}");
    }

    let port = &schema["$defs"]["port"];
    for (flag, prefix, of) in [
        ("--max-restarts", "", &values["maxRestarts"]),
        ("--webhook-bind-address", ":", port),
        ("--metrics-bind-address", ":", port),
        ("--health-probe-bind-address", ":", port),
    ] {
        assert_eq!(of["type"], "integer");
        for bound in ["minimum", "maximum"] {
            let value = format!("{prefix}{}", of[bound].as_u64().unwrap());
            assert!(is_parsed(flag, &value), "{flag}={value}");
        }
    }
}

const NUMBERS: [&str; 42] = [
    "",
    "0",
    "00",
    "05",
    "1",
    "5",
    "9",
    "10",
    "59",
    "60",
    "61",
    "90",
    "99",
    "100",
    "999",
    "1000",
    "2999",
    "3599",
    "3600",
    "3601",
    "3999",
    "9999",
    "59999",
    "999999",
    "1000000",
    "3599999",
    "3600000",
    "3600001",
    "9999999",
    "36000000",
    "-1",
    "+1",
    "1e3",
    "0.5",
    "1.5",
    "59.9",
    "60.5",
    "3599.999999999",
    "0.0000000001",
    "1.",
    ".5",
    "1.5.5",
];
const UNITS: [&str; 15] = [
    "", "ns", "us", "µs", "ms", "s", "sec", "m", "min", "h", "hr", "d", "S", "H", " s",
];

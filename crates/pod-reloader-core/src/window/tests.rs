use super::*;

/// Returns when the windows are open from `from` on, as many times as `expected` has, in the form in which
/// that is written: `opens - closes`, both in UTC.
fn openings(windows: &str, from: &str, count: usize) -> Vec<String> {
    let windows = Windows::parse(windows).unwrap();
    let mut now: Timestamp = from.parse().unwrap();
    let minute = Span::new().minutes(1);
    let mut found = Vec::new();
    while found.len() < count {
        if let Some(opens) = windows.next_opening(now) {
            now = opens.timestamp();
        }
        let opens = now;
        while windows.next_opening(now).is_none() {
            now += minute;
        }
        found.push(format!(
            "{} - {}",
            opens.strftime("%a %d %H:%M"),
            now.strftime("%a %d %H:%M")
        ));
    }
    found
}

#[test]
fn a_window_opens_on_its_days() {
    // 23 November 2026 is a Monday.
    let from = "2026-11-23T12:00:00Z";
    for (windows, expected) in [
        (
            "02:00-04:00 UTC",
            &["Tue 24 02:00 - Tue 24 04:00", "Wed 25 02:00 - Wed 25 04:00"][..],
        ),
        (
            "Mon-Fri 02:00-04:00 UTC",
            &[
                "Tue 24 02:00 - Tue 24 04:00",
                "Wed 25 02:00 - Wed 25 04:00",
                "Thu 26 02:00 - Thu 26 04:00",
                "Fri 27 02:00 - Fri 27 04:00",
                "Mon 30 02:00 - Mon 30 04:00",
            ],
        ),
        ("Mon 10:00-11:00 UTC", &["Mon 30 10:00 - Mon 30 11:00"]),
        // It is open now.
        (
            "Mon 10:00-13:00 UTC",
            &["Mon 23 12:00 - Mon 23 13:00", "Mon 30 10:00 - Mon 30 13:00"],
        ),
        // It closes on the next day.
        ("Sun 22:00-02:00 UTC", &["Sun 29 22:00 - Mon 30 02:00"]),
        (
            "sun-mon 23:30-0:30 UTC",
            &["Mon 23 23:30 - Tue 24 00:30", "Sun 29 23:30 - Mon 30 00:30"],
        ),
        ("Sat,Sun 00:00-24:00 UTC", &["Sat 28 00:00 - Mon 30 00:00"]),
        // In winter, Berlin is an hour ahead of UTC.
        (
            "Tue 02:00-04:00 Europe/Berlin",
            &["Tue 24 01:00 - Tue 24 03:00"],
        ),
        (
            "Tue 02:00-04:00 Europe/Berlin; Tue 03:00-05:00 UTC ; Mon 13:00-14:00 UTC",
            &["Mon 23 13:00 - Mon 23 14:00", "Tue 24 01:00 - Tue 24 05:00"],
        ),
    ] {
        assert_eq!(
            openings(windows, from, expected.len()),
            expected,
            "{windows}"
        );
    }
}

/// Each row was worked out with the clock of that place: where it is put forward, a skipped time opens when
/// the clock goes on, and where it is put back, a doubled one opens once.
#[test]
fn a_window_opens_once_on_the_days_when_the_clock_is_changed() {
    for (zone, from, rows) in [
        // At 2:00 the clock of Berlin is put forward to 3:00, which is 1:00 UTC.
        (
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            &[
                ("01:00-02:00", "Sun 29 00:00 - Sun 29 01:00"),
                ("01:30-02:30", "Sun 29 00:30 - Sun 29 01:00"),
                ("02:00-03:00", "Sun 29 01:00 - Sun 29 02:00"),
                ("02:15-02:45", "Sun 29 01:00 - Sun 29 01:30"),
                ("02:30-03:30", "Sun 29 01:00 - Sun 29 01:30"),
                ("03:00-04:00", "Sun 29 01:00 - Sun 29 02:00"),
                ("01:00-04:00", "Sun 29 00:00 - Sun 29 02:00"),
                ("22:00-03:00", "Sat 28 21:00 - Sun 29 01:00"),
            ][..],
        ),
        (
            "Europe/Berlin",
            "2026-03-28T23:00:00Z",
            &[("Sun 00:00-24:00", "Sat 28 23:00 - Sun 29 22:00")],
        ),
        // At 3:00 it is put back to 2:00, which is 1:00 UTC.
        (
            "Europe/Berlin",
            "2026-10-24T12:00:00Z",
            &[
                ("01:00-02:00", "Sat 24 23:00 - Sun 25 00:00"),
                ("01:30-02:30", "Sat 24 23:30 - Sun 25 00:30"),
                ("02:00-03:00", "Sun 25 00:00 - Sun 25 02:00"),
                ("02:15-02:45", "Sun 25 00:15 - Sun 25 00:45"),
                ("02:30-03:30", "Sun 25 00:30 - Sun 25 02:30"),
                ("03:00-04:00", "Sun 25 02:00 - Sun 25 03:00"),
                ("22:00-03:00", "Sat 24 20:00 - Sun 25 02:00"),
            ],
        ),
        // At 2:00 the clock of New York is put forward to 3:00, which is 7:00 UTC.
        (
            "America/New_York",
            "2026-03-07T12:00:00Z",
            &[
                ("01:00-02:00", "Sun 08 06:00 - Sun 08 07:00"),
                ("02:00-03:00", "Sun 08 07:00 - Sun 08 08:00"),
                ("02:30-03:30", "Sun 08 07:00 - Sun 08 07:30"),
                ("01:30-02:30", "Sun 08 06:30 - Sun 08 07:00"),
            ],
        ),
        // At 2:00 it is put back to 1:00, which is 6:00 UTC.
        (
            "America/New_York",
            "2026-10-31T12:00:00Z",
            &[
                ("00:30-01:30", "Sun 01 04:30 - Sun 01 05:30"),
                ("01:00-02:00", "Sun 01 05:00 - Sun 01 07:00"),
                ("01:15-01:45", "Sun 01 05:15 - Sun 01 05:45"),
                ("01:30-02:30", "Sun 01 05:30 - Sun 01 07:30"),
                ("02:00-03:00", "Sun 01 07:00 - Sun 01 08:00"),
            ],
        ),
    ] {
        for (times, expected) in rows {
            let windows = format!("{times} {zone}");
            let first = openings(&windows, from, 1);
            assert_eq!(first, [*expected], "{windows} from {from}");
        }
    }
    // The next one is a day later, not in the doubled hour.
    let both = openings("02:15-02:45 Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(both[1], "Mon 26 01:15 - Mon 26 01:45");
    let both = openings("01:15-01:45 America/New_York", "2026-10-31T12:00:00Z", 2);
    assert_eq!(both[1], "Mon 02 06:15 - Mon 02 06:45");
}

#[test]
fn an_opening_is_shown_in_the_time_of_its_window() {
    let windows = Windows::parse("Mon-Fri 02:00-04:00 Europe/Berlin").unwrap();
    let now = "2026-11-23T12:00:00Z".parse().unwrap();
    let opens = windows.next_opening(now).unwrap();
    assert_eq!(shown(&opens), "2026-11-24 02:00 Europe/Berlin");
}

#[test]
fn what_is_no_window_is_none() {
    for wrong in [
        "",
        " ",
        ";",
        "Mon-",
        "Mon- 02:00-04:00 UTC",
        "Mon 02:00-04:00",
        "02:00-04:00",
        "Mon 02:00-04:00 Mars",
        "Mon 02:00-04:00 Europe/",
        "Mon 02:00 UTC",
        "Mon 02:00-02:00 UTC",
        "00:00-00:00 UTC",
        "Mon 24:00-02:00 UTC",
        "Mon 02:00-24:01 UTC",
        "Mon 02:60-04:00 UTC",
        "Mon 2-4 UTC",
        "Mon 02:0-04:00 UTC",
        "Mon +2:00-04:00 UTC",
        "Mon 002:00-04:00 UTC",
        "Monday 02:00-04:00 UTC",
        "Mon,,Tue 02:00-04:00 UTC",
        "Mon Tue 02:00-04:00 UTC",
        "Mon 02:00-04:00 UTC;",
        "Mon 02:00-04:00 UTC, Tue 02:00-04:00 UTC",
    ] {
        assert_eq!(Windows::parse(wrong), None, "{wrong}");
    }
    let many = ["02:00-04:00 UTC"; MAX_WINDOWS + 1];
    assert_eq!(Windows::parse(&many.join(";")), None);
    assert!(Windows::parse(&many[1..].join(";")).is_some());
}

#[test]
fn every_window_of_every_zone_opens_within_eight_days() {
    for zone in jiff::tz::db().available() {
        let windows = Windows::parse(&format!("Wed 02:30-02:31 {zone}")).unwrap();
        for hour in 0..52 {
            let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            let now = now + Span::new().hours(hour * 168);
            let opens = windows.next_opening(now).unwrap();
            let wait = opens.timestamp().duration_since(now);
            assert!(wait.as_hours() <= 8 * 24, "{zone}: {now}, {opens}");
            assert_eq!(windows.next_opening(opens.timestamp()), None, "{opens}");
        }
    }
}

#[test]
fn the_documented_number_of_windows_is_the_largest() {
    let page = include_str!("../../../../docs/gates.md");
    assert!(page.contains(&format!("A workload can have {MAX_WINDOWS} windows")));
}

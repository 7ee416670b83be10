//! Restart windows: the times of the week in which a workload may be restarted.

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Span, Timestamp, Zoned};

/// The maximum number of windows of one workload.
const MAX_WINDOWS: usize = 20;
/// The minutes of a day.
const DAY: u16 = 24 * 60;

/// The times in which a workload may be restarted. At least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows(Box<[Window]>);

/// A time of some days of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Window {
    days: Days,
    /// The time of the day when it opens, in minutes after midnight.
    opens: u16,
    /// The time when it closes, in minutes after the midnight before it opens.
    closes: u16,
    zone: TimeZone,
}

impl Windows {
    /// Parses a value of the annotation [`RESTART_WINDOW`](crate::annotations::RESTART_WINDOW), such as
    /// `Mon-Fri 02:00-04:00 Europe/Berlin; Sat,Sun 00:00-24:00 UTC`. Without days, a window opens every day.
    /// One that closes earlier in the day than it opens closes on the next day.
    pub fn parse(value: &str) -> Option<Self> {
        let windows = value.split(';').map(Window::parse);
        let windows: Vec<_> = windows.collect::<Option<_>>()?;
        (windows.len() <= MAX_WINDOWS).then_some(Self(windows.into()))
    }

    /// Returns the memory that the windows take, in bytes. Windows share the data of their time zones.
    pub(crate) fn weight(&self) -> usize {
        size_of_val(&*self.0)
    }

    /// Returns when the next window opens. `None` if one is open `now`.
    pub fn next_opening(&self, now: Timestamp) -> Option<Zoned> {
        let mut next: Option<Zoned> = None;
        for window in &self.0 {
            let today = now.to_zoned(window.zone.clone()).date();
            // One may have opened the day before, and another one may open only in a week.
            for days in -1..=8 {
                let Some((opens, closes)) = window.on(today, days) else {
                    continue;
                };
                if (opens..closes).contains(&now) {
                    return None;
                }
                if opens > now && next.as_ref().is_none_or(|next| opens < next.timestamp()) {
                    next = Some(opens.to_zoned(window.zone.clone()));
                }
            }
        }
        next
    }
}

impl Window {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<_> = text.split_whitespace().collect();
        let (days, time, zone) = match words[..] {
            [days, time, zone] => (Days::parse(days)?, time, zone),
            [time, zone] => (Days::ALL, time, zone),
            _ => return None,
        };
        let (opens, closes) = time.split_once('-')?;
        let (opens, closes) = (minutes(opens)?, minutes(closes)?);
        if opens >= DAY || opens == closes {
            return None;
        }
        let closes = match opens < closes {
            true => closes,
            false => closes + DAY,
        };
        let zone = TimeZone::get(zone).ok()?;
        Some(Self {
            days,
            opens,
            closes,
            zone,
        })
    }

    /// Returns from when to when it is open, so many days after a date.
    fn on(&self, date: Date, days: i32) -> Option<(Timestamp, Timestamp)> {
        let date = date.checked_add(Span::new().days(days)).ok()?;
        if !self.days.contain(date.weekday()) {
            return None;
        }
        let midnight = date.to_datetime(jiff::civil::Time::midnight());
        let at = |minutes: u16| midnight.checked_add(Span::new().minutes(minutes)).ok();
        let opens = self.first_shown(at(self.opens)?)?;
        let closes = self.first_shown(at(self.closes)?)?;
        if opens < closes {
            return Some((opens, closes));
        }
        // The clock skips the whole window.
        let length = Span::new().minutes(self.closes - self.opens);
        Some((opens, opens.checked_add(length).ok()?))
    }

    /// Returns the first moment in which the clock shows this time or, if it skips it, a later one.
    fn first_shown(&self, time: DateTime) -> Option<Timestamp> {
        let moment = self.zone.to_ambiguous_timestamp(time);
        let is_skipped = matches!(moment.offset(), AmbiguousOffset::Gap { .. });
        let earlier = moment.earlier().ok()?;
        match is_skipped {
            false => Some(earlier),
            true => Some(self.zone.following(earlier).next()?.timestamp()),
        }
    }
}

/// Returns an opening as users read it, in the time zone of its window.
pub fn shown(opening: &Zoned) -> String {
    opening.strftime("%Y-%m-%d %H:%M %Q").to_string()
}

/// Parses a time of the day, such as `02:00` or `24:00`.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let are_digits = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    if !are_digits(hours) || hours.len() > 2 || !are_digits(minutes) || minutes.len() != 2 {
        return None;
    }
    let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
    let time = hours * 60 + minutes;
    (minutes < 60 && time <= DAY).then_some(time)
}

/// A set of days of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Days(u8);

impl Days {
    const ALL: Self = Self(0b111_1111);

    /// Parses days such as `Mon-Fri`, or `Sat,Sun`.
    fn parse(text: &str) -> Option<Self> {
        let mut days = 0;
        for item in text.split(',') {
            let (first, last) = item.split_once('-').unwrap_or((item, item));
            let (mut day, last) = (weekday(first)?, weekday(last)?);
            days |= bit(day);
            while day != last {
                day = day.next();
                days |= bit(day);
            }
        }
        Some(Self(days))
    }

    fn contain(self, day: Weekday) -> bool {
        self.0 & bit(day) != 0
    }
}

fn bit(day: Weekday) -> u8 {
    1 << day.to_monday_zero_offset()
}

fn weekday(text: &str) -> Option<Weekday> {
    let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let at = names.iter().position(|it| text.eq_ignore_ascii_case(it))?;
    Weekday::from_monday_zero_offset(i8::try_from(at).ok()?).ok()
}

#[cfg(test)]
mod tests;

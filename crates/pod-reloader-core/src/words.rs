//! Numbers with their nouns and verbs, for messages.

use std::fmt::Display;

/// Formats a number with its noun: `1 workload`, `2 workloads`.
pub fn count<N: Display + From<u8> + PartialEq>(number: N, thing: &str) -> String {
    let plural = either(&number, ["", "s"]);
    format!("{number} {thing}{plural}")
}

/// Returns the first form for one, and the second one for all other numbers.
pub fn either<'a, N: From<u8> + PartialEq>(
    number: &N,
    [of_one, of_others]: [&'a str; 2],
) -> &'a str {
    if *number == N::from(1) {
        of_one
    } else {
        of_others
    }
}

/// Formats a part of a whole with its noun, and with the form of a verb for one or for others: `1 of 3 pods has`,
/// `2 of 3 pods have`, `0 of 1 pod has`.
pub fn part<N: Display + From<u8> + PartialEq>(
    number: N,
    all: N,
    thing: &str,
    verbs: [&str; 2],
) -> String {
    let verb = match all == N::from(1) {
        true => verbs[0],
        false => either(&number, verbs),
    };
    format!("{number} of {} {verb}", count(all, thing))
}

/// Joins the first `most` items, and gives the number of the others: `a, b and 3 more`.
pub fn some(
    items: impl IntoIterator<Item: Display, IntoIter: ExactSizeIterator>,
    most: usize,
) -> String {
    let mut items = items.into_iter();
    let first: Vec<_> = items.by_ref().take(most).map(|it| it.to_string()).collect();
    let first = first.join(", ");
    match items.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_beyond_the_first_ones_are_counted() {
        let of = |items: &[&str]| some(items, 2);
        assert_eq!(of(&[]), "");
        assert_eq!(of(&["a", "b"]), "a, b");
        assert_eq!(of(&["a", "b", "c", "d"]), "a, b and 2 more");
    }

    #[test]
    fn nouns_and_verbs_agree_with_their_numbers() {
        let all = [0, 1, 2].map(|number| count(number, "pod"));
        assert_eq!(all, ["0 pods", "1 pod", "2 pods"]);
        for (number, all, expected) in [
            (0, 1, "0 of 1 pod has"),
            (1, 1, "1 of 1 pod has"),
            (0, 3, "0 of 3 pods have"),
            (1, 3, "1 of 3 pods has"),
            (2, 3, "2 of 3 pods have"),
        ] {
            assert_eq!(part(number, all, "pod", ["has", "have"]), expected);
        }
    }
}

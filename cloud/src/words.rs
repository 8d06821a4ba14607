//! What clouds say, without what is another one each time.
//!
//! A message ends up in a status and is written whenever it changes: equal causes must give equal text. Ids of
//! requests, times and waits are cut out of it; they are in the log, and the id and the wait are fields of the
//! error.

/// What stands for something that was cut out.
const CUT: &str = "…";
/// Words that an id of a single request follows.
const LABELS: [&str; 7] = ["request", "correlation", "trace", "tracking", "operation", "activity", "session"];
const UNITS: [&str; 9] = ["s", "ms", "sec", "secs", "second", "seconds", "minute", "minutes", "hours"];

/// A text of a cloud's with nothing in it that changes from one equal answer to the next.
pub fn stable(text: &str) -> String {
    let parts = parts(text);
    let words: Vec<usize> = (0..parts.len()).filter(|&n| is_word(parts[n])).collect();
    let mut kept: Vec<&str> = parts.clone();
    for (nth, &at) in words.iter().enumerate() {
        let word = |n: Option<usize>| n.and_then(|n| words.get(n)).map_or("", |&at| parts[at]);
        let before = [word(nth.checked_sub(2)), word(nth.checked_sub(1))];
        if is_time(parts[at])
            || is_id_of_request(before, parts[at])
            || is_wait(parts[at], word(Some(nth + 1)))
        {
            kept[at] = CUT;
        }
    }
    let stable = kept.concat();
    if stable != text {
        tracing::debug!("in full: {text}");
    }
    stable
}

/// An error and what caused it, in one line.
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        words = format!("{words}: {error}");
        next = error.source();
    }
    stable(&words)
}

/// Words and what is between them, in their order.
fn parts(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let digit = |n: usize| bytes.get(n).is_some_and(u8::is_ascii_digit);
    let of_word = |n: usize| match bytes[n] {
        b'-' | b'_' => true,
        b':' | b'.' => n > 0 && digit(n - 1) && digit(n + 1),
        byte => byte.is_ascii_alphanumeric(),
    };
    let mut parts = Vec::new();
    let mut start = 0;
    for n in 1..=bytes.len() {
        if text.is_char_boundary(n) && (n == bytes.len() || of_word(n) != of_word(start)) {
            parts.push(&text[start..n]);
            start = n;
        }
    }
    parts
}

fn is_word(part: &str) -> bool {
    part.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

/// A date, a time of day, or both.
fn is_time(word: &str) -> bool {
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let date = shape.starts_with("0000-00-00") || shape.starts_with("00000000T");
    date || shape.starts_with("00:00:00")
}

/// An id behind a word that says that it is one of a request, or the code of an internal error.
fn is_id_of_request(before: [&str; 2], word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let [first, second] = before.map(str::to_ascii_lowercase);
    let has_label = |text: &str| LABELS.iter().any(|label| text.contains(label));
    let labelled = second.ends_with("id") && (has_label(&second) || has_label(&first));
    (labelled && digits > 0 && word.len() >= 8)
        || (second == "code" && digits >= 6 && digits + 1 >= word.len())
}

/// A number in front of a unit of time.
fn is_wait(word: &str, next: &str) -> bool {
    word.parse::<f64>().is_ok() && UNITS.contains(&next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_changes_each_time_is_cut_out() {
        for (text, wanted) in [
            (
                "An error. Correlation id: '9e3779b9-7f4a-7c15-0000-000000000001'.",
                "An error. Correlation id: '…'.",
            ),
            ("it failed (Request ID: 6ba7b810-9dad-11d1)", "it failed (Request ID: …)"),
            ("Trace ID: 6ba7b810 Timestamp: 2026-01-01 10:11:12Z", "Trace ID: … Timestamp: … …"),
            ("url (http://x/add?requestId=6ba7b810-9dad&x=1)", "url (http://x/add?requestId=…&x=1)"),
            ("Please try again after '12' seconds.", "Please try again after '…' seconds."),
            ("contact Google Support. (Code: '-6234567890')", "contact Google Support. (Code: '…')"),
            ("Signature expired: 20260101T101112Z is now earlier", "Signature expired: … is now earlier"),
        ] {
            assert_eq!(stable(text), wanted);
        }
    }

    #[test]
    fn what_says_which_thing_stays() {
        for text in [
            "Required 'compute.addresses.use' permission for 'projects/p/regions/r/addresses/a-203-0-113-10'",
            "The client 'x' with object id '6ba7b810-9dad-11d1-80b4-00c04fd430c8' over scope '/subscriptions/0-1'",
            "External IP address: 203.0.113.10 is already in-use.",
            "Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 8.0 in region us-central1.",
            "The association ID 'eipassoc-0123456789abcdef0' does not exist",
            "Azure 403 AuthorizationFailed: …",
        ] {
            assert_eq!(stable(text), text);
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "\\PC{0,80}") {
            prop_assert_eq!(parts(&text).concat(), text.clone());
            let _ = stable(&text);
        }
    }
}

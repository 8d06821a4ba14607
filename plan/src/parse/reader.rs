//! Reads typed values out of JSON and collects what is wrong.

use super::names::{Place, quoted};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One thing that is wrong with a spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, e.g. `spec.reservedIPs[1]`.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Collects faults on the way.
#[derive(Default)]
pub struct Reader {
    pub faults: Vec<Fault>,
}

impl Reader {
    pub fn fault(&mut self, path: &str, message: &str) {
        self.faults.push(Fault { path: path.to_owned(), message: message.to_owned() });
    }

    /// A list; `None` if it is absent or something else.
    pub fn list<'v>(&mut self, path: &str, value: Option<&'v Value>, expected: &str) -> Option<&'v [Value]> {
        let value = value?;
        let list = value.as_array().map(Vec::as_slice);
        if list.is_none() {
            self.fault(path, &format!("must be {expected}, not {}", kind_of(value)));
        }
        list
    }

    pub fn string(&mut self, path: &str, value: Option<&Value>) -> Option<String> {
        let value = value?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.fault(path, &format!("must be a string, not {}", kind_of(value)));
        }
        text
    }

    /// A string that has to be there, not be empty, and fit where it ends up.
    pub fn required_string(
        &mut self,
        path: &str,
        value: Option<&Value>,
        place: Place,
        what: &str,
    ) -> Option<String> {
        if value.is_none() {
            self.fault(path, &format!("is required: {what}"));
        }
        let text = self.string(path, value)?;
        if text.is_empty() {
            self.fault(path, &format!("must not be empty: {what}"));
            None
        } else {
            self.fits(path, place, &text).then_some(text)
        }
    }

    /// Whether a text fits where it ends up; a fault if not.
    pub fn fits(&mut self, path: &str, place: Place, text: &str) -> bool {
        match place.check(text) {
            Ok(()) => true,
            Err(why) => {
                self.fault(path, &why.to_string());
                false
            }
        }
    }

    pub fn integer(&mut self, path: &str, value: Option<&Value>, default: i32, min: i32, max: i32) -> i32 {
        let Some(value) = value else { return default };
        // The API server takes 30.0 for an integer too.
        let number = value.as_i64().or_else(|| whole(value.as_f64()?));
        let Some(number) = number else {
            self.fault(path, &format!("must be a whole number, not {}", kind_of(value)));
            return default;
        };
        if let Some(number) = i32::try_from(number).ok().filter(|number| (min..=max).contains(number)) {
            return number;
        }
        let limits = if number < min.into() && max == i32::MAX {
            format!("{min} or more")
        } else {
            format!("from {min} to {max}")
        };
        self.fault(path, &format!("is {number}; it must be {limits}"));
        default
    }

    pub fn boolean(&mut self, path: &str, value: Option<&Value>, default: bool) -> bool {
        let Some(value) = value else { return default };
        value.as_bool().unwrap_or_else(|| {
            self.fault(path, &format!("must be true or false, not {}", kind_of(value)));
            default
        })
    }

    /// One of an enum's words, which serde lists in its complaint.
    pub fn choice<T: DeserializeOwned>(&mut self, path: &str, value: Option<&Value>, default: T) -> T {
        let Some(value) = value else { return default };
        match serde_json::from_value(value.clone()) {
            Ok(choice) => choice,
            Err(error) => {
                self.fault(path, &error.to_string().replace("unknown variant", "unknown value"));
                default
            }
        }
    }

    pub fn required_choice<T: DeserializeOwned>(
        &mut self,
        path: &str,
        value: Option<&Value>,
        choices: &str,
    ) -> Option<T> {
        let Some(value) = value else {
            self.fault(path, &format!("is required: {choices}"));
            return None;
        };
        let choice = serde_json::from_value(value.clone()).ok();
        if choice.is_none() {
            self.fault(path, &format!("is {value}; it must be {choices}"));
        }
        choice
    }

    pub fn typed<T: DeserializeOwned>(&mut self, path: &str, value: &Value, expected: &str) -> Option<T> {
        serde_json::from_value(value.clone())
            .map_err(|error| self.fault(path, &format!("must be {expected}: {error}")))
            .ok()
    }
}

#[allow(clippy::cast_possible_truncation)] // checked against the limits of i32 in f64, where they are exact
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() <= f64::from(i32::MAX)).then_some(number as i64)
}

fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "a boolean".into(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the string {}", quoted(text)),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

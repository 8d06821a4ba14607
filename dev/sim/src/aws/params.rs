//! Parameters and filters of the EC2 Query API.

use super::errors::{error, missing};
use crate::http::{ApiError, HttpRequest};
use crate::permissions::matches;
use std::collections::{BTreeMap, HashSet};

/// Parameters by name. Lists are written as `Name.1`, `Name.2`…
#[derive(Clone, Debug, Default)]
pub struct Params {
    values: BTreeMap<String, String>,
}

/// The most values that a filter may have.
const LONGEST_FILTER: usize = 200;

impl Params {
    /// The parameters in the body or the query of a request.
    pub fn of(http: &HttpRequest) -> Self {
        let body = form_urlencoded::parse(&http.body).into_owned();
        Self { values: http.query.iter().cloned().chain(body).collect() }
    }

    /// A parameter that has a value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A parameter that must be there.
    pub fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| missing(name))
    }

    /// A parameter that is true or false.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| value.eq_ignore_ascii_case("true"))
    }

    /// A list.
    pub fn list(&self, name: &str) -> Vec<&str> {
        (1..).map_while(|n| self.get(&format!("{name}.{n}"))).collect()
    }

    /// How many things a list of structures has.
    pub fn count(&self, name: &str) -> usize {
        let has = |n: &usize| self.values.keys().any(|key| key.starts_with(&format!("{name}.{n}.")));
        (1..=self.values.len()).take_while(has).count()
    }

    /// The tags that a new thing is to have.
    pub fn tags(&self) -> BTreeMap<String, String> {
        let mut tags = BTreeMap::new();
        for n in 1..=self.count("TagSpecification.1.Tag") {
            let part =
                |name: &str| self.get(&format!("TagSpecification.1.Tag.{n}.{name}")).unwrap_or_default();
            tags.insert(part("Key").to_owned(), part("Value").to_owned());
        }
        tags
    }

    /// The filters. A name that the action does not know is refused.
    pub fn filters(&self, known: &[&str]) -> Result<Vec<Filter>, ApiError> {
        let mut filters = Vec::new();
        for n in 1..=self.count("Filter") {
            let name = self.required(&format!("Filter.{n}.Name"))?;
            let values = self.list(&format!("Filter.{n}.Value"));
            if !known.contains(&name) && !name.starts_with("tag:") {
                return Err(error("InvalidParameterValue", format!("The filter '{name}' is invalid")));
            }
            if values.len() > LONGEST_FILTER {
                let message = "The maximum number of filter values specified on a single call is 200";
                return Err(error("FilterLimitExceeded", message));
            }
            filters.push(Filter::new(name, &values));
        }
        Ok(filters)
    }

    /// Which part of a list is asked for.
    pub fn page(&self, ids: &str) -> Result<Page, ApiError> {
        let Some(limit) = self.get("MaxResults") else {
            return Ok(Page { limit: usize::MAX, after: None });
        };
        if !self.list(ids).is_empty() {
            let message =
                "The parameter MaxResults cannot be used with the parameter of ids in the same request";
            return Err(error("InvalidParameterCombination", message));
        }
        let after = match self.get("NextToken") {
            None => None,
            Some(token) => Some(read_token(token)?),
        };
        match limit.parse() {
            Ok(limit) if (5..=1000).contains(&limit) => Ok(Page { limit, after }),
            _ => Err(error(
                "InvalidParameterValue",
                format!(
                    "Value ( {limit} ) for parameter maxResults is invalid. Expecting a value between 5 and 1000."
                ),
            )),
        }
    }
}

/// Which part of a list is asked for.
#[derive(Debug)]
pub struct Page {
    /// At most so many things.
    pub limit: usize,
    /// Those after this id.
    pub after: Option<String>,
}

/// The token that continues after an id.
pub fn page_token(after: &str) -> String {
    format!("after-{after}")
}

fn read_token(token: &str) -> Result<String, ApiError> {
    let after = token.strip_prefix("after-").map(str::to_owned);
    after.ok_or_else(|| error("InvalidNextToken", "The specified nextToken is not valid."))
}

/// A filter: the thing has one of the values.
#[derive(Debug)]
pub struct Filter {
    name: String,
    exact: HashSet<String>,
    /// Values with `*` and `?` in them.
    patterns: Vec<String>,
}

impl Filter {
    fn new(name: &str, values: &[&str]) -> Self {
        let (patterns, exact): (Vec<&str>, Vec<&str>) =
            values.iter().partition(|value| value.contains(['*', '?']));
        Self {
            name: name.to_owned(),
            exact: exact.into_iter().map(str::to_owned).collect(),
            patterns: patterns.into_iter().map(str::to_owned).collect(),
        }
    }

    /// The values, if this filter is of that name and none of them is a pattern.
    pub fn plain_values(&self, name: &str) -> Option<&HashSet<String>> {
        (self.name == name && self.patterns.is_empty()).then_some(&self.exact)
    }

    fn passes(&self, values: &[String]) -> bool {
        let fits = |value: &String| {
            self.exact.contains(value) || self.patterns.iter().any(|pattern| matches(pattern, value))
        };
        values.iter().any(fits)
    }
}

/// Whether a thing passes all filters, given the values of its fields and its tags.
pub fn passes(
    filters: &[Filter],
    tags: &BTreeMap<String, String>,
    field: impl Fn(&str) -> Vec<String>,
) -> bool {
    filters.iter().all(|filter| match filter.name.strip_prefix("tag:") {
        Some(tag) => filter.passes(tags.get(tag).map(std::slice::from_ref).unwrap_or_default()),
        None if filter.name == "tag-key" => filter.passes(&tags.keys().cloned().collect::<Vec<_>>()),
        None => filter.passes(&field(&filter.name)),
    })
}

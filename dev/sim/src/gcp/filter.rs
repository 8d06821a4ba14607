//! The two languages that lists can be filtered in: AIP-160, and regular expressions with `eq` and `ne`.

use regex::Regex;
use std::borrow::Cow;
use std::collections::HashSet;

/// A filter that makes sense.
#[derive(Debug)]
pub enum Filter {
    /// All of them hold.
    All(Vec<Filter>),
    /// One of them holds.
    Any(Vec<Filter>),
    /// It does not hold.
    Not(Box<Filter>),
    /// A field has one of these values.
    In(String, HashSet<String>),
    /// A field compares to a value.
    Compare(String, Operator, String),
    /// A field matches a regular expression from end to end.
    Matches(String, Regex),
}

/// Operators of AIP-160 besides equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operator {
    Has,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The filter makes no sense.
#[derive(Debug, PartialEq, Eq)]
pub struct Senseless;

/// Values of a field of the thing that is filtered.
pub type Values<'a> = Vec<Cow<'a, str>>;

impl Filter {
    /// Makes sense of a filter.
    pub fn parse(text: &str) -> Result<Self, Senseless> {
        let tokens = tokens(text)?;
        let regular = tokens.iter().any(is_regular);
        let plain = tokens.iter().any(|token| matches!(token, Token::Operator(_)));
        if regular && plain {
            return Err(Senseless); // the two languages cannot be mixed
        }
        let mut parser = Parser { tokens, at: 0 };
        let filter = parser.all()?;
        if parser.at < parser.tokens.len() {
            return Err(Senseless);
        }
        Ok(filter)
    }

    /// Whether a thing passes, given the values of its fields.
    pub fn passes<'a>(&self, field: &impl Fn(&str) -> Values<'a>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.passes(field)),
            Self::Any(parts) => parts.iter().any(|part| part.passes(field)),
            Self::Not(part) => !part.passes(field),
            Self::In(name, wanted) => field(name).iter().any(|value| wanted.contains(value.as_ref())),
            Self::Matches(name, pattern) => field(name).iter().any(|value| pattern.is_match(value)),
            Self::Compare(name, Operator::Has, wanted) if wanted == "*" => !field(name).is_empty(),
            Self::Compare(name, operator, wanted) => {
                field(name).iter().any(|value| compares(value, *operator, wanted))
            }
        }
    }
}

fn compares(value: &str, operator: Operator, wanted: &str) -> bool {
    let order = match (value.parse::<f64>(), wanted.parse::<f64>()) {
        (Ok(value), Ok(wanted)) => value.total_cmp(&wanted),
        _ => value.cmp(wanted),
    };
    match operator {
        Operator::Has => value.to_lowercase().contains(&wanted.to_lowercase()),
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterOrEqual => order.is_ge(),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Word(String),
    Quoted(String),
    Operator(&'static str),
}

fn is_regular(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word == "eq" || word == "ne")
}

fn tokens(text: &str) -> Result<Vec<Token>, Senseless> {
    const OPERATORS: [&str; 7] = ["!=", "<=", ">=", "=", "<", ">", ":"];
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '"' | '\'' => quoted(rest, first)?,
            _ => match OPERATORS.into_iter().find(|operator| rest.starts_with(operator)) {
                Some(operator) => (Token::Operator(operator), operator.len()),
                None => word(rest, found.last().is_some_and(is_regular)),
            },
        };
        found.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(found)
}

/// A word. One that is a regular expression goes on to the end of its brackets.
fn word(text: &str, regular: bool) -> (Token, usize) {
    let ends = |c: char| c.is_whitespace() || "()=!<>:\"'".contains(c);
    let length = if regular { text.find(')') } else { text.find(ends) };
    let length = length.unwrap_or(text.len()).max(1);
    (Token::Word(text[..length].trim_end().to_owned()), length)
}

/// A quoted text. Only the quote itself can be escaped; any other backslash belongs to the text.
fn quoted(text: &str, quote: char) -> Result<(Token, usize), Senseless> {
    let mut value = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((Token::Quoted(value), at + 1)),
            '\\' if chars.peek().is_some_and(|(_, next)| *next == quote) => {
                value.push(quote);
                chars.next();
            }
            c => value.push(c),
        }
    }
    Err(Senseless)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(found)) if found == word);
        self.at += usize::from(found);
        found
    }

    /// Parts with AND, or nothing, between them. OR binds closer, as AIP-160 says.
    fn all(&mut self) -> Result<Filter, Senseless> {
        let mut parts = vec![self.any()?];
        while self.peek().is_some_and(|token| *token != Token::Close) {
            self.eat("AND");
            parts.push(self.any()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Filter::All(parts) })
    }

    fn any(&mut self) -> Result<Filter, Senseless> {
        let mut parts = vec![self.one()?];
        while self.eat("OR") {
            parts.push(self.one()?);
        }
        Ok(join_equalities(parts))
    }

    fn one(&mut self) -> Result<Filter, Senseless> {
        if self.eat("NOT") {
            return Ok(Filter::Not(Box::new(self.one()?)));
        }
        if self.peek() == Some(&Token::Open) {
            self.at += 1;
            let inner = self.all()?;
            return if self.next() == Some(Token::Close) { Ok(inner) } else { Err(Senseless) };
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Filter, Senseless> {
        let (Some(Token::Word(field)), Some(operator)) = (self.next(), self.next()) else {
            return Err(Senseless);
        };
        let Some(Token::Word(value) | Token::Quoted(value)) = self.next() else {
            return Err(Senseless);
        };
        let negated = |filter| Filter::Not(Box::new(filter));
        Ok(match operator {
            Token::Word(word) if word == "eq" => Filter::Matches(field, full_match(&value)?),
            Token::Word(word) if word == "ne" => negated(Filter::Matches(field, full_match(&value)?)),
            Token::Operator("=") => Filter::In(field, HashSet::from([value])),
            Token::Operator("!=") => negated(Filter::In(field, HashSet::from([value]))),
            Token::Operator(":") => Filter::Compare(field, Operator::Has, value),
            Token::Operator("<") => Filter::Compare(field, Operator::Less, value),
            Token::Operator("<=") => Filter::Compare(field, Operator::LessOrEqual, value),
            Token::Operator(">") => Filter::Compare(field, Operator::Greater, value),
            Token::Operator(">=") => Filter::Compare(field, Operator::GreaterOrEqual, value),
            _ => return Err(Senseless),
        })
    }
}

/// `a=1 OR a=2 OR …` is one look-up instead of many comparisons.
fn join_equalities(parts: Vec<Filter>) -> Filter {
    let mut joined: Vec<Filter> = Vec::new();
    for part in parts {
        match (part, joined.last_mut()) {
            (Filter::In(field, values), Some(Filter::In(last, all))) if field == *last => all.extend(values),
            (part, _) => joined.push(part),
        }
    }
    if joined.len() == 1 { joined.remove(0) } else { Filter::Any(joined) }
}

fn full_match(pattern: &str) -> Result<Regex, Senseless> {
    Regex::new(&format!("^(?:{pattern})$")).map_err(|_| Senseless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(filter: &str, address: &'static str) -> bool {
        let fields = move |name: &str| -> Values<'static> {
            match name {
                "address" => vec![address.into()],
                "status" => vec!["RESERVED".into()],
                _ => vec![],
            }
        };
        Filter::parse(filter).expect(filter).passes(&fields)
    }

    #[test]
    fn both_languages_select() {
        let cases = [
            (r#"address="1.2.3.4""#, true),
            (r#"(address="9.9.9.9") OR (address="1.2.3.4")"#, true),
            (r#"(address="9.9.9.9") OR (address="8.8.8.8")"#, false),
            (r#"(address="1.2.3.4") AND (status=IN_USE)"#, false),
            (r#"(address="1.2.3.4") (status=RESERVED)"#, true),
            (r#"address!="1.2.3.4""#, false),
            (r"NOT status=IN_USE", true),
            (r"labels.owner:*", false),
            (r"status:*", true),
            (r#"address eq "1\.2\.3\.4|5\.6\.7\.8""#, true),
            (r"address eq 1\.2\.3\.4", true),
            (r"address eq 1\.2\.3", false), // the whole field must match
            (r"(address eq 1.2.3.4) (status ne RES.*)", false),
        ];
        for (filter, expected) in cases {
            assert_eq!(passes(filter, "1.2.3.4"), expected, "{filter}");
        }
    }

    #[test]
    fn senseless_filters_are_refused() {
        for filter in ["address", "address=", "(address=1", "(address eq 1) (status=2)", "address eq [", "=1"]
        {
            assert!(Filter::parse(filter).is_err(), "{filter}");
        }
    }
}

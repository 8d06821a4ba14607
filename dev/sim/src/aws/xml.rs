//! Writes XML as the EC2 Query API does.

use std::fmt::{Display, Write as _};

/// A growing document.
#[derive(Debug, Default)]
pub struct Xml {
    text: String,
}

impl Xml {
    /// An element that has a text.
    pub fn leaf(&mut self, name: &str, value: impl Display) -> &mut Self {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "<{name}>{}</{name}>", escape(&value.to_string()));
        self
    }

    /// An element that has a text, if there is one.
    pub fn optional(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.leaf(name, value),
            None => self,
        }
    }

    /// An element that has elements.
    pub fn node(&mut self, name: &str, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let _ = write!(self.text, "<{name}>");
        inside(self);
        let _ = write!(self.text, "</{name}>");
        self
    }

    /// A list: one `item` for each thing.
    pub fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.node(name, |xml| {
            for item in items {
                xml.node("item", |xml| each(xml, item));
            }
        })
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

fn escape(text: &str) -> String {
    if !text.contains(['&', '<', '>', '"']) {
        return text.to_owned();
    }
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped() {
        let mut xml = Xml::default();
        xml.node("a", |xml| {
            xml.leaf("b", "<&\">");
        });
        assert_eq!(xml.into_text(), "<a><b>&lt;&amp;&quot;&gt;</b></a>");
    }
}

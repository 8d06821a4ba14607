//! JSON whose objects have each key once, and that costs no more memory than a spec may. Of a key that comes
//! twice, two readers may take different values; so nobody gets it past us that way.

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// What a value may cost: about 10 MiB of memory at the worst. The largest spec that the schema admits, with
/// 32 terms of 32 expressions of 64 values, costs 100,000.
const MOST: u32 = 150_000;
/// A list takes four times the memory of what is in it, and an object, however small, twenty times.
const LIST: u32 = 4;
const OBJECT: u32 = 20;

/// A value without doubtful keys.
pub struct Unambiguous(pub Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let left = Cell::new(MOST);
        Reader { left: &left }.deserialize(from).map(Self)
    }
}

#[derive(Clone, Copy)]
struct Reader<'c> {
    left: &'c Cell<u32>,
}

impl Reader<'_> {
    fn spend<E: Error>(self, cost: u32) -> Result<(), E> {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.ok_or_else(|| E::custom("it has more values than any spec needs"))?);
        Ok(())
    }

    fn one<E: Error>(self, value: Value) -> Result<Value, E> {
        self.spend(1)?;
        Ok(value)
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.one(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.one(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.one(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.one(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.one(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.one(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.one(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        self.spend(LIST)?;
        let mut list = Vec::new();
        while let Some(value) = from.next_element_seed(self)? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        self.spend(OBJECT)?;
        let mut map = Map::new();
        while let Some(key) = from.next_key::<String>()? {
            self.spend(1)?;
            let value = from.next_value_seed(self)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key {key:.64?} comes twice")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

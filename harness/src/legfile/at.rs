//! A value that remembers where in the file it was written.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};

/// A value with its 1-based line and column.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// 1-based line; 0 when unknown.
    pub line: usize,
    /// 1-based column in characters; 0 when unknown.
    pub column: usize,
}

impl<T> At<T> {
    /// The same place with another value.
    pub fn with<U>(&self, value: U) -> At<U> {
        At {
            value,
            line: self.line,
            column: self.column,
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_yaml::Spanned::<T>::deserialize(deserializer)?;
        Ok(At {
            value: spanned.value,
            line: usize::try_from(spanned.referenced.line()).unwrap_or(0),
            column: usize::try_from(spanned.referenced.column()).unwrap_or(0),
        })
    }
}

/// In the schema the place does not show: `At<T>` is `T`.
impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

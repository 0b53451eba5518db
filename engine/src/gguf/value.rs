//! Metadata values.

use super::cursor::Cursor;
use super::error::Problem;

/// Arrays of arrays deeper than this are refused; no known file has any at all.
const MAX_DEPTH: u32 = 4;

/// The type tag of a metadata value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ValueType {
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    F32,
    Bool,
    String,
    Array,
    U64,
    I64,
    F64,
}

impl ValueType {
    fn from_id(id: u32) -> Option<ValueType> {
        use ValueType::*;
        [
            U8, I8, U16, I16, U32, I32, F32, Bool, String, Array, U64, I64, F64,
        ]
        .get(id as usize)
        .copied()
    }

    /// The fewest bytes that a value of this type can take in a file.
    fn least_bytes(self) -> u64 {
        use ValueType::*;
        match self {
            U8 | I8 | Bool => 1,
            U16 | I16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | String => 8,
            Array => 12,
        }
    }
}

/// A metadata value.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(Box<str>),
    Array(Box<Array>),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// A metadata array: one type for all elements.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Strings),
    Nested(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Many strings in one allocation: a vocabulary has 150,000 of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// How many.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The `i`-th string.
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let begin = if i == 0 { 0 } else { *self.ends.get(i - 1)? };
        self.text.get(begin..end)
    }

    /// All of them in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len()).map(|i| self.get(i).unwrap_or_default())
    }

    fn push(&mut self, s: &str) {
        self.text.push_str(s);
        self.ends.push(self.text.len());
    }
}

impl<'a> FromIterator<&'a str> for Strings {
    fn from_iter<I: IntoIterator<Item = &'a str>>(strings: I) -> Strings {
        let mut out = Strings::default();
        strings.into_iter().for_each(|s| out.push(s));
        out
    }
}

impl Value {
    /// What a message calls this value.
    pub fn kind(&self) -> String {
        match self {
            Value::U8(_) => "a u8".into(),
            Value::I8(_) => "an i8".into(),
            Value::U16(_) => "a u16".into(),
            Value::I16(_) => "an i16".into(),
            Value::U32(_) => "a u32".into(),
            Value::I32(_) => "an i32".into(),
            Value::F32(_) => "an f32".into(),
            Value::Bool(_) => "a bool".into(),
            Value::String(_) => "a string".into(),
            Value::U64(_) => "a u64".into(),
            Value::I64(_) => "an i64".into(),
            Value::F64(_) => "an f64".into(),
            Value::Array(array) => format!("an array of {} {}", array.len(), array.element_kind()),
        }
    }

    /// The value as an integer, whatever width it is stored in.
    pub fn as_i128(&self) -> Option<i128> {
        Some(match *self {
            Value::U8(v) => v.into(),
            Value::I8(v) => v.into(),
            Value::U16(v) => v.into(),
            Value::I16(v) => v.into(),
            Value::U32(v) => v.into(),
            Value::I32(v) => v.into(),
            Value::U64(v) => v.into(),
            Value::I64(v) => v.into(),
            _ => return None,
        })
    }

    /// Reads a value with its type tag.
    pub(super) fn read(cursor: &mut Cursor<'_>, what: &str) -> Result<Value, Problem> {
        let offset = cursor.offset();
        let ty = read_type(cursor, what)?;
        Ok(match ty {
            ValueType::U8 => Value::U8(cursor.array::<1>(what)?[0]),
            ValueType::I8 => Value::I8(i8::from_le_bytes(cursor.array(what)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(cursor.array(what)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(cursor.array(what)?)),
            ValueType::U32 => Value::U32(cursor.u32(what)?),
            ValueType::I32 => Value::I32(i32::from_le_bytes(cursor.array(what)?)),
            ValueType::F32 => Value::F32(f32::from_le_bytes(cursor.array(what)?)),
            ValueType::U64 => Value::U64(cursor.u64(what)?),
            ValueType::I64 => Value::I64(i64::from_le_bytes(cursor.array(what)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(cursor.array(what)?)),
            ValueType::Bool => match cursor.array::<1>(what)?[0] {
                0 => Value::Bool(false),
                1 => Value::Bool(true),
                other => {
                    return Err(Problem::Header {
                        offset: offset + 4,
                        what: format!("{what}: bool is {other}"),
                    });
                }
            },
            ValueType::String => Value::String(cursor.string(what)?.into()),
            ValueType::Array => Value::Array(Box::new(Array::read(cursor, what, 1)?)),
        })
    }
}

fn read_type(cursor: &mut Cursor<'_>, what: &str) -> Result<ValueType, Problem> {
    let offset = cursor.offset();
    let id = cursor.u32(what)?;
    ValueType::from_id(id).ok_or_else(|| Problem::Header {
        offset,
        what: format!("{what}: unknown value type {id}"),
    })
}

/// `count` fixed-size numbers; `count` has been checked against the bytes left.
fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    count: u64,
    what: &str,
    from: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, Problem> {
    let mut out = Vec::with_capacity(count as usize);
    for _ in 0..count {
        out.push(from(cursor.array(what)?));
    }
    Ok(out)
}

impl Array {
    /// How many elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::Nested(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a message calls the elements.
    pub fn element_kind(&self) -> &'static str {
        match self {
            Array::U8(_) => "u8",
            Array::I8(_) => "i8",
            Array::U16(_) => "u16",
            Array::I16(_) => "i16",
            Array::U32(_) => "u32",
            Array::I32(_) => "i32",
            Array::F32(_) => "f32",
            Array::Bool(_) => "bool",
            Array::String(_) => "strings",
            Array::Nested(_) => "arrays",
            Array::U64(_) => "u64",
            Array::I64(_) => "i64",
            Array::F64(_) => "f64",
        }
    }

    /// The `i`-th element as an integer (bools count as 0 and 1), if the array holds integers.
    pub fn integer(&self, i: usize) -> Option<i128> {
        Some(match self {
            Array::U8(v) => (*v.get(i)?).into(),
            Array::I8(v) => (*v.get(i)?).into(),
            Array::U16(v) => (*v.get(i)?).into(),
            Array::I16(v) => (*v.get(i)?).into(),
            Array::U32(v) => (*v.get(i)?).into(),
            Array::I32(v) => (*v.get(i)?).into(),
            Array::U64(v) => (*v.get(i)?).into(),
            Array::I64(v) => (*v.get(i)?).into(),
            Array::Bool(v) => (*v.get(i)?).into(),
            _ => return None,
        })
    }

    fn read(cursor: &mut Cursor<'_>, what: &str, depth: u32) -> Result<Array, Problem> {
        let offset = cursor.offset();
        if depth > MAX_DEPTH {
            return Err(Problem::Header {
                offset,
                what: format!("{what}: arrays nested deeper than {MAX_DEPTH}"),
            });
        }
        let ty = read_type(cursor, what)?;
        let count = cursor.u64(what)?;
        cursor.need(count, ty.least_bytes(), what)?;
        Ok(match ty {
            ValueType::U8 => Array::U8(numbers(cursor, count, what, u8::from_le_bytes)?),
            ValueType::I8 => Array::I8(numbers(cursor, count, what, i8::from_le_bytes)?),
            ValueType::U16 => Array::U16(numbers(cursor, count, what, u16::from_le_bytes)?),
            ValueType::I16 => Array::I16(numbers(cursor, count, what, i16::from_le_bytes)?),
            ValueType::U32 => Array::U32(numbers(cursor, count, what, u32::from_le_bytes)?),
            ValueType::I32 => Array::I32(numbers(cursor, count, what, i32::from_le_bytes)?),
            ValueType::F32 => Array::F32(numbers(cursor, count, what, f32::from_le_bytes)?),
            ValueType::U64 => Array::U64(numbers(cursor, count, what, u64::from_le_bytes)?),
            ValueType::I64 => Array::I64(numbers(cursor, count, what, i64::from_le_bytes)?),
            ValueType::F64 => Array::F64(numbers(cursor, count, what, f64::from_le_bytes)?),
            ValueType::Bool => Array::Bool(numbers(cursor, count, what, |[b]: [u8; 1]| b != 0)?),
            ValueType::String => {
                let mut strings = Strings::default();
                for _ in 0..count {
                    strings.push(cursor.string(what)?);
                }
                strings.text.shrink_to_fit();
                strings.ends.shrink_to_fit();
                Array::String(strings)
            }
            ValueType::Array => {
                // Grows as elements come: a claimed count at every depth must not reserve at each.
                let mut out = Vec::new();
                for _ in 0..count {
                    out.push(Array::read(cursor, what, depth + 1)?);
                }
                Array::Nested(out)
            }
        })
    }
}

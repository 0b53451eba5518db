//! Writing a GGUF header, for synthetic models and for tests.
//!
//! The caller lays out the data itself: offsets are relative to the end of the finished header.

use super::value::{Array, Value};

/// A GGUF version 3 header being built.
#[derive(Debug, Clone)]
pub struct HeaderWriter {
    alignment: u64,
    pairs: Vec<u8>,
    pair_count: u64,
    infos: Vec<u8>,
    info_count: u64,
}

impl HeaderWriter {
    /// An empty header; tensor data will be aligned to `alignment` (a power of two; 32 is the default
    /// of the format, and then the key is left out).
    pub fn new(alignment: u64) -> HeaderWriter {
        let mut out = HeaderWriter {
            alignment,
            pairs: Vec::new(),
            pair_count: 0,
            infos: Vec::new(),
            info_count: 0,
        };
        if alignment != 32 {
            out.set("general.alignment", Value::U32(alignment as u32));
        }
        out
    }

    /// Appends a metadata pair.
    pub fn set(&mut self, key: &str, value: Value) {
        string(&mut self.pairs, key);
        put_value(&mut self.pairs, &value);
        self.pair_count += 1;
    }

    /// Appends a u32.
    pub fn u32(&mut self, key: &str, value: u32) {
        self.set(key, Value::U32(value));
    }

    /// Appends a string.
    pub fn str(&mut self, key: &str, value: &str) {
        self.set(key, Value::String(value.into()));
    }

    /// Appends an array.
    pub fn array(&mut self, key: &str, value: Array) {
        self.set(key, Value::Array(Box::new(value)));
    }

    /// Appends a tensor info; `offset` is relative to the data section and must be aligned.
    pub fn tensor(&mut self, name: &str, dims: &[u64], type_id: u32, offset: u64) {
        string(&mut self.infos, name);
        self.infos.extend((dims.len() as u32).to_le_bytes());
        dims.iter()
            .for_each(|dim| self.infos.extend(dim.to_le_bytes()));
        self.infos.extend(type_id.to_le_bytes());
        self.infos.extend(offset.to_le_bytes());
        self.info_count += 1;
    }

    /// The header's bytes, padded to the alignment.
    pub fn finish(&self) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(24 + self.pairs.len() + self.infos.len() + self.alignment as usize);
        out.extend(b"GGUF");
        out.extend(3u32.to_le_bytes());
        out.extend(self.info_count.to_le_bytes());
        out.extend(self.pair_count.to_le_bytes());
        out.extend(&self.pairs);
        out.extend(&self.infos);
        out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
        out
    }
}

fn string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut scalar = |id: u32, bytes: &[u8]| {
        out.extend(id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(v) => scalar(0, &v.to_le_bytes()),
        Value::I8(v) => scalar(1, &v.to_le_bytes()),
        Value::U16(v) => scalar(2, &v.to_le_bytes()),
        Value::I16(v) => scalar(3, &v.to_le_bytes()),
        Value::U32(v) => scalar(4, &v.to_le_bytes()),
        Value::I32(v) => scalar(5, &v.to_le_bytes()),
        Value::F32(v) => scalar(6, &v.to_le_bytes()),
        Value::Bool(v) => scalar(7, &[u8::from(*v)]),
        Value::String(v) => {
            scalar(8, &[]);
            string(out, v);
        }
        Value::Array(v) => {
            scalar(9, &[]);
            put_array(out, v);
        }
        Value::U64(v) => scalar(10, &v.to_le_bytes()),
        Value::I64(v) => scalar(11, &v.to_le_bytes()),
        Value::F64(v) => scalar(12, &v.to_le_bytes()),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn numbers<T: Copy, const N: usize>(
        out: &mut Vec<u8>,
        id: u32,
        v: &[T],
        to: impl Fn(T) -> [u8; N],
    ) {
        out.extend(id.to_le_bytes());
        out.extend((v.len() as u64).to_le_bytes());
        v.iter().for_each(|&x| out.extend(to(x)));
    }
    match array {
        Array::U8(v) => numbers(out, 0, v, u8::to_le_bytes),
        Array::I8(v) => numbers(out, 1, v, i8::to_le_bytes),
        Array::U16(v) => numbers(out, 2, v, u16::to_le_bytes),
        Array::I16(v) => numbers(out, 3, v, i16::to_le_bytes),
        Array::U32(v) => numbers(out, 4, v, u32::to_le_bytes),
        Array::I32(v) => numbers(out, 5, v, i32::to_le_bytes),
        Array::F32(v) => numbers(out, 6, v, f32::to_le_bytes),
        Array::Bool(v) => numbers(out, 7, v, |b| [u8::from(b)]),
        Array::U64(v) => numbers(out, 10, v, u64::to_le_bytes),
        Array::I64(v) => numbers(out, 11, v, i64::to_le_bytes),
        Array::F64(v) => numbers(out, 12, v, f64::to_le_bytes),
        Array::String(v) => {
            numbers(out, 8, &[], |b: u8| [b]);
            let at = out.len() - 8;
            out[at..].copy_from_slice(&(v.len() as u64).to_le_bytes());
            v.iter().for_each(|s| string(out, s));
        }
        Array::Nested(v) => {
            numbers(out, 9, &[], |b: u8| [b]);
            let at = out.len() - 8;
            out[at..].copy_from_slice(&(v.len() as u64).to_le_bytes());
            v.iter().for_each(|a| put_array(out, a));
        }
    }
}

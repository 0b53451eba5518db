//! The reader on files built here, good and bad, and on the built-in model.

use std::path::Path;

use super::{Array, Gguf, HeaderWriter, Problem, Value};

/// F32's type id.
const F32: u32 = 0;

fn open(bytes: Vec<u8>) -> Result<Gguf, super::GgufError> {
    Gguf::from_bytes(Vec::leak(bytes), "test.gguf")
}

/// A header with two tensors, `a` [32] at 0 and `b` [4, 2] at 128, and its data.
fn two() -> Vec<u8> {
    let mut w = HeaderWriter::new(32);
    w.str("general.architecture", "glm-dsa");
    w.u32("n", 7);
    w.tensor("a", &[32], F32, 0);
    w.tensor("b", &[4, 2], F32, 128);
    let mut file = w.finish();
    file.extend((0..160u8).map(|i| i ^ 0x55));
    file
}

fn with(tensors: &[(&str, &[u64], u32, u64)], data: usize) -> Result<Gguf, super::GgufError> {
    let mut w = HeaderWriter::new(32);
    tensors
        .iter()
        .for_each(|(name, dims, id, offset)| w.tensor(name, dims, *id, *offset));
    let mut file = w.finish();
    file.resize(file.len() + data, 1);
    open(file)
}

fn message(result: Result<Gguf, super::GgufError>) -> String {
    result.expect_err("the file should be refused").to_string()
}

#[test]
fn reads_values_of_every_type_back() {
    let nested = Array::Nested(vec![
        Array::U8(vec![1, 2]),
        Array::String(["é", ""].into_iter().collect()),
    ]);
    let values = [
        Value::U8(1),
        Value::I8(-1),
        Value::U16(2),
        Value::I16(-2),
        Value::U32(3),
        Value::I32(-3),
        Value::F32(0.5),
        Value::Bool(true),
        Value::String("ü".into()),
        Value::U64(1 << 40),
        Value::I64(-(1 << 40)),
        Value::F64(0.25),
        Value::Array(Box::new(Array::I32(vec![-1, 0, 1]))),
        Value::Array(Box::new(Array::Bool(vec![true, false]))),
        Value::Array(Box::new(Array::F64(vec![1.5]))),
        Value::Array(Box::new(nested)),
    ];
    let mut w = HeaderWriter::new(64);
    values
        .iter()
        .enumerate()
        .for_each(|(i, v)| w.set(&format!("k{i}"), v.clone()));
    let gguf = open(w.finish()).unwrap();
    assert_eq!(gguf.alignment(), 64);
    for (i, v) in values.iter().enumerate() {
        assert_eq!(gguf.meta(&format!("k{i}")), Some(v));
    }
    assert_eq!(gguf.metadata().count(), values.len() + 1);
}

#[test]
fn reads_tensors_from_memory_file_and_mapping_alike() {
    let file = two();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    std::fs::write(&path, &file).unwrap();
    let (memory, disk) = (open(file).unwrap(), Gguf::open(&path).unwrap());
    assert_eq!(memory.tensors(), disk.tensors());
    let b = disk.tensor("b").unwrap();
    assert_eq!(
        (b.dims(), b.rows(), b.row_bytes(), b.elements()),
        (&[4, 2][..], 2, 16, 8)
    );
    let mut read = vec![0; 32];
    disk.read_tensor(b, &mut read).unwrap();
    assert_eq!(read, (128..160u8).map(|i| i ^ 0x55).collect::<Vec<_>>());
    assert_eq!(memory.tensor_bytes(b).unwrap(), read);
    assert_eq!(disk.tensor_bytes(b), None);
    disk.map().unwrap();
    assert_eq!(disk.tensor_bytes(b).unwrap(), read);
    assert!(
        disk.read_tensor(b, &mut [0; 3])
            .unwrap_err()
            .to_string()
            .contains("32 bytes")
    );
    assert!(disk.tensor("c").is_none());
}

#[test]
fn typed_getters_name_key_and_type_found() {
    let gguf = open(two()).unwrap();
    assert_eq!(gguf.u32("n").unwrap(), 7);
    assert_eq!(gguf.opt_u32("none").unwrap(), None);
    assert_eq!(gguf.architecture().unwrap(), "glm-dsa");
    let said = gguf.f32("n").unwrap_err().to_string();
    assert!(
        said.contains("`n`") && said.contains("a u32") && said.contains("an f32"),
        "{said}"
    );
    assert!(
        gguf.str("x.y")
            .unwrap_err()
            .to_string()
            .contains("`x.y` is missing")
    );
    assert!(
        gguf.array("n").is_err()
            && gguf.bool("n").is_err()
            && gguf.u32("general.architecture").is_err()
    );
}

#[test]
fn refuses_other_architectures_each_in_its_words() {
    for (arch, word) in [
        ("glm5-next", "GLM-5.3-Flash"),
        ("llama", "`llama` is not supported"),
    ] {
        let mut w = HeaderWriter::new(32);
        w.str("general.architecture", arch);
        let said = open(w.finish())
            .unwrap()
            .architecture()
            .unwrap_err()
            .to_string();
        assert!(said.contains(word), "{said}");
    }
}

#[test]
fn refuses_impossible_tensors() {
    let huge = u64::MAX;
    for (tensors, data, word) in [
        (
            &[("a", &[32u64][..], F32, 0u64)][..],
            127,
            "the file has 191",
        ),
        (&[("a", &[32], F32, 16)], 512, "alignment 32"),
        (
            &[("a", &[32], F32, 0), ("b", &[32], F32, 96)],
            512,
            "`a` and `b` overlap",
        ),
        (
            &[("a", &[32], F32, 0), ("a", &[32], F32, 128)],
            512,
            "described twice",
        ),
        (&[("a", &[33], 19, 0)], 512, "multiple of the 256"),
        (&[("a", &[0], F32, 0)], 512, "zero"),
        (&[("a", &[], F32, 0)], 512, "0 dimensions"),
        (&[("a", &[1, 1, 1, 1, 1], F32, 0)], 512, "5 dimensions"),
        (&[("a", &[huge, 1], F32, 0)], 512, "overflow"),
        (&[("a", &[1 << 32, 1 << 32], F32, 0)], 512, "overflow"),
        (&[("a", &[32], F32, huge - 31)], 512, "truncated"),
        (&[("a", &[32], 137, 0)], 512, "ik_llama.cpp"),
        (&[("a", &[32], 99, 0)], 512, "unknown"),
        (&[("a", &[32], 4, 0)], 512, "removed"),
        (&[("a", &[32], 0, 0), ("b", &[8], 26, 96)], 512, "overlap"),
    ] {
        let said = message(with(tensors, data));
        assert!(
            said.contains(word) && said.starts_with("test.gguf: "),
            "wanted `{word}` in: {said}"
        );
    }
}

#[test]
fn refuses_strangers_versions_and_truncation() {
    let edit = |at: usize, bytes: &[u8]| {
        let mut file = two();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        message(open(file))
    };
    assert!(edit(0, b"abcd").contains("not a GGUF file"));
    assert!(edit(4, &[1, 0, 0, 0]).contains("version 1"));
    assert!(edit(4, &[0, 0, 0, 3]).contains("big-endian"));
    assert!(edit(8, &[0xff; 8]).contains("truncated"));
    assert!(edit(16, &[0xff; 8]).contains("truncated"));
    // The first key's length.
    assert!(edit(24, &[0xff; 8]).contains("metadata key 0"));
    // The first value's type.
    assert!(edit(24 + 8 + 20, &[77]).contains("unknown value type 77"));
    assert!(message(open(Vec::new())).contains("empty"));
    let path = Path::new("/nonexistent/m.gguf");
    assert!(matches!(
        Gguf::open(path).unwrap_err().problem,
        Problem::Io { .. }
    ));
    assert!(message(Gguf::open(Path::new("/"))).contains("a directory"));
    let mut w = HeaderWriter::new(32);
    w.u32("twice", 1);
    w.u32("twice", 2);
    assert!(message(open(w.finish())).contains("`twice` appears twice"));
    let mut w = HeaderWriter::new(32);
    let deep = (0..8).fold(Array::U8(vec![1]), |inner, _| Array::Nested(vec![inner]));
    w.array("deep", deep);
    assert!(message(open(w.finish())).contains("nested deeper"));
}

/// Writes a set of `count` shards with one tensor each after the first; edits may spoil one.
fn split_set(dir: &Path, count: u16, edit: impl Fn(u16, &mut ShardPlan)) {
    for no in 0..count {
        let mut plan = ShardPlan {
            no,
            count,
            total: i32::from(count) - 1,
            tensor: format!("t{no}"),
        };
        edit(no, &mut plan);
        let mut w = HeaderWriter::new(32);
        w.set("split.no", Value::U16(plan.no));
        w.set("split.count", Value::U16(plan.count));
        w.set("split.tensors.count", Value::I32(plan.total));
        if no > 0 {
            w.tensor(&plan.tensor, &[8], F32, 0);
        }
        let mut file = w.finish();
        if no > 0 {
            file.extend([no as u8; 32]);
        }
        std::fs::write(
            dir.join(format!("m-{:05}-of-{count:05}.gguf", no + 1)),
            file,
        )
        .unwrap();
    }
}

struct ShardPlan {
    no: u16,
    count: u16,
    total: i32,
    tensor: String,
}

#[test]
fn opens_a_split_set_from_its_first_shard_only() {
    let dir = tempfile::tempdir().unwrap();
    let shard = |n: u32| dir.path().join(format!("m-{n:05}-of-00003.gguf"));
    split_set(dir.path(), 3, |_, _| ());
    let gguf = Gguf::open(&shard(1)).unwrap();
    assert_eq!(gguf.shards().len(), 3);
    let mut out = [0; 32];
    gguf.read_tensor(gguf.tensor("t2").unwrap(), &mut out)
        .unwrap();
    assert_eq!(out, [2; 32]);

    let said = message(Gguf::open(&shard(2)));
    assert!(
        said.contains("shard 2 of 3") && said.contains("m-00001-of-00003.gguf"),
        "{said}"
    );

    std::fs::rename(shard(1), dir.path().join("renamed.gguf")).unwrap();
    let said = message(Gguf::open(&dir.path().join("renamed.gguf")));
    assert!(said.contains("-00001-of-00003.gguf"), "{said}");
}

#[test]
fn refuses_sets_that_are_not_one() {
    type Edit = fn(u16, &mut ShardPlan);
    let cases: [(Edit, &str); 4] = [
        (
            |no, p| p.no = if no == 2 { 1 } else { no },
            "split.no is 1 (expected 2)",
        ),
        (
            |no, p| p.count = if no == 1 { 9 } else { 3 },
            "split.count 9",
        ),
        (
            |_, p| p.total = 7,
            "promises 7 tensors and the 3 shards hold 2",
        ),
        (|_, p| p.tensor = "same".into(), "described twice"),
    ];
    for (edit, word) in cases {
        let dir = tempfile::tempdir().unwrap();
        split_set(dir.path(), 3, edit);
        let said = message(Gguf::open(&dir.path().join("m-00001-of-00003.gguf")));
        assert!(said.contains(word), "wanted `{word}` in: {said}");
    }
    let dir = tempfile::tempdir().unwrap();
    split_set(dir.path(), 3, |_, _| ());
    let third = dir.path().join("m-00003-of-00003.gguf");
    std::fs::remove_file(&third).unwrap();
    assert!(
        message(Gguf::open(&dir.path().join("m-00001-of-00003.gguf")))
            .contains("1 of its 3 shards")
    );
    std::os::unix::fs::symlink(dir.path().join("m-00001-of-00003.gguf"), &third).unwrap();
    assert!(
        message(Gguf::open(&dir.path().join("m-00001-of-00003.gguf"))).contains("the same file as")
    );
}

#[test]
fn opens_the_built_in_model() {
    let gguf = crate::builtin::resolve_model("builtin:mini")
        .unwrap()
        .open()
        .unwrap();
    assert_eq!(
        (
            gguf.version(),
            gguf.tensors().len(),
            gguf.metadata().count()
        ),
        (3, 126, 46)
    );
    assert_eq!(gguf.u32("glm-dsa.attention.indexer.top_k").unwrap(), 128);
    let q = gguf.tensor("blk.1.ffn_gate_exps.weight").unwrap();
    assert_eq!(
        (q.dims(), q.ty.name(), q.bytes, q.layer()),
        (&[256, 256, 16][..], "IQ1_S", 204_800, Some(1))
    );
    assert!(
        gguf.tensor_bytes(q)
            .unwrap()
            .as_ptr()
            .addr()
            .is_multiple_of(32)
    );
}

//! The GGUF reader on thousands of damaged files: it never panics and never allocates beyond a small
//! multiple of what the file holds. Seeded, so that a failure repeats.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use legwork_engine::builtin::resolve_model;
use legwork_engine::gguf::{Array, Gguf, GgufError, HeaderWriter, Value};
use legwork_engine::tokenizer::Tokenizer;

/// Counts the live and the most live bytes of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    // A thread that is ending has no counters any more; nothing measures it then.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are System's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises are System's conditions.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both are alive for a moment.
        count(size as isize);
        // SAFETY: the caller's promises are System's conditions.
        let new = unsafe { System.realloc(at, layout, size) };
        count(-(layout.size() as isize));
        new
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promises are System's conditions.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `f` and returns the most bytes it had allocated at once.
fn peak<T>(f: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, PEAK.get() - before)
}

/// What a file of `len` bytes may cost: structures are larger than their bytes in the file (a 14-byte
/// metadata pair becomes some 100 bytes), and messages, names and the first buffers are constant.
fn allowance(len: usize) -> isize {
    (16 * len + 16 * 1024) as isize
}

/// Opens damaged bytes and does what the engine does with a file that opens.
fn open(bytes: &[u8]) -> Result<(), GgufError> {
    let bytes: &'static [u8] = Vec::leak(bytes.to_vec());
    let (result, cost) = peak(|| Gguf::from_bytes(bytes, "corpus.gguf"));
    assert!(
        cost <= allowance(bytes.len()),
        "{cost} bytes allocated for a file of {}",
        bytes.len()
    );
    match result {
        Ok(gguf) => {
            use_it(&gguf);
            Ok(())
        }
        Err(error) => {
            let text = error.to_string();
            assert!(
                text.starts_with("corpus.gguf: ") && text.len() < 2000,
                "{text}"
            );
            Err(error)
        }
    }
}

/// Files that opened so far.
static OPENED: AtomicU32 = AtomicU32::new(0);

fn use_it(gguf: &Gguf) {
    let _ = gguf.architecture();
    for tensor in gguf.tensors() {
        let mut data = vec![0; tensor.bytes as usize];
        gguf.read_tensor(tensor, &mut data)
            .expect("a tensor of an opened file must be readable");
        assert_eq!(gguf.tensor_bytes(tensor), Some(&data[..]));
        assert!(tensor.rows() * tensor.row_bytes() == tensor.bytes && tensor.elements() > 0);
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
    }
    for (key, _) in gguf.metadata() {
        let _ = (
            gguf.opt_u32(key),
            gguf.opt_str(key),
            gguf.opt_array(key),
            gguf.opt_bool(key),
            gguf.opt_f32(key),
        );
    }
    // Compiling the cutting pattern takes longer than all the rest: every 16th file must do.
    if !OPENED.fetch_add(1, Ordering::Relaxed).is_multiple_of(16) {
        return;
    }
    if let Ok(tokenizer) = Tokenizer::from_gguf(gguf) {
        let _ = tokenizer.encode("ab abc <x>é", true);
        let _ = tokenizer.decode(&[0, 1, 5, u32::MAX]);
        let _ = tokenizer.apply_chat(&[], true, &Default::default());
    }
}

/// A small file with values of every kind, a vocabulary and tensors of several types.
fn specimen() -> Vec<u8> {
    let mut w = HeaderWriter::new(32);
    w.str("general.architecture", "glm-dsa");
    w.u32("general.alignment", 32);
    w.set("u8", Value::U8(1));
    w.set("i16", Value::I16(-1));
    w.set("f64", Value::F64(0.5));
    w.set("split.count", Value::U16(1));
    let nested = Array::Nested(vec![
        Array::U8(vec![1, 2, 3]),
        Array::String(["x", "yz"].into_iter().collect()),
    ]);
    w.array("nested", nested);
    w.array("bools", Array::Bool(vec![true, false, true]));
    w.str("tokenizer.ggml.model", "gpt2");
    w.str("tokenizer.ggml.pre", "glm4");
    w.array(
        "tokenizer.ggml.tokens",
        Array::String(["a", "b", "c", "ab", "<x>", "Ġ"].into_iter().collect()),
    );
    w.array(
        "tokenizer.ggml.token_type",
        Array::I32(vec![1, 1, 1, 1, 3, 1]),
    );
    w.array(
        "tokenizer.ggml.merges",
        Array::String(["a b"].into_iter().collect()),
    );
    w.u32("tokenizer.ggml.eos_token_id", 4);
    w.str(
        "tokenizer.chat_template",
        "{% for m in messages %}{{ m.content }}{% endfor %}",
    );
    w.tensor("token_embd.weight", &[32, 6], 8, 0);
    w.tensor("blk.0.attn_norm.weight", &[8], 0, 224);
    w.tensor("blk.0.ffn_gate_exps.weight", &[256, 2, 2], 19, 256);
    let mut file = w.finish();
    let data = 256 + 200;
    file.extend((0..data).map(|i| (i * 7) as u8));
    file
}

/// Where the data section begins.
fn header_len(file: &[u8]) -> usize {
    let gguf =
        Gguf::from_bytes(Vec::leak(file.to_vec()), "specimen").expect("the specimen is good");
    gguf.shards()[0].data_offset() as usize
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

#[test]
fn a_good_file_opens() {
    assert!(open(&specimen()).is_ok());
}

#[test]
fn every_truncation_is_refused() {
    let file = specimen();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("cut.gguf");
    for len in 0..file.len() {
        assert!(open(&file[..len]).is_err(), "cut at {len}");
        // From disk too, every few bytes.
        if len % 16 == 0 {
            std::fs::write(&path, &file[..len]).expect("a small file can be written");
            let (result, cost) = peak(|| Gguf::open(&path).map(|_| ()));
            assert!(
                result.is_err() && cost <= allowance(len),
                "cut at {len}: {cost}"
            );
        }
    }
}

#[test]
fn flipped_lengths_and_counts_cost_nothing() {
    let file = specimen();
    let end = header_len(&file);
    let lengths = [
        0,
        1,
        9,
        1 << 31,
        1 << 32,
        1 << 40,
        1 << 62,
        1 << 63,
        u64::MAX - 7,
        u64::MAX,
        file.len() as u64,
    ];
    let (mut tried, mut refused) = (0, 0);
    for at in 4..end - 8 {
        for value in lengths {
            let mut bad = file.clone();
            bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
            refused += usize::from(open(&bad).is_err());
            tried += 1;
        }
        for value in [0u32, 4, 8, 9, 12, 13, 19, 137, u32::MAX] {
            let mut bad = file.clone();
            bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
            refused += usize::from(open(&bad).is_err());
            tried += 1;
        }
    }
    assert!(
        tried > 10_000 && refused > tried / 2,
        "{refused} of {tried}"
    );
}

#[test]
fn random_damage_never_panics() {
    let file = specimen();
    let end = header_len(&file);
    let mut random = Random(2026);
    for _ in 0..20_000 {
        let mut bad = file.clone();
        for _ in 0..1 + random.below(6) {
            match random.below(4) {
                0 => bad[random.below(end)] ^= 1 << random.below(8),
                1 => bad[random.below(end)] = random.next() as u8,
                2 => {
                    let at = random.below(bad.len());
                    bad.remove(at);
                }
                _ => {
                    let (from, to) = (random.below(end), random.below(end - 8));
                    let piece = bad[from..(from + 8).min(bad.len())].to_vec();
                    let to_end = (to + piece.len()).min(bad.len());
                    bad[to..to_end].copy_from_slice(&piece[..to_end - to]);
                }
            }
            if bad.len() < end {
                bad.resize(file.len(), 0xa5);
            }
        }
        let _ = open(&bad);
    }
}

/// The real model's header, damaged: long vocabularies and merges.
#[test]
fn damage_to_the_built_in_model_never_panics() {
    let source = resolve_model("builtin:mini").expect("the built-in model is known");
    let whole = source.builtin_bytes().expect("it has bytes");
    let good = source.open().expect("it opens");
    let end = good.shards()[0].data_offset() as usize;
    let mut random = Random(7);
    for _ in 0..60 {
        let mut bad = whole[..end + 4096].to_vec();
        for _ in 0..1 + random.below(3) {
            bad[random.below(end)] = random.next() as u8;
        }
        let bytes: &'static [u8] = Vec::leak(bad);
        let (result, cost) = peak(|| Gguf::from_bytes(bytes, "corpus.gguf").map(|_| ()));
        assert!(cost <= allowance(bytes.len()), "{cost}");
        // Its tensors' data is cut off, so that it never opens.
        assert!(result.is_err());
    }
}

/// Random tensor layouts against the plain definition: accepted exactly if inside, aligned and disjoint.
#[test]
fn layouts_are_accepted_exactly_when_disjoint() {
    let mut random = Random(99);
    let mut accepted = 0;
    for _ in 0..4000 {
        let room = 1024u64;
        let tensors: Vec<(u64, u64)> = (0..1 + random.below(4))
            .map(|_| (random.below(34) as u64 * 32, 1 + random.below(80) as u64))
            .collect();
        let mut w = HeaderWriter::new(32);
        tensors
            .iter()
            .enumerate()
            .for_each(|(i, (at, len))| w.tensor(&format!("t{i}"), &[*len], 0, *at));
        let mut file = w.finish();
        file.resize(file.len() + room as usize, 0);
        let range = |(at, len): (u64, u64)| (at, at + len * 4);
        let good = tensors.iter().all(|&t| range(t).1 <= room)
            && tensors.iter().enumerate().all(|(i, &a)| {
                tensors[..i]
                    .iter()
                    .all(|&b| range(a).1 <= range(b).0 || range(b).1 <= range(a).0)
            });
        assert_eq!(open(&file).is_ok(), good, "{tensors:?}");
        accepted += usize::from(good);
    }
    assert!(accepted > 500, "{accepted}");
}

fn shard(no: u16, count: u16, total: i32, tensors: &[&str]) -> Vec<u8> {
    let mut w = HeaderWriter::new(32);
    w.set("split.no", Value::U16(no));
    w.set("split.count", Value::U16(count));
    w.set("split.tensors.count", Value::I32(total));
    tensors
        .iter()
        .enumerate()
        .for_each(|(i, name)| w.tensor(name, &[8], 0, 32 * i as u64));
    let mut file = w.finish();
    file.resize(file.len() + 32 * tensors.len(), 0);
    file
}

fn set(dir: &Path, number: u32, count: u32) -> std::path::PathBuf {
    dir.join(format!("m-{number:05}-of-{count:05}.gguf"))
}

#[test]
fn cyclic_and_boastful_split_sets_end() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let first = set(dir.path(), 1, 2);
    let second = set(dir.path(), 2, 2);
    let write = |path: &Path, bytes: Vec<u8>| {
        std::fs::write(path, bytes).expect("a small file can be written")
    };
    let refused = |word: &str| {
        let (result, cost) = peak(|| Gguf::open(&first).map(|_| ()));
        let said = result.expect_err("the set must be refused").to_string();
        assert!(said.contains(word), "wanted `{word}` in: {said}");
        assert!(cost <= allowance(2 * 1024), "{cost}: {said}");
    };
    write(&first, shard(0, 2, 2, &["a"]));
    // The second shard is the first one: by symbolic link, by hard link, and by copy.
    std::os::unix::fs::symlink(&first, &second).expect("a link");
    refused("the same file as");
    std::fs::remove_file(&second).expect("it was there");
    std::fs::hard_link(&first, &second).expect("a link");
    refused("the same file as");
    std::fs::remove_file(&second).expect("it was there");
    write(&second, shard(0, 2, 2, &["a"]));
    refused("split.no is 0 (expected 1)");
    // A link to itself.
    std::fs::remove_file(&second).expect("it was there");
    std::os::unix::fs::symlink(&second, &second).expect("a link");
    refused("are missing");
    std::fs::remove_file(&second).expect("it was there");
    write(&second, shard(1, 2, 2, &["a"]));
    refused("described twice");
    write(&second, shard(1, 2, 2, &["b", "c"]));
    refused("promises 2 tensors");
    // A count that no name can have, and one of 65535 absent files.
    write(&first, shard(0, 65535, 2, &["a"]));
    refused("-00001-of-65535.gguf");
    let many = set(dir.path(), 1, 65535);
    write(&many, shard(0, 65535, 2, &["a"]));
    let (result, cost) = peak(|| Gguf::open(&many).map(|_| ()));
    assert!(
        result
            .expect_err("it is alone")
            .to_string()
            .contains("65534 of its 65535")
    );
    assert!(cost <= allowance(1024), "{cost}");
    // And at last a good one.
    write(&first, shard(0, 2, 2, &["a"]));
    write(&second, shard(1, 2, 2, &["b"]));
    assert!(Gguf::open(&first).is_ok());
}

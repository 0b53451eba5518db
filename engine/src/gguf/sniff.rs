//! What a file that does not begin with `GGUF` looks like instead.

/// Describes the beginning of a file that is not GGUF, with what to do. `head` may be short.
pub(super) fn looks_like(head: &[u8], size: u64) -> String {
    let text = String::from_utf8_lossy(head);
    let trimmed = text.trim_start().to_ascii_lowercase();
    let begins = |magic: &[u8]| head.starts_with(magic);
    if size == 0 {
        "it is empty; the download or copy never began".into()
    } else if text.starts_with("version https://git-lfs") {
        "it is a git-lfs pointer, not the file itself; run `git lfs pull` in its repository".into()
    } else if trimmed.starts_with("<!doctype") || trimmed.starts_with("<html") {
        "it is an HTML page, probably a download's error or login page; fetch the file itself"
            .into()
    } else if begins(b"FUGG") {
        "it looks like a byte-swapped (big-endian) GGUF; convert it with `gguf_convert_endian.py FILE little`".into()
    } else if begins(b"tjgg") || begins(b"lmgg") || begins(b"fmgg") || begins(b"algg") {
        "it is a GGML file from before GGUF; convert the original model again".into()
    } else if is_safetensors(head) {
        "it looks like safetensors; convert the model with `convert_hf_to_gguf.py`".into()
    } else if begins(b"PK\x03\x04") || begins(b"\x80\x02") {
        "it looks like a PyTorch checkpoint (zip or pickle); convert the model to GGUF".into()
    } else if begins(b"\x1f\x8b") || begins(b"\x28\xb5\x2f\xfd") || begins(b"\xfd7zXZ") {
        "it is compressed (gzip, zstd or xz); unpack it first".into()
    } else if begins(b"\x7fELF") || begins(b"#!") {
        "it is a program, not a model".into()
    } else if trimmed.starts_with('{') || trimmed.starts_with('[') {
        "it looks like JSON; name the .gguf file".into()
    } else if head.iter().all(|&byte| byte == 0) {
        "it begins with zeros; the download reserved the space but never wrote it, fetch it again"
            .into()
    } else {
        let shown: Vec<String> = head.iter().take(4).map(|b| format!("{b:02x}")).collect();
        format!(
            "it begins with the bytes {}; name a .gguf file",
            shown.join(" ")
        )
    }
}

/// safetensors: a u64 length of a JSON header, then that header.
fn is_safetensors(head: &[u8]) -> bool {
    let Some((len, rest)) = head.split_first_chunk::<8>() else {
        return false;
    };
    u64::from_le_bytes(*len) < 1 << 32 && rest.first() == Some(&b'{')
}

#[cfg(test)]
mod tests {
    use super::looks_like;

    #[test]
    fn names_the_usual_strangers() {
        for (head, word) in [
            (
                &b"version https://git-lfs.github.com/spec/v1\n"[..],
                "git-lfs",
            ),
            (b"\n<!DOCTYPE html><html>", "HTML"),
            (b"FUGG\0\0\0\x03", "big-endian"),
            (b"\x10\x02\0\0\0\0\0\0{\"__metadata__\":", "safetensors"),
            (b"PK\x03\x04....", "PyTorch"),
            (b"\x28\xb5\x2f\xfd1234", "compressed"),
            (b"{\"a\": 1}", "JSON"),
            (b"tjgg1234", "before GGUF"),
            (b"\0\0\0\0\0\0\0\0\0\0", "zeros"),
            (b"abcd", "61 62 63 64"),
        ] {
            let said = looks_like(head, head.len() as u64);
            assert!(said.contains(word), "{word}: {said}");
        }
        assert!(looks_like(b"", 0).contains("empty"));
    }
}

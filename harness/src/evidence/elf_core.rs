//! Reads the notes of an ELF core file: signal, code and address of the fault, threads, mapped files with build
//! ids, so that the faulting module is named without a debugger. Bounded; never panics; little-endian x86-64 and
//! aarch64 (the layouts of `struct elf_prstatus` differ only in the register set).

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader};

use crate::supervise::spec::{CoreModule, CoreThread};

const MOST_NOTES: u64 = 64 << 20;
const MOST_THREADS: usize = 4096;
const MOST_FILES: usize = 65536;

/// What the notes of a core say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoreNotes {
    /// The process.
    pub pid: Option<i32>,
    /// Its name.
    pub comm: Option<String>,
    /// Signal of the crash.
    pub signal: Option<i32>,
    /// `si_code`.
    pub si_code: Option<i32>,
    /// `si_addr`, for signals that have one.
    pub address: Option<u64>,
    /// Threads, the crashed one first.
    pub threads: Vec<CoreThread>,
    /// Mapped files, one entry per file.
    pub modules: Vec<CoreModule>,
    /// Bytes that the file should have.
    pub expected_size: u64,
    /// It is shorter than that.
    pub truncated: bool,
}

impl CoreNotes {
    /// The mapped file that holds an address.
    #[must_use]
    pub fn module_of(&self, address: u64) -> Option<&CoreModule> {
        self.modules
            .iter()
            .find(|m| (m.start..m.end).contains(&address))
    }
}

/// A loaded segment: address, bytes in the file, offset.
type Segment = (u64, u64, u64);

/// Reads a core file. The error says why it is none.
pub fn read(path: &Path) -> Result<CoreNotes, String> {
    let mut f = File::open(path).map_err(|e| e.to_string())?;
    let size = f.metadata().map_err(|e| e.to_string())?.len();
    let mut head = vec![0u8; 64];
    f.read_exact(&mut head)
        .map_err(|_| "shorter than an ELF header".to_owned())?;
    let e = Endianness::Little;
    let header = elf::FileHeader64::<Endianness>::parse(head.as_slice())
        .map_err(|e| format!("not a 64-bit ELF file: {e}"))?;
    if !header.is_little_endian() || header.e_type(e) != elf::ET_CORE {
        return Err("not a little-endian core file".into());
    }
    let machine = header.e_machine(e);
    let phoff = header.e_phoff(e);
    let mut phnum = u64::from(header.e_phnum(e));
    if phnum == u64::from(elf::PN_XNUM) {
        // More segments than 16 bits hold: the count is in the first section header.
        let shdr = at(&mut f, header.e_shoff(e), 64)
            .ok_or("no section header with the number of segments")?;
        phnum = u64::from(u32_of(&shdr, 44));
    }
    if phnum > 1_000_000 {
        return Err(format!("{phnum} segments"));
    }
    let table = at(&mut f, phoff, phnum * 56).ok_or("the program headers are cut off")?;
    let (headers, _) = object::slice_from_bytes::<elf::ProgramHeader64<Endianness>>(
        &table,
        usize::try_from(phnum).unwrap_or(0),
    )
    .map_err(|()| "the program headers are cut off")?;
    let mut c = CoreNotes::default();
    let mut loads: Vec<Segment> = Vec::new();
    let mut note_parts = Vec::new();
    for p in headers {
        let (off, len) = (p.p_offset(e), p.p_filesz(e));
        c.expected_size = c.expected_size.max(off.saturating_add(len));
        match p.p_type(e) {
            elf::PT_LOAD if len > 0 => loads.push((p.p_vaddr(e), len, off)),
            elf::PT_NOTE if len <= MOST_NOTES => note_parts.push((off, len)),
            _ => {}
        }
    }
    c.truncated = size < c.expected_size;
    let mut raw_files = Vec::new();
    for (off, len) in note_parts {
        let data = at(&mut f, off, len).ok_or("the notes are cut off")?;
        notes(&data, machine, &mut c, &mut raw_files);
    }
    c.modules = modules(raw_files);
    for m in &mut c.modules {
        m.build_id = build_id(&mut f, &loads, m.start);
    }
    let found: Vec<Option<String>> = c
        .threads
        .iter()
        .map(|t| t.pc.and_then(|pc| c.module_of(pc)).map(|m| m.path.clone()))
        .collect();
    for (t, m) in c.threads.iter_mut().zip(found) {
        t.module = m;
    }
    Ok(c)
}

fn at(f: &mut File, off: u64, len: u64) -> Option<Vec<u8>> {
    let have = f.metadata().ok()?.len();
    if off.checked_add(len)? > have {
        return None;
    }
    f.seek(SeekFrom::Start(off)).ok()?;
    let mut b = vec![0u8; usize::try_from(len).ok()?];
    f.read_exact(&mut b).ok()?;
    Some(b)
}

fn u32_of(b: &[u8], at: usize) -> u32 {
    b.get(at..at + 4)
        .and_then(|s| s.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

fn i32_of(b: &[u8], at: usize) -> i32 {
    b.get(at..at + 4)
        .and_then(|s| s.try_into().ok())
        .map_or(0, i32::from_le_bytes)
}

fn u64_of(b: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        b.get(at..at.checked_add(8)?)?.try_into().ok()?,
    ))
}

fn notes(data: &[u8], machine: elf::Machine, c: &mut CoreNotes, files: &mut Vec<CoreModule>) {
    let e = Endianness::Little;
    let Ok(mut it) = NoteIterator::<elf::FileHeader64<Endianness>>::new(e, 4, data) else {
        return;
    };
    while let Ok(Some(n)) = it.next() {
        let d = n.desc();
        match n.n_type(e) {
            elf::NT_PRSTATUS
                if n.name() == elf::ELF_NOTE_CORE && c.threads.len() < MOST_THREADS =>
            {
                // elf_prstatus: siginfo 12, cursig 2, …, pid at 32; registers at 112.
                let reg = match machine {
                    elf::EM_X86_64 => Some(16),
                    elf::EM_AARCH64 => Some(32),
                    _ => None,
                };
                if c.threads.is_empty() {
                    let s = i32::from(i16::from_le_bytes([
                        d.get(12).copied().unwrap_or(0),
                        d.get(13).copied().unwrap_or(0),
                    ]));
                    c.signal = c.signal.or((s != 0).then_some(s));
                }
                c.threads.push(CoreThread {
                    tid: i32_of(d, 32),
                    pc: reg.and_then(|r| u64_of(d, 112 + 8 * r)),
                    module: None,
                });
            }
            elf::NT_PRPSINFO if n.name() == elf::ELF_NOTE_CORE => {
                // elf_prpsinfo: pid at 24, fname[16] at 40.
                c.pid = Some(i32_of(d, 24)).filter(|&p| p > 0);
                let name = d.get(40..56).unwrap_or_default();
                let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
                c.comm = Some(String::from_utf8_lossy(&name[..end]).into_owned());
            }
            elf::NT_SIGINFO if d.len() >= 24 => {
                let signo = i32_of(d, 0);
                c.signal = Some(signo);
                c.si_code = Some(i32_of(d, 8));
                // Only faults have an address; for a signal that was sent (code <= 0) these bytes are pid and uid.
                if matches!(signo, 4 | 5 | 7 | 8 | 11) && i32_of(d, 8) > 0 {
                    c.address = u64_of(d, 16);
                }
            }
            elf::NT_FILE => mapped_files(d, files),
            _ => {}
        }
    }
}

fn mapped_files(d: &[u8], out: &mut Vec<CoreModule>) {
    let Some(count) = u64_of(d, 0)
        .and_then(|n| usize::try_from(n).ok())
        .filter(|&n| n <= MOST_FILES)
    else {
        return;
    };
    let Some(names) = count.checked_mul(24).and_then(|n| d.get(16 + n..)) else {
        return;
    };
    for (i, name) in names.split(|&b| b == 0).take(count).enumerate() {
        let at = 16 + 24 * i;
        if let (Some(start), Some(end)) = (u64_of(d, at), u64_of(d, at + 8)) {
            out.push(CoreModule {
                path: String::from_utf8_lossy(name).into_owned(),
                start,
                end,
                build_id: None,
            });
        }
    }
}

/// Joins the mappings of one file that follow each other.
fn modules(maps: Vec<CoreModule>) -> Vec<CoreModule> {
    let mut out: Vec<CoreModule> = Vec::new();
    for m in maps {
        match out.last_mut() {
            Some(l) if l.path == m.path => l.end = l.end.max(m.end),
            _ => out.push(m),
        }
    }
    out
}

/// The GNU build id of the ELF image mapped at `start`, as far as its first page is in the core.
fn build_id(f: &mut File, loads: &[Segment], start: u64) -> Option<String> {
    let &(vaddr, len, off) = loads
        .iter()
        .find(|(a, l, _)| (*a..a.saturating_add(*l)).contains(&start))?;
    let skip = start - vaddr;
    let page = at(f, off.checked_add(skip)?, (len - skip).min(4096))?;
    if page.get(..4)? != b"\x7fELF" {
        return None;
    }
    let (phoff, n) = (
        usize::try_from(u64_of(&page, 32)?).ok()?,
        usize::from(u16::from_le_bytes([page[56], page[57]])),
    );
    for i in 0..n.min(64) {
        let p = phoff.checked_add(56 * i)?;
        if u32_of(&page, p) != elf::PT_NOTE.0 {
            continue;
        }
        let (o, l) = (
            usize::try_from(u64_of(&page, p + 8)?).ok()?,
            usize::try_from(u64_of(&page, p + 32)?).ok()?,
        );
        let Some(data) = o.checked_add(l).and_then(|end| page.get(o..end)) else {
            continue;
        };
        let align = u64_of(&page, p + 48)?;
        let e = Endianness::Little;
        let Ok(mut it) = NoteIterator::<elf::FileHeader64<Endianness>>::new(
            e,
            if align == 8 { 8 } else { 4 },
            data,
        ) else {
            continue;
        };
        while let Ok(Some(note)) = it.next() {
            if note.n_type(e) == elf::NT_GNU_BUILD_ID && note.name() == elf::ELF_NOTE_GNU {
                return Some(note.desc().iter().map(|b| format!("{b:02x}")).collect());
            }
        }
    }
    None
}

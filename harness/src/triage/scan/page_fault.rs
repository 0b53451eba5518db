//! The lines of a GPU page fault, in the forms of all driver ages.

use crate::triage::finding::{PageFault, Proc};
use crate::triage::pattern::{leading_decimal, matches, parse_hex};

/// `[gfxhub] page fault (src_id:0 ring:24 vmid:8 pasid:32771…`, with the words that some versions put before `page fault`;
/// gfx8: `GPU fault detected: 147 0x0c004802 for process X pid N thread Y pid N`.
pub(super) fn header(b: &[u8]) -> Option<PageFault> {
    if b.first() == Some(&b'[') {
        let close = b.iter().take(24).position(|&c| c == b']')?;
        let hub = &b[1..close];
        if !(hub.starts_with(b"gfxhub")
            || hub.starts_with(b"mmhub")
            || hub.starts_with(b"gfx")
            || hub.starts_with(b"vmhub"))
        {
            return None;
        }
        let rest = &b[close + 1..];
        let at = memchr::memmem::find(&rest[..rest.len().min(48)], b"age fault (")?;
        let args = &rest[at + 11..];
        let mut f = PageFault {
            hub: String::from_utf8_lossy(hub).into_owned(),
            ..PageFault::default()
        };
        let num = |key: &[u8]| {
            memchr::memmem::find(args, key).and_then(|p| leading_decimal(&args[p + key.len()..]))
        };
        f.ring = num(b"ring:").and_then(|n| u16::try_from(n).ok());
        f.vmid = num(b"vmid:").and_then(|n| u8::try_from(n).ok());
        f.pasid = num(b"pasid:");
        if let Some(p) = memchr::memmem::find(args, b"for process") {
            f.process = parse_process(&args[p + 11..]);
        }
        return Some(f);
    }
    let rest = b.strip_prefix(b"GPU fault detected: ")?;
    let mut f = PageFault::default();
    if let Some(p) = memchr::memmem::find(rest, b"for process") {
        f.process = parse_process(&rest[p + 11..]);
    }
    Some(f)
}

/// A line that names the process of a fault or of a job.
pub(super) fn process_line(b: &[u8]) -> Option<Proc> {
    for head in [
        &b"in process"[..],
        b"for process",
        b"Process information: process",
        b"Process",
    ] {
        if let Some(rest) = b.strip_prefix(head) {
            return parse_process(rest);
        }
    }
    None
}

/// `  X pid N thread Y pid N)` after the word `process`; names may be empty or hold blanks.
pub(super) fn parse_process(b: &[u8]) -> Option<Proc> {
    let at = memchr::memmem::find(b, b" pid ")?;
    let text = |b: &[u8]| String::from_utf8_lossy(b.trim_ascii()).into_owned();
    let mut p = Proc {
        comm: text(&b[..at]),
        pid: leading_decimal(&b[at + 5..]),
        ..Proc::default()
    };
    let tail = &b[at + 5..];
    if let Some(t) = memchr::memmem::find(tail, b" thread") {
        let tail = &tail[t + 7..];
        if let Some(at) = memchr::memmem::find(tail, b" pid ") {
            p.thread_comm = text(&tail[..at]);
            p.thread = leading_decimal(&tail[at + 5..]);
        }
    }
    p.pid.map(|_| p)
}

/// Address, status and field lines.
pub(super) fn fault_detail(f: &mut PageFault, b: &[u8]) -> bool {
    let value = |b: &[u8]| parse_hex(b.trim_ascii());
    if let Some(p) = memchr::memmem::find(b, b"at address 0x") {
        if p <= 32 {
            f.address = parse_hex(&b[p + 11..]);
            return true;
        }
        return false;
    }
    if let Some(p) = memchr::memmem::find(b, b"PROTECTION_FAULT_STATUS") {
        if p > 16 {
            return false;
        }
        let rest = &b[p + 23..];
        let rest = rest.strip_prefix(b"_LO32").unwrap_or(rest);
        if rest.starts_with(b"_HI32") {
            return true;
        }
        let rest = rest.strip_prefix(b":").unwrap_or(rest).trim_ascii();
        f.status = parse_hex(rest).and_then(|v| u32::try_from(v).ok());
        return true;
    }
    if let Some(p) = memchr::memmem::find(b, b"PROTECTION_FAULT_ADDR") {
        if p > 16 {
            return false;
        }
        f.address = f
            .address
            .or_else(|| value(b[p + 21..].strip_prefix(b":").unwrap_or(&b[p + 21..])));
        return true;
    }
    if b.starts_with(b"Faulty UTCL2 client ID:") || b.starts_with(b"\t Faulty") {
        let rest = b[23..].trim_ascii();
        let open = rest.iter().rposition(|&c| c == b'(');
        match open {
            Some(o) => {
                f.client_name = Some(String::from_utf8_lossy(rest[..o].trim_ascii()).into_owned());
                f.client_id = parse_hex(&rest[o + 1..]).and_then(|v| u16::try_from(v).ok());
            }
            None if rest.starts_with(b"0x") => {
                f.client_id = parse_hex(rest).and_then(|v| u16::try_from(v).ok());
            }
            None => f.client_name = Some(String::from_utf8_lossy(rest).into_owned()),
        }
        return true;
    }
    if let Some(c) = matches(
        "VM fault ({code}, vmid {vmid}, pasid {pasid}) at page {page}, {rw} from '{name}'",
        b,
    ) {
        f.vmid = f.vmid.or(c.num("vmid").and_then(|n| u8::try_from(n).ok()));
        f.pasid = c.num("pasid");
        f.address = f.address.or(c.num("page").map(|p| p << 12));
        f.rw = Some(c.bytes("rw").starts_with(b"write"));
        // gfx8 names texture and L2 clients: the shader's side.
        f.client_name = Some(c.text("name"));
        return true;
    }
    let field = |key: &[u8]| -> Option<u64> { value(b.strip_prefix(key)?.strip_prefix(b":")?) };
    if let Some(v) = field(b"WALKER_ERROR") {
        f.walker = u8::try_from(v).ok();
    } else if let Some(v) = field(b"PERMISSION_FAULTS") {
        f.permission = u8::try_from(v).ok();
    } else if let Some(v) = field(b"MAPPING_ERROR") {
        f.mapping = Some(v != 0);
    } else if let Some(v) = field(b"RW") {
        f.rw = Some(v != 0);
    } else {
        return field(b"MORE_FAULTS").is_some();
    }
    true
}

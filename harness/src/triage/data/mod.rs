//! The tables: which words mean what, one file per subsystem, a source for every row.
//!
//! To add a line: find the subsystem's file, add a [`Row`] with a template (see `pattern.rs`), the finding that it makes
//! and the source that says so, and a line of your own making to `tests/data/triage/` with a harmless twin.

pub mod amdgpu;
pub mod cpu;
pub mod harmless;
pub mod kinds;
pub mod memory;
pub mod nvidia;
pub mod pcie;
pub mod program;
pub mod scheduler;
pub mod sources;
pub mod stack;
pub mod storage;
mod table;

use std::sync::LazyLock;

use super::finding::Finding;
use super::lexer::Record;
use super::pattern::{Caps, matches};
use table::Table;

/// One line of a table.
pub struct Row {
    /// Template of the message after its driver prefix (see `pattern.rs`).
    pub template: &'static str,
    /// What it means; `None` when the holes do not hold what they should.
    pub make: fn(&Caps<'_>) -> Option<Finding>,
    /// Where that is said.
    pub source: &'static str,
}

/// A row of a table.
const fn row(
    template: &'static str,
    make: fn(&Caps<'_>) -> Option<Finding>,
    source: &'static str,
) -> Row {
    Row {
        template,
        make,
        source,
    }
}

/// The first row of `table` that matches `body`.
pub(super) fn find(table: &'static [Row], body: &[u8]) -> Option<(Finding, &'static str)> {
    table.iter().find_map(|row| {
        matches(row.template, body).and_then(|c| (row.make)(&c).map(|f| (f, row.source)))
    })
}

/// Drivers whose messages the GPU tables read.
pub(super) fn is_amdgpu(tag: &[u8]) -> bool {
    matches!(
        tag,
        b"amdgpu" | b"drm" | b"kfd" | b"amdkfd" | b"radeon" | b"amdgpu_ras" | b"amdgpu_gem"
    )
}

/// Rows of the GPU driver that can decide, and those that cannot.
static GPU: LazyLock<Table> =
    LazyLock::new(|| Table::new(&[harmless::AMDGPU, scheduler::ROWS, amdgpu::ROWS]));
static GPU_CHATTER: LazyLock<Table> = LazyLock::new(|| Table::new(&[scheduler::BOILERPLATE]));
/// Messages without a tag.
static UNTAGGED: LazyLock<Table> = LazyLock::new(|| {
    Table::new(&[
        memory::UNTAGGED,
        cpu::UNTAGGED,
        storage::UNTAGGED,
        nvidia::UNTAGGED,
    ])
});
/// Messages whose tag is part of what they say.
static WHOLE: LazyLock<Table> = LazyLock::new(|| Table::new(&[memory::TAGGED, cpu::TAGGED]));

/// What a kernel record says by itself.
#[must_use]
pub fn kernel_finding(r: &Record<'_>) -> Option<(Finding, &'static str)> {
    let tag = r.tag;
    if is_amdgpu(tag) {
        return GPU
            .find(r.body)
            .or_else(|| pcie::find(r))
            .or_else(|| GPU_CHATTER.find(r.body));
    }
    match tag {
        b"" => UNTAGGED.find(r.body).or_else(|| pcie::find(r)),
        b"NVRM" | b"nvidia" | b"nvidia-nvlink" | b"nvidia-modeset" => {
            find(nvidia::ROWS, r.body).or_else(|| pcie::find(r))
        }
        b"input" | b"usb" | b"hid-generic" | b"hid" | b"usbhid" | b"audit" | b"bluetooth"
        | b"Bluetooth" | b"systemd-coredump" => None,
        b"systemd-oomd" | b"systemd" | b"earlyoom" | b"nohang" => find(memory::DAEMONS, r.body),
        b"perf" | b"ACPI" | b"RAS" | b"clocksource" => find(harmless::OTHER, r.text),
        b"traps" => find(cpu::AFTER_TRAPS, r.body),
        b"Hardware Error" | b"mce" | b"MCE" | b"EDAC" | b"x86/amd" => find(cpu::HARDWARE, r.body),
        _ => {
            if r.tag_pid.is_some()
                && let Some(found) = cpu::own_line(r)
            {
                return Some(found);
            }
            find(storage::tagged(tag), r.body)
                .or_else(|| pcie::find(r))
                .or_else(|| WHOLE.find(r.text))
                .or_else(|| find(storage::NETDEV, r.body))
        }
    }
}

//! Lines with frightening words that mean nothing by themselves (fault rules, section 8).

use super::Row;
use super::sources::RULES;
use crate::triage::finding::Finding;

macro_rules! harmless {
    ($($template:literal => $why:literal),* $(,)?) => {
        &[$(Row { template: $template, make: |_| Some(Finding::Harmless { why: $why }), source: RULES }),*]
    };
}

/// amdgpu's and amdkfd's harmless lines.
pub const AMDGPU: &[Row] = harmless![
    "no uncorrectable hardware errors detected" => "a poll that found nothing",
    "no correctable hardware errors detected" => "a poll that found nothing",
    "RAS: optional ras ta ucode is not available" => "normal on consumer chips",
    "RAP: optional rap ta ucode is not available" => "normal on consumer chips",
    "SECUREDISPLAY: {x} is not available" => "normal on consumer chips",
    "SECUREDISPLAY: query securedisplay TA failed" => "normal on consumer chips",
    "RAS: ras ta ucode is not available" => "normal on consumer chips",
    "smu driver if version" => "versions differ in every other release",
    "SMU driver if version not matched" => "versions differ in every other release",
    "MES FW version must be" => "a workaround is off with this firmware",
    "Runtime PM not available" => "normal on boards without it",
    "Runtime PM manually disabled" => "normal on boards without it",
    "Cannot find any crtc or sizes" => "no display is connected",
    "Fence fallback timer expired on ring" => "seen once or twice at start-up of a healthy board",
    "Runlist is getting oversubscribed" => "a performance hint",
    "No more SDMA queue to allocate" => "falls back to another queue",
    "init_user_pages: Failed to get user pages: -1" => "the address range was already gone",
    "VM memory stats for proc" => "accounting at the end of a process",
    "SMU is resumed successfully" => "part of a reset that worked",
    "SMU is initialized successfully" => "healthy start",
    "Trusted Memory Zone (TMZ) feature" => "a feature note",
    "Overdrive is enabled" => "a configuration note",
    "sdma_bo type" => "a driver note",
    "detected ip block number" => "discovery at start",
    "Failed to read dpcd register" => "display link noise",
    "Failed to setup vendor infoframe" => "display link noise",
    "perform_link_training" => "display link noise",
];

/// Harmless lines of other writers, matched on the message with its tag.
pub const OTHER: &[Row] = harmless![
    "perf: interrupt took too long" => "a sampling-rate note",
    "MCE: In-kernel MCE decoding enabled" => "healthy start",
    "RAS: Correctable Errors collector initialized" => "healthy start",
    "ACPI BIOS Error" => "firmware tables are often wrong",
    "ACPI Error: " => "firmware tables are often wrong",
    "clocksource: timekeeping watchdog" => "a clock was judged unstable",
    "NOHZ tick-stop error" => "a scheduler note",
];

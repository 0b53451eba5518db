//! Lines after which a run is dead although its process may sit there until the deadline.
//!
//! They only end an attempt early; triage decides what they mean. So the list is short, and each pattern is
//! anchored so that generated text or a log that quotes an error does not trip it easily.

use std::sync::LazyLock;

use regex::Regex;

static OUTPUT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^\s*(?:\S+: )?Memory access fault by GPU node-\d+",
        r"|HW Exception by GPU node-\d+",
        r"|\bGPU Hang\b.*\bnode-\d+|\bnode-\d+.*\bGPU Hang\b",
        r"|aborting with error : HSA_STATUS_ERROR",
        r"|\bHSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_FAULT|MEMORY_APERTURE_VIOLATION|ILLEGAL_INSTRUCTION)\b",
        r"|^\s*engine-fatal: ",
        r"|hip\w+: an illegal memory access was encountered",
        r"|^CUDA error: an illegal memory access",
    ))
    .ok()
});

static KERNEL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"amdgpu.*\bGPU reset begin",
        r"|amdgpu.*\bring \S+ timeout",
        r"|amdgpu.*device (?:is )?lost",
        r"|NVRM: Xid .*: 79,",
    ))
    .ok()
});

static KERNEL_OF_PID: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"amdgpu.*(?:page fault|process)|NVRM: Xid").ok());

static PID: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"\bpid[ =:]*'?(\d+)").ok());

/// Words of which every pattern above holds one: looked for first, since nearly every line holds none.
static HINT: LazyLock<Option<regex::bytes::Regex>> = LazyLock::new(|| {
    regex::bytes::Regex::new(
        "by GPU node-|GPU Hang|HSA_STATUS_ERROR|engine-fatal: |an illegal memory access",
    )
    .ok()
});

/// Whether bytes can hold a fatal line at all; quick.
#[must_use]
pub fn may_be_in(bytes: &[u8]) -> bool {
    HINT.as_ref().is_none_or(|r| r.is_match(bytes))
}

/// Whether a line of output ends the run.
#[must_use]
pub fn in_output(line: &str) -> bool {
    may_be_in(line.as_bytes()) && OUTPUT.as_ref().is_some_and(|r| r.is_match(line))
}

/// Whether a kernel message ends the run whose processes are `pids`.
#[must_use]
pub fn in_kernel_log(text: &str, is_ours: impl Fn(i32) -> bool) -> bool {
    if KERNEL.as_ref().is_some_and(|r| r.is_match(text)) {
        return true;
    }
    let (Some(of_pid), Some(pid)) = (KERNEL_OF_PID.as_ref(), PID.as_ref()) else {
        return false;
    };
    of_pid.is_match(text)
        && pid
            .captures_iter(text)
            .filter_map(|c| c.get(1)?.as_str().parse().ok())
            .any(is_ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_runs_are_known_and_talk_about_them_is_not() {
        for dead in [
            "Memory access fault by GPU node-1 (Agent handle: 0x5581) on address 0x7f00. Reason: Unknown.",
            "HW Exception by GPU node-1 (Agent handle: 0x1) reason :GPU Hang",
            ":0:rocdevice.cpp:2982: Callback: Queue 0x7f aborting with error : HSA_STATUS_ERROR_EXCEPTION: code: 0x1016",
            "engine-fatal: EngineCore busy loop threw: vt: no kernel for op",
            "[vt rocm: hipMemcpyAsync: an illegal memory access was encountered]",
        ] {
            assert!(in_output(dead), "{dead}");
        }
        for alive in [
            "The GPU hangs on the wall and HSA is a savings account",
            "checking for Memory access fault by GPU in older logs",
            "hsa_init returned HSA_STATUS_SUCCESS",
            "Memory access fault by GPU",
        ] {
            assert!(!in_output(alive), "{alive}");
        }
    }

    #[test]
    fn a_page_fault_counts_only_for_our_processes() {
        let line =
            "amdgpu 0000:c5:00.0: amdgpu:  in process vllm-cli pid 4711 thread vllm-cli pid 4720";
        assert!(in_kernel_log(line, |p| p == 4720 || p == 4711));
        assert!(!in_kernel_log(line, |p| p == 99));
        assert!(in_kernel_log(
            "amdgpu 0000:c5:00.0: amdgpu: GPU reset begin! Source:  1",
            |_| false
        ));
        assert!(!in_kernel_log(
            "usb 1-1: reset high-speed USB device",
            |_| true
        ));
        assert!(!in_kernel_log("amdgpu: GPU reset(2) succeeded!", |_| true));
    }
}

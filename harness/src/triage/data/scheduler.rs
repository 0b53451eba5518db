//! Scheduler, ring and reset lines of amdgpu and amdkfd.

use super::sources::{GFX1103_MES, JOB, KFD_INT, MES, PSP, RESET, SMU};
use super::{Row, row};
use crate::triage::finding::{Finding, ResetStep};
use crate::triage::pattern::Caps;

fn mes(c: &Caps<'_>) -> Option<Finding> {
    let msg = c.text("msg");
    let msg = msg.split_whitespace().next().unwrap_or("").to_owned();
    // Up to 6.8 the message is a number (mes_v11_api_def.h).
    let msg = match msg.as_str() {
        "2" => "ADD_QUEUE".to_owned(),
        "3" => "REMOVE_QUEUE".to_owned(),
        "5" => "SUSPEND".to_owned(),
        "6" => "RESUME".to_owned(),
        "7" => "RESET".to_owned(),
        _ => msg,
    };
    Some(Finding::MesTimeout { msg })
}

fn mes_unnamed(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::MesTimeout { msg: String::new() })
}

fn hws(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::HwsTimeout)
}

fn ring(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::RingTimeout {
        ring: c.text("ring"),
        soft_recovered: false,
        process: None,
    })
}

fn ring_soft(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::RingTimeout {
        ring: c.text("ring"),
        soft_recovered: true,
        process: None,
    })
}

fn reset_begin(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::GpuReset(ResetStep::Begin {
        source: c.num("n").and_then(|n| u8::try_from(n).ok()),
    }))
}

fn reset_ok(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::GpuReset(ResetStep::Succeeded))
}

fn reset_method(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::GpuReset(ResetStep::Method(c.text("m"))))
}

fn reset_failed(c: &Caps<'_>) -> Option<Finding> {
    let code = c.text("code");
    let code: i64 = code
        .split(|ch: char| !(ch.is_ascii_digit() || ch == '-'))
        .find(|w| !w.is_empty())
        .and_then(|w| w.parse().ok())
        .unwrap_or(-1);
    (code != 0).then_some(Finding::GpuReset(ResetStep::Failed(code)))
}

fn init_failed(c: &Caps<'_>) -> Option<Finding> {
    Some(Finding::GpuInitFailed {
        what: c.text("what"),
    })
}

fn smu(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::SmuFailure { mailbox: true })
}

fn smu_follow(_: &Caps<'_>) -> Option<Finding> {
    Some(Finding::SmuFailure { mailbox: false })
}

fn sq(c: &Caps<'_>) -> Option<Finding> {
    let kind = c.num("type").and_then(|n| u8::try_from(n).ok())?;
    Some(Finding::SqInterrupt {
        kind,
        privileged: c.num("priv").and_then(|n| u8::try_from(n).ok()),
    })
}

/// Rows that can be a cause.
pub const ROWS: &[Row] = &[
    row("MES failed to respond to msg={msg}", mes, MES),
    row("MES({pipe}) failed to respond to msg={msg}", mes, MES),
    row("MES({pipe}) failed to response msg={msg}", mes, MES),
    row("MES failed to response msg={msg}", mes, MES),
    row("MES ring buffer is full", mes_unnamed, MES),
    row(
        "failed to remove hardware queue from MES, doorbell={d}",
        mes_unnamed,
        MES,
    ),
    row(
        "failed to add hardware queue to MES, doorbell={d}",
        mes_unnamed,
        MES,
    ),
    row(
        "MES might be in unrecoverable state, issue a GPU reset",
        mes_unnamed,
        GFX1103_MES,
    ),
    row("qcm fence wait loop timeout expired", hws, MES),
    row("The cp might be in an unrecoverable state", hws, MES),
    row(
        "Queue preemption failed for queue with doorbell_id: {d}",
        hws,
        MES,
    ),
    row(
        "HIQ MQD's queue_doorbell_id0 is not 0, Queue preemption time out",
        hws,
        MES,
    ),
    row(
        "HIQ MQD's queue_doorbell_id{x}Queue preemption time out",
        hws,
        MES,
    ),
    row("ring {ring} timeout, but soft recovered", ring_soft, JOB),
    row("ring {ring} timeout, signaled seq={s}", ring, JOB),
    row("ring {ring} timeout, last signaled seq={s}", ring, JOB),
    row("GPU reset begin!. Source: {n}", reset_begin, RESET),
    row("GPU reset begin!", reset_begin, RESET),
    row(
        "GPU recovery disabled.",
        |_| Some(Finding::GpuReset(ResetStep::Disabled)),
        RESET,
    ),
    row(
        "GPU reset succeeded, trying to resume",
        |_| {
            Some(Finding::Boilerplate {
                what: "the reset itself worked; resume follows",
            })
        },
        RESET,
    ),
    row("GPU reset({n}) succeeded!", reset_ok, RESET),
    row("GPU reset({n}) failed", reset_failed, RESET),
    row("GPU reset end with ret = {code}", reset_failed, RESET),
    row("GPU Recovery Failed: {code}", reset_failed, RESET),
    row("ASIC reset failed with error, {code}", reset_failed, RESET),
    row(
        "device wedged, but recovered through reset",
        reset_ok,
        RESET,
    ),
    row("device wedged, needs recovery", reset_failed, RESET),
    row("MODE{m} reset", reset_method, RESET),
    row("BACO reset", reset_method, RESET),
    row("Fatal error during GPU init", init_failed, RESET),
    row("amdgpu_device_ip_init failed", init_failed, RESET),
    row(
        "hw_init of IP block <{what}> failed {code}",
        init_failed,
        RESET,
    ),
    row("ring {what} test failed ({code})", init_failed, RESET),
    row(
        "resume of IP block <{what}> failed {code}",
        reset_failed,
        PSP,
    ),
    row("PSP load tmr failed!", reset_failed, PSP),
    row("PSP load sys drv failed!", reset_failed, PSP),
    row("PSP load {what} failed!", reset_failed, PSP),
    row("PSP resume failed", reset_failed, PSP),
    row("PSP firmware loading failed", init_failed, PSP),
    row(
        "SMU: I'm not done with your previous command{rest}",
        smu,
        SMU,
    ),
    row("SMU: response:{code} for index:{rest}", smu_follow, SMU),
    row("SMU: No response msg_reg: {rest}", smu, SMU),
    row(
        "Msg issuing pre-check failed{rest}SMU may be not in the right state{x}",
        smu,
        SMU,
    ),
    row(
        "Msg issuing pre-check failed(0x{code}) and SMU may be not in the right state!",
        smu,
        SMU,
    ),
    row("Failed to disable gfxoff!", smu_follow, SMU),
    row("Failed to enable gfxoff!", smu_follow, SMU),
    row("Failed to export SMU metrics table!", smu_follow, SMU),
    row("Failed to get current clock freq!", smu_follow, SMU),
    row("SMU is not ready", smu_follow, SMU),
    row(
        "sq_intr: error, {a} type {type}, {b} priv {priv},{rest}",
        sq,
        KFD_INT,
    ),
    row(
        "sq_intr: error, {a} priv {priv}, {b} err_type {type}",
        sq,
        KFD_INT,
    ),
    row("sq_intr: error, {a} err_type {type}", sq, KFD_INT),
];

macro_rules! boilerplate {
    ($($template:literal => $what:literal),* $(,)?) => {
        &[$(Row { template: $template, make: |_| Some(Finding::Boilerplate { what: $what }), source: RESET }),*]
    };
}

/// What any reset prints, whatever its cause: never evidence.
pub const BOILERPLATE: &[Row] = boilerplate![
    "Dumping IP State" => "state dump before a reset",
    "AMDGPU device coredump file has been created" => "a devcoredump was made: save it, it expires in minutes",
    "Check your {x}devcoredump" => "where the devcoredump lies",
    "PCIE GART of {x}" => "printed at every resume",
    "VRAM is lost due to GPU reset" => "MODE1 and BACO resets lose VRAM",
    "PSP is resuming" => "printed at every resume",
    "SMU is resum" => "printed at every resume",
    "recover vram bo from shadow" => "printed at every resume",
    "ring {r} uses VM inv eng {x}" => "printed at every resume",
    "DMUB hardware initialized" => "printed at every resume",
    "Failed to evict queue" => "queues could not be removed after the scheduler stopped",
    "Failed to evict process queues" => "queues could not be removed after the scheduler stopped",
    "Failed to quiesce KFD" => "queues could not be removed after the scheduler stopped",
    "Failed to suspend process" => "the process had work there: no accusation",
    "Failed to resume process" => "the process had work there: no accusation",
    "Failed to restore" => "the process had work there: no accusation",
    "remove_all_kfd_queues_mes" => "queues could not be removed after the scheduler stopped",
    "failed to unmap legacy queue" => "follows from the scheduler's silence",
    "failed to map legacy queue" => "follows from the scheduler's silence",
    "failed to reset legacy queue" => "follows from the scheduler's silence",
    "failed to halt cp gfx" => "printed while a hung chip is stopped",
    "Register({n}) [{reg}] failed to reach value" => "printed while a hung chip is stopped",
    "VPE queue reset failed" => "printed while a hung chip is stopped",
    "Failed to initialize parser -125" => "a graphics client lost its context in the reset",
    "Failed to initialize parser" => "a graphics client lost its context in the reset",
    "failed to reg_write_reg_wait" => "follows from the scheduler's silence",
    "failed to write reg {x}" => "follows from the scheduler's silence",
    "failed to suspend gangs from MES" => "follows from the scheduler's silence",
    "failed to resume gangs from MES" => "follows from the scheduler's silence",
    "failed to suspend all gangs" => "follows from the scheduler's silence",
    "failed to inv tlbs" => "follows from the scheduler's silence",
    "GECC is disabled" => "printed at every resume",
    "Freeing queue vital buffer" => "an evicted queue's buffer was freed",
    "IP block:{b} is hung" => "state dump before a reset",
    "Bailing on TDR" => "a second reset request for the same event",
    "Skip scheduling IBs" => "jobs dropped by the reset",
    "Starting {r} ring reset" => "a reset of one ring is tried first",
    "Ring {r} reset" => "outcome of the reset of one ring",
    "reset via MES failed" => "outcome of the reset of one ring",
    "The CPFW hasn't support pipe reset yet" => "outcome of the reset of one ring",
    "[SetDfCstate] failed" => "printed while a hung chip is stopped",
    "Failed to disallow df cstate" => "printed while a hung chip is stopped",
    "suspend of IP block <{b}> failed" => "printed while a hung chip is stopped",
    "failed to suspend display audio" => "printed at every reset",
    "flip_done timed out" => "the display waits for a stopped GPU",
    "[CRTC:{x}flip_done timed out" => "the display waits for a stopped GPU",
    "dc_dmub_srv_log_diagnostic_data" => "the display waits for a stopped GPU",
    "MES enabled" => "printed at every resume",
    "GPU is recovering" => "printed at every reset",
    "IH ring buffer overflow" => "a storm of faults flooded the interrupt ring",
    "Reset evt" => "printed at every reset",
    "pasid {p} is still" => "printed while a process is torn down",
    "Wait for fences timed out" => "a client waits for the reset",
    "Couldn't update BO_VA" => "follows from the reset",
    "amdgpu_cs_ioctl" => "a graphics client lost its context in the reset",
    "reserve {x} from {y} for PSP TMR" => "printed at every resume",
    "RAS: optional ras ta ucode is not available" => "printed at every resume",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::triage::data::find;

    #[test]
    fn the_scheduler_forms_of_all_chips_are_one_finding() {
        for (line, msg) in [
            ("MES failed to respond to msg=REMOVE_QUEUE", "REMOVE_QUEUE"),
            (
                "MES(1) failed to respond to msg=INVALIDATE_TLBS",
                "INVALIDATE_TLBS",
            ),
            (
                "MES(0, 0) failed to respond to msg=MISC (WAIT_REG_MEM)",
                "MISC",
            ),
            ("MES failed to response msg=3", "REMOVE_QUEUE"),
        ] {
            assert_eq!(
                find(ROWS, line.as_bytes()).map(|f| f.0),
                Some(Finding::MesTimeout { msg: msg.into() }),
                "{line}"
            );
        }
    }

    #[test]
    fn sq_interrupts_of_both_spellings() {
        let new = b"sq_intr: error, detail 0x00000000, type 2, sh 1, priv 1, wave_id 7, simd_id 0, wgp_id 0";
        assert_eq!(
            find(ROWS, new).unwrap().0,
            Finding::SqInterrupt {
                kind: 2,
                privileged: Some(1)
            }
        );
        let old = b"sq_intr: error, se 0, data 0x400000, sa 0, priv 1, wave_id 0, simd_id 0, wgp_id 0, err_type 2";
        assert_eq!(
            find(ROWS, old).unwrap().0,
            Finding::SqInterrupt {
                kind: 2,
                privileged: Some(1)
            }
        );
    }

    #[test]
    fn reset_words_with_and_without_a_source() {
        assert_eq!(
            find(ROWS, b"GPU reset begin!. Source:  4").unwrap().0,
            Finding::GpuReset(ResetStep::Begin { source: Some(4) })
        );
        assert_eq!(
            find(ROWS, b"GPU reset begin!").unwrap().0,
            Finding::GpuReset(ResetStep::Begin { source: None })
        );
        assert_eq!(
            find(ROWS, b"GPU reset end with ret = -62").unwrap().0,
            Finding::GpuReset(ResetStep::Failed(-62))
        );
        assert!(find(ROWS, b"GPU reset end with ret = 0").is_none());
    }
}

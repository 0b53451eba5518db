//! What the harness knew about an attempt besides its logs: `context.yaml` of an attempt folder.
//!
//! Every key is optional and unknown keys are ignored, so that a bug report with three facts and an attempt folder of ours
//! are read by the same code.

mod ending;
mod scalars;
mod window;

use std::collections::BTreeMap;
use std::path::Path;

use legwork_reports::model::{Descendant, Exit, Leak, TimedOut};
use serde::{Deserialize, Serialize};

use scalars::{env, text, texts, unkillable};

pub use ending::Ending;
pub use window::Window;

use super::pci::Pci;

/// A core file of the attempt.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Core {
    /// Process id.
    pub pid: Option<i64>,
    /// Its name.
    pub comm: Option<String>,
    /// Signal that made it.
    pub signal: Option<i32>,
    /// `si_code`.
    pub code: Option<i32>,
    /// Fault address.
    pub addr: Option<u64>,
    /// File in which the faulting instruction lies.
    pub module: Option<String>,
    /// The core file.
    pub path: Option<String>,
    /// It was cut by a limit.
    pub truncated: bool,
}

/// The software under the GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// `uname -r`.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// `amdgpu.cwsr_enable`.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub cwsr_enable: Option<String>,
    /// MES firmware version, hexadecimal with `0x` or decimal.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub mes: Option<String>,
    /// ROCm release.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub rocm: Option<String>,
    /// Whether KFD's topology has `cwsr_size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwsr_size_exported: Option<bool>,
}

/// Processes that could not be killed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unkillable {
    /// Their pids.
    pub pids: Vec<i64>,
    /// Kernel functions in which they wait.
    pub wchan: Vec<String>,
    /// Their kernel stacks.
    pub stack: Option<String>,
}

/// A share of the leg that did not answer after the attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostShare {
    /// The path that was asked for.
    pub path: String,
    /// Type of its file system.
    pub fs: String,
    /// `gone` (an error of the file system) or `hangs` (no answer).
    pub state: String,
    /// The error.
    pub error: Option<String>,
}

/// The launch that a GPU had not finished, from the engine's recording (`VT_KERNEL_TRACE=1`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InFlight {
    /// Kernel.
    pub kernel: String,
    /// Its number among the launches of the process.
    pub seq: u64,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// `starting`, `issued` or `failed`.
    pub state: String,
    /// Launches that were not known to be over, this one included.
    pub open: usize,
    /// Launches recorded.
    pub recorded: usize,
}

/// `[gfxhub] Page fault observed` of a device core dump.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DumpedFault {
    /// The line as written.
    pub text: String,
    /// Faulting address.
    pub address: Option<u64>,
    /// `GCVM_L2_PROTECTION_FAULT_STATUS`.
    pub status: Option<u32>,
    /// The file.
    pub file: String,
}

/// How the capture of output went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Capture {
    /// Bytes captured.
    pub bytes: Option<u64>,
    /// The capture itself failed.
    pub failed: bool,
    /// Cut at the cap.
    pub truncated: bool,
    /// The attempt was ended because of its flood of output.
    pub flood: bool,
    /// What went wrong.
    pub error: Option<String>,
}

/// How the kernel log was read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelLogInfo {
    /// `kmsg`, `journal`, `dmesg`, `none`.
    pub source: Option<String>,
    /// Records in the window.
    pub records: Option<u64>,
    /// Records lost.
    pub lost: Option<u64>,
    /// What to know.
    pub note: Option<String>,
}

/// Boot ids around the attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootId {
    /// At its start.
    pub before: Option<String>,
    /// At its end.
    pub after: Option<String>,
}

/// What is known of an attempt besides its logs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Context {
    /// Free text: board, chip, kernel, ROCm, overrides.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
    /// Name of the leg's executable.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Pid of the leader.
    pub pid: Option<u64>,
    /// How it ended, for people.
    #[serde(deserialize_with = "text")]
    pub exit: Option<String>,
    /// The leg's GPUs.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub gpu: Vec<String>,
    /// Its span in the kernel log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Window>,
    /// All pids of its tree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pids: Vec<u64>,
    /// All names of its tree.
    #[serde(deserialize_with = "texts", skip_serializing_if = "Vec::is_empty")]
    pub comms: Vec<String>,
    /// How it ended, exactly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<Exit>,
    /// Ends of processes below the leader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub descendants: Vec<Descendant>,
    /// Processes that outlived it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub leaks: Vec<Leak>,
    /// Its cores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cores: Vec<Core>,
    /// The software under the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<Stack>,
    /// gfx target.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub gfx: Option<String>,
    /// Who sent the signal that ended it.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub killed_by: Option<String>,
    /// Processes still alive after SIGKILL; `true` is accepted too.
    #[serde(
        deserialize_with = "unkillable",
        skip_serializing_if = "Option::is_none"
    )]
    pub unkillable: Option<Unkillable>,
    /// How the capture went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// How the kernel log was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_log: Option<KernelLogInfo>,
    /// Boot ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<BootId>,
    /// Staging failed before the child ran.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub stage_error: Option<String>,
    /// The child could not be started.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub spawn_error: Option<String>,
    /// Environment of interest.
    #[serde(deserialize_with = "env", skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether the leg's GPU code is `new`, `known_good` or `none`.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub own_gpu_code: Option<String>,
    /// Shares that did not answer after the attempt.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<LostShare>,
    /// What is left of the boot before, when the machine was booted again under the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_boot: Option<crate::evidence::previous_boot::PreviousBoot>,
    /// The GPU launch that was in flight at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlight>,
    /// A page fault that the driver's state dump holds; the kernel log may lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dumped_fault: Option<DumpedFault>,
    /// The engine's device.
    #[serde(deserialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// Why a context file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not what a context is.
    #[error("{path}: not a context (see `legwork help triage`): {message}")]
    Parse {
        /// The file.
        path: String,
        /// What the parser said.
        message: String,
    },
}

impl Context {
    /// Reads a context file.
    ///
    /// # Errors
    /// When the file cannot be read or is no context.
    pub fn read(path: &Path) -> Result<Context, ContextError> {
        let text = std::fs::read_to_string(path).map_err(|source| ContextError::Io {
            path: path.display().to_string(),
            source,
        })?;
        Context::from_yaml(&text).map_err(|message| ContextError::Parse {
            path: path.display().to_string(),
            message,
        })
    }

    /// Reads a context from text.
    ///
    /// # Errors
    /// The parser's message.
    pub fn from_yaml(text: &str) -> Result<Context, String> {
        if text.trim().is_empty() {
            return Ok(Context::default());
        }
        serde_yaml::from_str(text).map_err(|e| e.to_string())
    }

    /// Writes `context.yaml` into an attempt folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), ContextError> {
        let path = dir.join("context.yaml");
        let text = serde_yaml::to_string(self).map_err(|e| ContextError::Parse {
            path: path.display().to_string(),
            message: e.to_string(),
        })?;
        std::fs::write(&path, text).map_err(|source| ContextError::Io {
            path: path.display().to_string(),
            source,
        })
    }

    /// How the leader ended.
    #[must_use]
    pub fn ending(&self) -> Ending {
        let mut e = match &self.end {
            Some(end) if end.code.is_some() || end.signal.is_some() || end.timed_out.is_some() => {
                let mut e = match end.code {
                    Some(c) => Ending::default().with_code(c),
                    None => Ending::default(),
                };
                e.signal = end.signal.or(e.signal);
                e.core_dumped = end.core_dumped;
                e.timed_out |= end.timed_out.is_some();
                e
            }
            _ => self.exit.as_deref().map(Ending::parse).unwrap_or_default(),
        };
        if let Some(b) = &self.boot_id
            && let (Some(x), Some(y)) = (&b.before, &b.after)
            && x != y
        {
            e.host_reset = true;
        }
        if matches!(
            self.killed_by.as_deref(),
            Some("deadline" | "idle" | "phase" | "lease")
        ) {
            e.timed_out = true;
        }
        e
    }

    /// Which deadline of ours ended it.
    #[must_use]
    pub fn deadline(&self) -> Option<&TimedOut> {
        self.end.as_ref().and_then(|e| e.timed_out.as_ref())
    }

    /// The leg's GPUs, as addresses.
    #[must_use]
    pub fn gpus(&self) -> Vec<Pci> {
        self.gpu
            .iter()
            .filter_map(|g| Pci::parse(g.trim().as_bytes()))
            .collect()
    }

    /// Every pid of the tree.
    #[must_use]
    pub fn all_pids(&self) -> Vec<u64> {
        let mut v: Vec<u64> = self
            .pid
            .into_iter()
            .chain(self.pids.iter().copied())
            .collect();
        v.extend(
            self.descendants
                .iter()
                .filter_map(|d| u64::try_from(d.pid).ok()),
        );
        v.extend(self.leaks.iter().filter_map(|d| u64::try_from(d.pid).ok()));
        v.extend(
            self.cores
                .iter()
                .filter_map(|c| c.pid.and_then(|p| u64::try_from(p).ok())),
        );
        v.retain(|p| *p != 0);
        v.sort_unstable();
        v.dedup();
        v
    }

    /// Every name of the tree, cut as the kernel cuts it.
    #[must_use]
    pub fn all_comms(&self) -> Vec<String> {
        let base = |s: &str| comm15(s.trim().rsplit('/').next().unwrap_or(s));
        let mut v: Vec<String> = self.process.iter().map(|s| base(s)).collect();
        v.extend(self.comms.iter().map(|s| base(s)));
        v.extend(
            self.descendants
                .iter()
                .filter_map(|d| d.comm.as_deref())
                .map(base),
        );
        v.extend(
            self.cores
                .iter()
                .filter_map(|c| c.comm.as_deref())
                .map(base),
        );
        v.retain(|s| !s.is_empty());
        v.sort();
        v.dedup();
        v
    }

    /// The override of the GPU target, if one was set.
    #[must_use]
    pub fn gfx_override(&self) -> Option<String> {
        if let Some(v) = self
            .env
            .get("HSA_OVERRIDE_GFX_VERSION")
            .filter(|v| !v.is_empty())
        {
            return Some(v.clone());
        }
        let hw = self.hardware.as_deref()?;
        let p = hw.find("HSA_OVERRIDE_GFX_VERSION")?;
        let value: String = hw[p + 24..]
            .trim_start_matches(['=', ' ', ':'])
            .chars()
            .take_while(|c| c.is_ascii_alphanumeric() || *c == '.')
            .collect();
        // "HSA_OVERRIDE_GFX_VERSION unset" is a statement too.
        (!value.is_empty() && value.starts_with(|c: char| c.is_ascii_digit())).then_some(value)
    }
}

/// A name cut to the 15 bytes that the kernel keeps.
#[must_use]
pub fn comm15(s: &str) -> String {
    let mut end = s.len().min(15);
    while !s.is_char_boundary(end) {
        end -= 1;
    }
    s[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::lexer::Stamp;
    use super::*;

    #[test]
    fn exits_in_the_words_of_people() {
        let sig = |n| Ending {
            signal: Some(n),
            ..Ending::default()
        };
        assert_eq!(Ending::parse("signal 11"), sig(11));
        assert_eq!(Ending::parse("signal:6"), sig(6));
        assert_eq!(Ending::parse("SIGKILL"), sig(9));
        assert_eq!(
            Ending::parse("134"),
            Ending {
                code: Some(134),
                signal: Some(6),
                ..Ending::default()
            }
        );
        assert!(Ending::parse("124").timed_out && Ending::parse("timeout").timed_out);
        assert!(Ending::parse("host reset").host_reset);
        assert!(Ending::parse("lost connection").lost_connection);
        assert!(Ending::parse("0").success() && !Ending::parse("1").success());
        assert!(Ending::parse("").unknown());
    }

    #[test]
    fn a_context_of_three_facts_and_a_full_one_are_read_by_the_same_code() {
        let c = Context::from_yaml(
            "hardware: \"x\"\nprocess: \"python\"\npid: 3127\nexit: null\nunheard_of: [1]\n",
        )
        .unwrap();
        assert_eq!((c.pid, c.ending().unknown()), (Some(3127), true));
        let c = Context::from_yaml("exit: 0\nwindow: {from: \"7800\", to: null}\ngpu: \"0000:c5:00.0\"\nunkillable: true\nenv: {A: 3}\n").unwrap();
        assert!(c.ending().success() && c.unkillable.is_some());
        assert_eq!(c.gpus().len(), 1);
        assert_eq!(c.env["A"], "3");
        let back = Context::from_yaml(&serde_yaml::to_string(&c).unwrap()).unwrap();
        assert_eq!(back, c);
    }

    #[test]
    fn windows_on_all_clocks() {
        let w = Window {
            from: Some("7800".into()),
            to: None,
            ..Window::default()
        };
        assert!(!w.contains(&Stamp::parse("7753.57").unwrap(), None));
        assert!(w.contains(&Stamp::parse("7801").unwrap(), None));
        let w = Window {
            from_seq: Some(10),
            to_seq: Some(12),
            ..Window::default()
        };
        assert!(
            w.contains(&Stamp::default(), Some(12)) && !w.contains(&Stamp::default(), Some(13))
        );
        let w = Window {
            from_mono_ns: Some(5_000_000_000),
            ..Window::default()
        };
        assert!(!w.contains(&Stamp::parse("4.5").unwrap(), None));
        assert!(w.contains(&Stamp::default(), None));
    }
}

//! The environment variables that users know, parsed once and strictly.
//!
//! An unknown value is an error that says which values there are, since a knob that silently does nothing makes an A/B lie.

use std::collections::BTreeMap;

/// Which allocator backs device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ManagedAlloc {
    /// The device's own rule: managed only where the CPU may page it.
    #[default]
    Auto,
    /// `VT_ROCM_MANAGED_ALLOC=1`.
    On,
    /// `VT_ROCM_MANAGED_ALLOC=0`.
    Off,
}

/// All knobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knobs {
    /// `VT_MLA_FUSED_NORM_ROPE` (default on): use the fused norm, rope and cache write where a device has it.
    pub fused_norm_rope: bool,
    /// `VT_ROCM_MANAGED_ALLOC`.
    pub managed_alloc: ManagedAlloc,
    /// `VT_CPU_MOE` (default off): routed experts on the CPU, the rest on the device.
    pub cpu_moe: bool,
    /// `VT_OP_PROVIDER_STATS` (default off): print the provider of every operation once.
    pub op_provider_stats: bool,
    /// `VT_LOAD_STATS` (default on): print the `[vt load]` lines.
    pub load_stats: bool,
    /// `VT_KERNEL_TRACE` (default off): keep a ring of the last launches.
    pub kernel_trace: bool,
    /// `VT_GRAPH`: replay decode steps from recorded graphs; `None` where it is not set and the device decides.
    pub graph: Option<bool>,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            fused_norm_rope: true,
            managed_alloc: ManagedAlloc::Auto,
            cpu_moe: false,
            op_provider_stats: false,
            load_stats: true,
            kernel_trace: false,
            graph: None,
        }
    }
}

/// A knob that cannot be understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KnobError {
    /// A value that the knob does not have.
    #[error("{name}={value:?}: the values are 1 and 0")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it was set to.
        value: String,
    },
    /// A variable with our prefix that no knob has.
    #[error("{name} is not a knob of this engine; the knobs are {known}")]
    Unknown {
        /// The variable.
        name: String,
        /// All knobs.
        known: String,
    },
}

const NAMES: [&str; 7] = [
    "VT_MLA_FUSED_NORM_ROPE",
    "VT_ROCM_MANAGED_ALLOC",
    "VT_CPU_MOE",
    "VT_OP_PROVIDER_STATS",
    "VT_LOAD_STATS",
    "VT_KERNEL_TRACE",
    "VT_GRAPH",
];

impl Knobs {
    /// Reads the knobs from `vars`, usually the process environment.
    ///
    /// # Errors
    /// A value other than `1` and `0`, or a `VT_` variable that is no knob.
    pub fn from_vars(vars: impl IntoIterator<Item = (String, String)>) -> Result<Self, KnobError> {
        let set: BTreeMap<String, String> = vars
            .into_iter()
            .filter(|(k, _)| k.starts_with("VT_"))
            .collect();
        if let Some(name) = set.keys().find(|k| !NAMES.contains(&k.as_str())) {
            return Err(KnobError::Unknown {
                name: name.clone(),
                known: NAMES.join(", "),
            });
        }
        let switch = |name: &'static str| match set.get(name).map(String::as_str) {
            None => Ok(None),
            Some("1") => Ok(Some(true)),
            Some("0") => Ok(Some(false)),
            Some(value) => Err(KnobError::Value {
                name,
                value: value.to_owned(),
            }),
        };
        let default = Knobs::default();
        Ok(Knobs {
            fused_norm_rope: switch(NAMES[0])?.unwrap_or(default.fused_norm_rope),
            managed_alloc: match switch(NAMES[1])? {
                None => ManagedAlloc::Auto,
                Some(true) => ManagedAlloc::On,
                Some(false) => ManagedAlloc::Off,
            },
            cpu_moe: switch(NAMES[2])?.unwrap_or(default.cpu_moe),
            op_provider_stats: switch(NAMES[3])?.unwrap_or(default.op_provider_stats),
            load_stats: switch(NAMES[4])?.unwrap_or(default.load_stats),
            kernel_trace: switch(NAMES[5])?.unwrap_or(default.kernel_trace),
            graph: switch(NAMES[6])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn defaults_hold_without_variables() {
        assert_eq!(
            Knobs::from_vars(vars(&[("HOME", "/")])),
            Ok(Knobs::default())
        );
    }

    #[test]
    fn each_switch_is_read() {
        let knobs = Knobs::from_vars(vars(&[
            ("VT_MLA_FUSED_NORM_ROPE", "0"),
            ("VT_ROCM_MANAGED_ALLOC", "1"),
            ("VT_GRAPH", "0"),
        ]))
        .unwrap();
        assert_eq!(knobs.graph, Some(false));
        assert!(!knobs.fused_norm_rope);
        assert_eq!(knobs.managed_alloc, ManagedAlloc::On);
    }

    #[test]
    fn other_values_and_other_names_are_refused() {
        for bad in ["true", "on", "", "2", "0 "] {
            let error = Knobs::from_vars(vars(&[("VT_CPU_MOE", bad)])).unwrap_err();
            assert_eq!(
                error,
                KnobError::Value {
                    name: "VT_CPU_MOE",
                    value: bad.to_owned()
                }
            );
        }
        assert!(
            Knobs::from_vars(vars(&[("VT_CPU_MOEE", "1")]))
                .unwrap_err()
                .to_string()
                .contains("VT_CPU_MOEE is not a knob")
        );
    }
}

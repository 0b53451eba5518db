//! Which layers' routed experts run on the CPU while the rest runs on the engine's device.

use legwork_kernels::device::DeviceKind;
use legwork_kernels::tensor::WeightData;

use crate::gguf::{Gguf, GgufError, TensorInfo};
use crate::model::{Config, WeightStore, is_routed_expert};

use super::EngineError;

/// One override: tensors whose name matches go to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    pattern: String,
    device: DeviceKind,
}

/// Where routed experts run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Per layer: on the CPU, away from the engine's device or not.
    pub experts_on_cpu: Vec<bool>,
    line: String,
}

impl Placement {
    /// Resolves the knob and the overrides, later ones winning.
    ///
    /// # Errors
    /// An override that is not `PATTERN=DEVICE`, names a device other than the CPU and the engine's, matches nothing, or
    /// would move something else than routed experts.
    pub fn resolve(
        config: &Config,
        names: &[&str],
        engine: DeviceKind,
        cpu_moe: bool,
        overrides: &[String],
    ) -> Result<Self, EngineError> {
        let rules = overrides
            .iter()
            .map(|o| parse(o, engine))
            .collect::<Result<Vec<_>, _>>()?;
        let moe_layers = if config.moe.is_some() {
            config.dense_layers..config.layers
        } else {
            0..0
        };
        let mut on_cpu = vec![false; config.layers];
        for i in moe_layers.clone() {
            on_cpu[i] = cpu_moe || engine == DeviceKind::Cpu;
        }
        for rule in &rules {
            let matched: Vec<&&str> = names.iter().filter(|n| matches(&rule.pattern, n)).collect();
            if matched.is_empty() {
                return Err(EngineError::Usage(format!(
                    "--place {}: no tensor has such a name",
                    rule.pattern
                )));
            }
            if let Some(other) = matched.iter().find(|n| !is_routed_expert(n)) {
                return Err(EngineError::Usage(format!(
                    "--place {}: it matches `{other}`, but only routed experts (`blk.N.ffn_*_exps.weight`) can be placed apart from \
                     the engine's device",
                    rule.pattern
                )));
            }
            for name in matched {
                if let Some(layer) = layer_of(name).filter(|l| *l < on_cpu.len()) {
                    on_cpu[layer] = rule.device == DeviceKind::Cpu;
                }
            }
        }
        let n = on_cpu.iter().filter(|c| **c).count();
        let because = match (cpu_moe, rules.len()) {
            (true, 0) => "VT_CPU_MOE=1".to_owned(),
            (true, k) => format!("VT_CPU_MOE=1, {k} overrides"),
            (false, k) => format!("{k} overrides"),
        };
        let line = if cpu_moe || !rules.is_empty() {
            format!(
                "engine: device placement INSTALLED: {n} layers run their routed experts on cpu, the rest on {engine} ({because})"
            )
        } else {
            String::new()
        };
        Ok(Placement {
            experts_on_cpu: on_cpu,
            line,
        })
    }

    /// Whether a tensor is used by the CPU though the engine may run elsewhere.
    pub(super) fn on_cpu(&self, info: &TensorInfo) -> bool {
        is_routed_expert(&info.name)
            && layer_of(&info.name)
                .and_then(|l| self.experts_on_cpu.get(l).copied())
                .unwrap_or(false)
    }

    /// The summary line, when anything was placed.
    #[must_use]
    pub fn line(&self) -> Option<&str> {
        (!self.line.is_empty()).then_some(self.line.as_str())
    }
}

/// Keeps experts that run on the CPU in host memory, and everything else where `device` puts it.
pub(super) struct PlacedStore<'a> {
    pub host: &'a dyn WeightStore,
    pub device: &'a dyn WeightStore,
    pub placement: &'a Placement,
}

impl WeightStore for PlacedStore<'_> {
    fn data(&self, gguf: &Gguf, info: &TensorInfo) -> Result<WeightData, GgufError> {
        let store = if self.placement.on_cpu(info) {
            self.host
        } else {
            self.device
        };
        store.data(gguf, info)
    }
}

fn parse(text: &str, engine: DeviceKind) -> Result<Rule, EngineError> {
    let usage = |why: String| EngineError::Usage(format!("--place {text}: {why}"));
    let (pattern, device) = text
        .rsplit_once('=')
        .filter(|(p, _)| !p.is_empty())
        .ok_or_else(|| {
            usage("write PATTERN=DEVICE, e.g. 'blk.7.ffn_*_exps.weight=cpu'".to_owned())
        })?;
    let device = DeviceKind::ALL
        .into_iter()
        .find(|d| d.name() == device && (*d == DeviceKind::Cpu || *d == engine))
        .ok_or_else(|| usage(format!("the devices are cpu and {engine}")))?;
    Ok(Rule {
        pattern: pattern.to_owned(),
        device,
    })
}

/// Whether `name` matches `pattern`, in which `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pattern.rsplit('*').next() else {
        return false;
    };
    let mut middle: Vec<&str> = parts.collect();
    if middle.pop().is_none() {
        return rest.is_empty();
    }
    for part in middle {
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::resolve_model;

    fn place(cpu_moe: bool, overrides: &[&str]) -> Result<Placement, EngineError> {
        let gguf = resolve_model("builtin:mini").unwrap().open().unwrap();
        let config = Config::read(&gguf).unwrap();
        let names: Vec<&str> = gguf.tensors().iter().map(|t| &*t.name).collect();
        let overrides: Vec<String> = overrides.iter().map(|o| (*o).to_owned()).collect();
        Placement::resolve(&config, &names, DeviceKind::Rocm, cpu_moe, &overrides)
    }

    #[test]
    fn the_knob_moves_all_experts_and_overrides_some() {
        assert_eq!(place(false, &[]).unwrap().line(), None);
        let all = place(true, &[]).unwrap();
        assert_eq!(all.experts_on_cpu, [false, true, true, true, true, true]);
        assert_eq!(
            all.line().unwrap(),
            "engine: device placement INSTALLED: 5 layers run their routed experts on cpu, the rest on rocm (VT_CPU_MOE=1)"
        );
        assert_eq!(
            place(true, &["blk.2.ffn_*_exps.weight=rocm"])
                .unwrap()
                .experts_on_cpu,
            [false, true, false, true, true, true]
        );
        assert_eq!(
            place(false, &["blk.*_exps.*=cpu", "blk.5.*_exps.weight=rocm"])
                .unwrap()
                .experts_on_cpu[4..],
            [true, false]
        );
    }

    #[test]
    fn overrides_that_cannot_be_are_refused_by_name() {
        let text = |o: &str| place(false, &[o]).unwrap_err().to_string();
        assert!(text("blk.0.attn_q_b.weight=cpu").contains("only routed experts"));
        assert!(text("blk.9*=cpu").contains("no tensor has such a name"));
        assert!(text("blk.1.*_exps*=cuda").contains("the devices are cpu and rocm"));
        assert!(text("blk.1").contains("PATTERN=DEVICE"));
    }

    #[test]
    fn stars_match_any_run() {
        assert!(
            matches("a*c", "abbc")
                && matches("*", "x")
                && matches("a", "a")
                && matches("a*b*c", "aXbYc")
        );
        assert!(!matches("a*c", "abcd") && !matches("a", "ab") && !matches("b*", "ab"));
    }
}

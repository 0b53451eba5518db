//! Leg files that are compiled in: `legwork run NAME` needs no checkout.

/// A leg file that is compiled in.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Name on the command line.
    pub name: &'static str,
    /// The text.
    pub text: &'static str,
}

/// All built-in leg files.
pub const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "smoke",
        text: include_str!("../../../legs/smoke.yaml"),
    },
    Builtin {
        name: "load-ab",
        text: include_str!("../../../legs/load-ab.yaml"),
    },
    Builtin {
        name: "strix-glm53",
        text: include_str!("../../../legs/strix-glm53.yaml"),
    },
    Builtin {
        name: "gpu-cuda",
        text: include_str!("../../../legs/gpu-cuda.yaml"),
    },
];

/// The built-in leg file of that name.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTINS.iter().find(|b| b.name == name)
}

/// Prompts that are compiled in, so that a long prompt needs no file: `prompt_file: builtin:past-topk`.
const PROMPTS: [(&str, &str); 1] = [(
    "builtin:past-topk",
    include_str!("../../../legs/prompts/past-topk.txt"),
)];

/// The built-in prompt of that name.
#[must_use]
pub fn builtin_prompt(name: &str) -> Option<&'static str> {
    PROMPTS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| *text)
}

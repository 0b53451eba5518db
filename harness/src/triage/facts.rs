//! What is known of the board and its software, gathered from the context, its free text and the logs.

use super::context::Context;
use super::data::stack::Version;
use super::pattern::parse_hex;

/// Facts about the board that rules ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// gfx target, e.g. `gfx1151`.
    pub gfx: Option<String>,
    /// Kernel release as text.
    pub kernel: Option<String>,
    /// MES firmware version.
    pub mes: Option<u32>,
    /// `amdgpu.cwsr_enable`.
    pub cwsr_enable: Option<bool>,
    /// ROCm release as text.
    pub rocm: Option<String>,
    /// KFD exports cwsr_size.
    pub cwsr_size_exported: Option<bool>,
    /// An NVIDIA board.
    pub nvidia: bool,
    /// A chip whose compute VM ids start at 3 (MI200, MI300 and relatives).
    pub instinct: bool,
}

/// The first `gfxNNN` in a text; when several are named, the one that follows words like "leg on".
fn gfx_in(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let find = |s: &str| -> Option<String> {
        let mut from = 0;
        while let Some(p) = s[from..].find("gfx") {
            let start = from + p;
            let digits: String = s[start + 3..]
                .chars()
                .take_while(char::is_ascii_hexdigit)
                .collect();
            if digits.len() >= 3 && digits.starts_with(|c: char| c.is_ascii_digit()) {
                return Some(format!("gfx{digits}"));
            }
            from = start + 3;
        }
        None
    };
    lower
        .find("leg on")
        .and_then(|p| find(&lower[p..]))
        .or_else(|| find(&lower))
}

/// Reads `6.17.0-1018-oem`: numbers and the package number after the dash.
#[must_use]
pub fn version(text: &str) -> Option<(Version, u32)> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let text = &text[start..];
    let mut out = [0u32; 4];
    let mut n = 0;
    let mut rest = text;
    while n < 4 {
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        if len == 0 || len > 8 {
            break;
        }
        out[n] = rest[..len].parse().ok()?;
        n += 1;
        rest = &rest[len..];
        match rest.strip_prefix('.') {
            Some(r) if r.starts_with(|c: char| c.is_ascii_digit()) => rest = r,
            _ => break,
        }
    }
    if n == 0 {
        return None;
    }
    let abi = rest
        .strip_prefix('-')
        .map(|r| {
            r.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        })
        .and_then(|d| d.parse().ok())
        .unwrap_or(0);
    Some((out, abi))
}

/// A kernel release in free text: `kernel 6.18.7`, `Ubuntu HWE 6.17.0-19`, `6.15 kernel`, `Ubuntu 6.17 OEM kernel`.
fn kernel_in(text: &str) -> Option<String> {
    let words: Vec<&str> = text
        .split([' ', ',', '(', ')', ';', '/'])
        .filter(|w| !w.is_empty())
        .collect();
    let looks = |w: &str| -> bool {
        version(w).is_some_and(|(v, _)| (4..=9).contains(&v[0]) && v[1] <= 60)
            && w.starts_with(|c: char| c.is_ascii_digit())
            && w.contains('.')
            && !w.ends_with('x')
            && !w.contains('+')
    };
    for (i, w) in words.iter().enumerate() {
        let lower = w.to_ascii_lowercase();
        let near = |k: usize| {
            words
                .get(k)
                .map(|w| w.to_ascii_lowercase())
                .unwrap_or_default()
        };
        if looks(w) {
            let before = if i > 0 { near(i - 1) } else { String::new() };
            let after = near(i + 1);
            let after2 = near(i + 2);
            // "ROCm 7.2" and "Fedora 42" are other versions.
            if matches!(
                before.as_str(),
                "rocm"
                    | "hip"
                    | "therock"
                    | "driver"
                    | "fw"
                    | "mesa"
                    | "fedora"
                    | "debian"
                    | "nobara"
            ) {
                continue;
            }
            let flavour = if lower.contains("oem") || after == "oem" || before == "oem" {
                "-oem"
            } else if before == "hwe"
                || after == "hwe"
                || (before == "ubuntu" && (after == "kernel" || after.is_empty()))
            {
                "-generic"
            } else {
                ""
            };
            let is_kernel = matches!(
                before.as_str(),
                "kernel" | "linux" | "ubuntu" | "hwe" | "oem" | "kernels"
            ) || after == "kernel"
                || (after == "oem" && after2 == "kernel");
            if is_kernel {
                let flavour = if w.contains(flavour) { "" } else { flavour };
                return Some(format!("{w}{flavour}"));
            }
        }
    }
    None
}

/// `ROCm 7.2.1` in free text.
fn rocm_in(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let mut from = 0;
    while let Some(p) = lower[from..].find("rocm") {
        let at = from + p + 4;
        let rest = lower[at..].trim_start_matches([' ', '-', '=', 'v']);
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            let v: String = rest
                .chars()
                .take_while(|c| c.is_ascii_digit() || *c == '.')
                .collect();
            let v = v.trim_end_matches('.');
            if !v.is_empty() && v.len() < 12 {
                return Some(v.to_owned());
            }
        }
        from = at;
    }
    None
}

/// `MES firmware 0x83` in free text.
fn mes_in(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let p = lower.find("mes")?;
    let bytes = lower.as_bytes();
    let tail = &bytes[p..bytes.len().min(p + 40)];
    let x = memchr::memmem::find(tail, b"0x")?;
    parse_hex(&tail[x..]).and_then(|v| u32::try_from(v).ok())
}

fn number(text: &str) -> Option<u32> {
    let t = text.trim();
    if t.starts_with("0x") || t.starts_with("0X") {
        parse_hex(t.as_bytes()).and_then(|v| u32::try_from(v).ok())
    } else {
        t.parse().ok()
    }
}

impl Facts {
    /// Gathers the facts; what the harness recorded wins over free text.
    #[must_use]
    pub fn gather(ctx: &Context, kernel_release: Option<&str>) -> Facts {
        let hw = ctx.hardware.as_deref().unwrap_or("");
        let stack = ctx.stack.clone().unwrap_or_default();
        let lower = hw.to_ascii_lowercase();
        let gfx = ctx
            .gfx
            .as_deref()
            .and_then(gfx_in)
            .or_else(|| gfx_in(hw))
            .or_else(|| {
                ["strix halo", "8060s", "ai max"]
                    .iter()
                    .any(|w| lower.contains(w))
                    .then(|| "gfx1151".to_owned())
            });
        let cwsr_text = stack
            .cwsr_enable
            .as_deref()
            .map(str::trim)
            .map(str::to_owned)
            .or_else(|| {
                let p = lower.find("cwsr_enable=")?;
                lower[p + 12..].chars().next().map(|c| c.to_string())
            });
        let mes = stack.mes.as_deref().and_then(number).or_else(|| mes_in(hw));
        Facts {
            instinct: lower.contains("instinct")
                && !lower.contains("mi50")
                && !lower.contains("mi60")
                || gfx.as_deref().is_some_and(|g| {
                    g.starts_with("gfx90a") || g.starts_with("gfx94") || g.starts_with("gfx95")
                })
                || [
                    "mi200", "mi210", "mi250", "mi300", "mi325", "mi350", "mi355",
                ]
                .iter()
                .any(|w| lower.contains(w)),
            nvidia: lower.contains("nvidia") || ctx.device.as_deref() == Some("cuda"),
            kernel: stack
                .kernel
                .or_else(|| kernel_in(hw))
                .or_else(|| kernel_release.map(str::to_owned)),
            mes,
            cwsr_enable: cwsr_text.and_then(|t| match t.as_str() {
                "0" | "N" | "n" | "false" => Some(false),
                "1" | "Y" | "y" | "true" | "-1" => Some(true),
                _ => None,
            }),
            rocm: stack.rocm.or_else(|| rocm_in(hw)),
            cwsr_size_exported: stack.cwsr_size_exported,
            gfx,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(hw: &str) -> Facts {
        Facts::gather(
            &Context {
                hardware: Some(hw.to_owned()),
                ..Context::default()
            },
            None,
        )
    }

    #[test]
    fn free_text_gives_the_same_facts_as_fields() {
        let f = facts(
            "AMD Ryzen AI Max+ 395 / Radeon 8060S (gfx1151, Strix Halo), Ubuntu HWE 6.17.0-19/-20, ROCm 7.2",
        );
        assert_eq!(
            (f.gfx.as_deref(), f.rocm.as_deref(), f.kernel.as_deref()),
            (Some("gfx1151"), Some("7.2"), Some("6.17.0-19-generic"))
        );
        let f = facts("Radeon 8060S (gfx1151), MES firmware 0x83, Ubuntu 6.17 OEM kernel");
        assert_eq!((f.mes, f.kernel.as_deref()), (Some(0x83), Some("6.17-oem")));
        let f = facts("Strix Halo, Ubuntu 24.04, kernel 6.18.7");
        assert_eq!(
            (f.gfx.as_deref(), f.kernel.as_deref()),
            (Some("gfx1151"), Some("6.18.7"))
        );
        let f =
            facts("Radeon 8060S (gfx1151), Nobara 43, ROCm 6.3.1, HSA_OVERRIDE_GFX_VERSION=11.0.0");
        assert_eq!((f.kernel, f.rocm.as_deref()), (None, Some("6.3.1")));
        let f =
            facts("fault on AMD Navi 33 (gfx1102) 0000:03:00.0; leg on gfx1151 APU 0000:c5:00.0");
        assert_eq!(f.gfx.as_deref(), Some("gfx1151"));
    }

    #[test]
    fn versions() {
        assert_eq!(version("6.17.0-1018-oem"), Some(([6, 17, 0, 0], 1018)));
        assert_eq!(version("7.2.53211"), Some(([7, 2, 53211, 0], 0)));
        assert_eq!(version("x"), None);
    }
}

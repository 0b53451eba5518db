//! Compiles the GPU sources of `hip/` with whatever compilers this machine has.
//!
//! | target | compiler | without it |
//! |---|---|---|
//! | host (`simt`) | any C++17 compiler that the `cc` crate finds | `--device simt` refuses by name |
//! | gfx11, gfx12 | ROCm's clang, or clang 19 and newer with lld | no embedded code object: `--kernels DIR` or a refusal |
//! | sm_90 | nvcc (cubin), else clang with nvptx64 (PTX) | likewise |
//!
//! `LEGWORK_GFX` lists the gfx targets (default gfx1151; `all` for every known one; empty for none), `LEGWORK_CLANG` and
//! `LEGWORK_NVCC` name compilers. Nothing here fails the build: what is missing is written into the binary as a reason.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: [&str; 6] = ["dense", "matmul", "gemm", "mla", "dsa", "moe"];
const GFX: [&str; 5] = ["gfx1151", "gfx1100", "gfx1103", "gfx1200", "gfx1201"];
const HIP_FLAGS: [&str; 9] = [
    "-x",
    "hip",
    "--cuda-device-only",
    "-nogpuinc",
    "-nogpulib",
    "-O3",
    "-std=c++17",
    // clang 19 would pair v5 metadata with a v4 ABI otherwise
    "-mcode-object-version=5",
    "--no-gpu-bundle-output",
];
const PTX_FLAGS: [&str; 14] = [
    "-x",
    "cuda",
    "--cuda-gpu-arch=sm_90",
    "--cuda-device-only",
    "-nocudainc",
    "-nocudalib",
    "-Wno-unknown-cuda-version",
    "-O3",
    "-std=c++17",
    "-Xclang",
    "-target-feature",
    "-Xclang",
    "+ptx80",
    "-S",
];
const NVCC_FLAGS: [&str; 6] = ["-x", "cu", "-arch=sm_90", "-O3", "-std=c++17", "--cubin"];

fn main() {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    for folder in ["hip", "simt"] {
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    for name in ["LEGWORK_GFX", "LEGWORK_CLANG", "LEGWORK_NVCC", "ROCM_PATH"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    println!("cargo::rustc-check-cfg=cfg(simt)");
    if let Err(reason) = simt(&root, &out) {
        println!("cargo::rustc-env=LEGWORK_SIMT_ABSENT={reason}");
    }
    let mut packs = Packs::default();
    amd(&root, &out, &mut packs);
    nvidia(&root, &out, &mut packs);
    if let Err(e) = std::fs::write(out.join("packs.rs"), packs.render()) {
        println!("cargo::error=cannot write the list of code objects: {e}");
    }
}

/// The kernels as host code, one object per source file, plus the fibre runtime.
fn simt(root: &Path, out: &Path) -> Result<(), String> {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .cpp_link_stdlib(None) // only C functions are called
        .std("c++17")
        .opt_level(3)
        .debug(false)
        .warnings(false)
        .cargo_warnings(false)
        .flag_if_supported("-fno-exceptions")
        .flag_if_supported("-fno-rtti")
        .flag_if_supported("-fno-threadsafe-statics")
        .flag_if_supported("-Wno-unknown-pragmas");
    let mut table = String::from("extern \"C\" {\n");
    let sources = || {
        SOURCES
            .iter()
            .map(|n| (*n, root.join("hip")))
            .chain([("selftest", root.join("simt"))])
    };
    for (name, _) in sources() {
        let _ = writeln!(table, "void simt_keep_{name}();");
    }
    // The list pulls every object out of the archive; their kernels register themselves when the program starts.
    table.push_str("extern void (*const simt_keep[])();\nvoid (*const simt_keep[])() = {");
    for (name, folder) in sources() {
        let _ = write!(table, "simt_keep_{name}, ");
        let wrapper = out.join(format!("simt_{name}.cpp"));
        let source = folder.join(format!("{name}.hip"));
        let text = format!(
            "#include \"{}\"\nextern \"C\" void simt_keep_{name}() {{}}\n",
            source.display()
        );
        std::fs::write(&wrapper, text).map_err(|e| e.to_string())?;
        build.file(&wrapper);
    }
    table.push_str("};\n}\n");
    let keep = out.join("simt_table.cpp");
    std::fs::write(&keep, table).map_err(|e| e.to_string())?;
    build.file(&keep).file(root.join("simt/runtime.cpp"));
    match build.is_flag_supported("-std=c++17") {
        Ok(true) => {}
        Ok(false) => return Err("the C++ compiler does not know -std=c++17".to_owned()),
        Err(_) => return Err("no C++ compiler was found when this binary was built".to_owned()),
    }
    build
        .try_compile("legwork_simt")
        .map_err(|e| one_line(&format!("the C++ compiler failed: {e}")))?;
    println!("cargo::rustc-cfg=simt");
    Ok(())
}

#[derive(Default)]
struct Packs {
    entries: Vec<String>,
    absent: Vec<(String, String)>,
}

impl Packs {
    fn absent(&mut self, arch: &str, why: impl AsRef<str>) {
        self.absent.push((arch.to_owned(), one_line(why.as_ref())));
    }

    fn add(
        &mut self,
        arch: &str,
        part: &str,
        file: &Path,
        compiler: &str,
        flags: &str,
        kernels: &str,
    ) -> Result<(), String> {
        let bytes = std::fs::read(file).map_err(|e| e.to_string())?;
        let sha: String = Sha256::digest(&bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        self.entries.push(format!(
            "CodeObject {{ arch: {arch:?}, part: {part:?}, bytes: include_bytes!({file:?}), sha256: {sha:?}, compiler: {compiler:?}, flags: {flags:?}, kernels: &[{kernels}] }},\n"
        ));
        Ok(())
    }

    fn render(&self) -> String {
        let mut text = String::from(
            "/// Code objects compiled into this binary.\npub static EMBEDDED: &[CodeObject] = &[\n",
        );
        self.entries.iter().for_each(|e| text.push_str(e));
        text.push_str("];\n/// Targets without an embedded code object, and why.\npub static ABSENT: &[(&str, &str)] = &[\n");
        for (arch, why) in &self.absent {
            let _ = writeln!(text, "({arch:?}, {why:?}),");
        }
        text.push_str("];\n");
        text
    }
}

fn amd(root: &Path, out: &Path, packs: &mut Packs) {
    let wanted = std::env::var("LEGWORK_GFX").unwrap_or_else(|_| "gfx1151".to_owned());
    let wanted: Vec<&str> = match wanted.as_str() {
        "all" => GFX.to_vec(),
        list => list.split([',', ' ']).filter(|s| !s.is_empty()).collect(),
    };
    for arch in GFX.iter().filter(|a| !wanted.contains(a)) {
        packs.absent(
            arch,
            "not asked for when this binary was built (LEGWORK_GFX)",
        );
    }
    if wanted.is_empty() {
        return;
    }
    let clang = match find_clang() {
        Ok(found) => found,
        Err(why) => {
            wanted.iter().for_each(|arch| packs.absent(arch, &why));
            return;
        }
    };
    for arch in wanted {
        match amd_target(root, out, &clang, arch) {
            Ok(parts) => {
                for (part, file, kernels) in parts {
                    let flags = format!("--offload-arch={arch} {}", HIP_FLAGS.join(" "));
                    if let Err(why) = packs.add(arch, part, &file, &clang.version, &flags, &kernels)
                    {
                        packs.absent(arch, why);
                    }
                }
            }
            Err(why) => packs.absent(arch, why),
        }
    }
}

struct Clang {
    path: PathBuf,
    version: String,
}

fn find_clang() -> Result<Clang, String> {
    let mut names: Vec<PathBuf> = Vec::new();
    if let Some(own) = std::env::var_os("LEGWORK_CLANG") {
        names.push(own.into());
    } else {
        let rocm = std::env::var("ROCM_PATH").unwrap_or_else(|_| "/opt/rocm".to_owned());
        names.push(Path::new(&rocm).join("llvm/bin/clang"));
        names.extend((19..=24).rev().map(|v| PathBuf::from(format!("clang-{v}"))));
        names.push("clang".into());
    }
    let mut why =
        String::from("no clang 19 or newer for amdgcn was found when this binary was built; tried");
    for path in names {
        let _ = write!(why, " {}", path.display());
        let Some(version) = output(Command::new(&path).arg("--version")) else {
            continue;
        };
        let version = version.lines().next().unwrap_or_default().to_owned();
        let major: u32 = version
            .split("version ")
            .nth(1)
            .and_then(|v| v.split('.').next())
            .and_then(|v| v.parse().ok())
            .unwrap_or(0);
        let amdgcn = output(Command::new(&path).arg("--print-targets"))
            .is_some_and(|t| t.contains("amdgcn"));
        if major >= 19 && amdgcn {
            return Ok(Clang { path, version });
        }
        let _ = write!(why, " ({version}: too old or without amdgcn)");
    }
    Err(why)
}

/// Source to assembly, which carries the resource figures as text, then to a linked code object. Two files at a time.
fn amd_target(
    root: &Path,
    out: &Path,
    clang: &Clang,
    arch: &str,
) -> Result<Vec<(&'static str, PathBuf, String)>, String> {
    let one = |name: &'static str| -> Result<(&'static str, PathBuf, String), String> {
        let asm = out.join(format!("{name}.{arch}.s"));
        let object = out.join(format!("{name}.{arch}.co"));
        let source = root.join("hip").join(format!("{name}.hip"));
        run(Command::new(&clang.path)
            .args(HIP_FLAGS)
            .arg(format!("--offload-arch={arch}"))
            .args(["-S", "-o"])
            .arg(&asm)
            .arg(source))?;
        run(Command::new(&clang.path)
            .args([
                "--target=amdgcn-amd-amdhsa",
                "-nogpulib",
                "-mcode-object-version=5",
            ])
            .arg(format!("-mcpu={arch}"))
            .args(["-x", "assembler"])
            .arg(&asm)
            .arg("-o")
            .arg(&object))?;
        let text = std::fs::read_to_string(&asm).map_err(|e| e.to_string())?;
        Ok((name, object, kernel_figures(&text)))
    };
    let (a, b) = SOURCES.split_at(2); // matmul and gemm are the long ones, one in each half
    std::thread::scope(|s| {
        let other = s.spawn(move || a.iter().map(|n| one(n)).collect::<Vec<_>>());
        let mut all: Vec<_> = b.iter().map(|n| one(n)).collect();
        all.extend(other.join().unwrap_or_default());
        all.into_iter().collect()
    })
}

/// The kernels' figures from the `.amdgpu_metadata` text.
fn kernel_figures(asm: &str) -> String {
    let mut text = String::new();
    let Some(meta) = asm.split(".amdgpu_metadata").nth(1) else {
        return text;
    };
    // Kernels are list items; the last fields of one stand before the next item's `- .args`.
    for item in meta.split("\n  - .args").skip(1) {
        let field = |key: &str| -> Option<&str> {
            item.lines()
                .find_map(|l| l.trim().strip_prefix(key))
                .map(str::trim)
        };
        let number = |key: &str| field(key).and_then(|v| v.parse::<u32>().ok()).unwrap_or(0);
        // The name of the kernel, not of one of its arguments: arguments are indented deeper.
        let name = item
            .lines()
            .find_map(|l| l.strip_prefix("    .name:"))
            .map_or("", str::trim);
        let _ = write!(
            text,
            "KernelFigures {{ name: {name:?}, vgpr: {}, sgpr: {}, lds: {}, scratch: {}, vgpr_spills: {}, sgpr_spills: {}, kernarg: {} }}, ",
            number(".vgpr_count:"),
            number(".sgpr_count:"),
            number(".group_segment_fixed_size:"),
            number(".private_segment_fixed_size:"),
            number(".vgpr_spill_count:"),
            number(".sgpr_spill_count:"),
            number(".kernarg_segment_size:"),
        );
    }
    text
}

/// nvcc makes cubins; without it clang makes PTX, which the driver compiles when it loads.
fn nvidia(root: &Path, out: &Path, packs: &mut Packs) {
    let nvcc =
        std::env::var_os("LEGWORK_NVCC").map_or_else(|| PathBuf::from("nvcc"), PathBuf::from);
    let source = |name: &str| root.join("hip").join(format!("{name}.hip"));
    if let Some(version) = output(Command::new(&nvcc).arg("--version")) {
        let version = version
            .lines()
            .find(|l| l.contains("release"))
            .unwrap_or_default()
            .trim()
            .to_owned();
        for name in SOURCES {
            let object = out.join(format!("{name}.sm_90.cubin"));
            let done = run(Command::new(&nvcc)
                .args(NVCC_FLAGS)
                .arg("-o")
                .arg(&object)
                .arg(source(name)))
            .and_then(|()| packs.add("sm_90", name, &object, &version, &NVCC_FLAGS.join(" "), ""));
            if let Err(why) = done {
                packs.absent("sm_90", why);
                return;
            }
        }
        return;
    }
    let clang = match find_clang() {
        Ok(clang)
            if output(Command::new(&clang.path).arg("--print-targets"))
                .is_some_and(|t| t.contains("nvptx64")) =>
        {
            clang
        }
        _ => {
            packs.absent("sm_90", "neither nvcc nor a clang with nvptx64 was found when this binary was built (LEGWORK_NVCC, LEGWORK_CLANG)");
            return;
        }
    };
    for name in SOURCES {
        let object = out.join(format!("{name}.sm_90.ptx"));
        let done = run(Command::new(&clang.path)
            .args(PTX_FLAGS)
            .arg("-o")
            .arg(&object)
            .arg(source(name)))
        .and_then(|()| {
            // The driver takes PTX as a C string.
            let mut text = std::fs::read(&object).map_err(|e| e.to_string())?;
            text.push(0);
            std::fs::write(&object, text).map_err(|e| e.to_string())
        })
        .and_then(|()| {
            packs.add(
                "sm_90",
                name,
                &object,
                &clang.version,
                &PTX_FLAGS.join(" "),
                "",
            )
        });
        if let Err(why) = done {
            packs.absent("sm_90", why);
            return;
        }
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let out = command
        .output()
        .map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    if out.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&out.stderr);
    let first = words
        .lines()
        .find(|l| l.contains("error"))
        .unwrap_or_else(|| words.lines().next().unwrap_or("failed"));
    Err(format!(
        "{}: {first}",
        command.get_program().to_string_lossy()
    ))
}

fn output(command: &mut Command) -> Option<String> {
    let out = command.output().ok()?;
    out.status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

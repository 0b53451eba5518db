//! Help texts that teach.

/// What legwork is.
pub const LONG_ABOUT: &str = "\
Legwork runs A/B legs on an accelerator board and says, with evidence, what happened: it passed, our GPU code is wrong \
(kernel), the board is sick (board), the host process failed (host), the surroundings failed (infra), or the evidence \
does not decide (inconclusive).

A leg set is a YAML file: legs to run, gates that must hold, arms to compare. A leg runs the built-in engine, a command \
or a script. Each attempt is supervised: its exit status and every descendant's, its output with read-time stamps, the \
kernel log in its window, cores, memory and GPU telemetry are kept in the run directory, and the verdict names the lines \
that decided it.";

/// First steps.
pub const AFTER_HELP: &str = "\
First steps:
  legwork run smoke             run the built-in leg set on the built-in model
  legwork legs strix-glm53      print a built-in leg file as a pattern
  legwork check my.yaml         check a leg file and print the plan
  legwork report runs/LATEST    show a report again

`legwork --help` lists the exit codes; `legwork VERB --help` shows examples.";

/// First steps and exit codes.
#[must_use]
pub fn after_long_help() -> String {
    format!("{AFTER_HELP}\n\nExit codes:\n{}", crate::exit::table())
}

/// `run`.
pub const RUN: &str = "\
Examples:
  legwork run smoke
  legwork run ab.yaml --repeat 5 --max-runtime 115m --archive /workspace/out
  legwork run ab.yaml --leg default --leg managed --env AMD_SERIALIZE_KERNEL=3
  legwork run strix-glm53 --model /tmp/ckpt/GLM-5.3-UD-IQ1_S-00001-of-00006.gguf

Everything that runs is copied to a private folder first, so an edit, a share that vanishes or a
noexec mount does not matter. ^C once ends gracefully and writes the report (exit code 30), twice
ends the children at once. A run that was killed goes on with `legwork resume RUN`.";

/// `check`.
pub const CHECK: &str = "\
Examples:
  legwork check ab.yaml
  legwork check strix-glm53 --max-runtime 8h

Exit code 0 when every file is right, 2 otherwise. A message names file, line and column.";

/// `report`.
pub const REPORT: &str = "\
Examples:
  legwork report runs/20260901T101112Z-smoke
  legwork report runs/20260901T101112Z-smoke --format html -o report.html
  legwork report runs/NEW --against runs/OLD --tolerance 3

Nothing is run: the report is made again from the run directory.";

/// `resume`.
pub const RESUME: &str = "\
Examples:
  legwork resume runs/20260901T101112Z-ab --dry-run
  legwork resume runs/20260901T101112Z-ab

An attempt that was begun and left evidence counts as an attempt of its own (after a reboot: as a host
reset), and its step is run once more. The leg file as it was run is used, not a newer one.";

/// `repro`.
pub const REPRO: &str = "\
Examples:
  legwork repro runs/20260901T101112Z-ab
  legwork repro runs/20260901T101112Z-ab --attempt 4 --repeat 10
  legwork repro runs/20260901T101112Z-ab --env AMD_SERIALIZE_KERNEL=3 --device simt

The leg file as it was run is used. Verdicts with equal titles are the same trouble. The exit code is the new run's.";

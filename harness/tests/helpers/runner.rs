//! A test runner for a binary that is its own helper: `harness = false`, because `spawn-stub` and `helper` must be
//! looked at before a test harness looks at the arguments. Understands the arguments of `cargo test`.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// A named test.
pub type Test = (&'static str, fn());

/// Says loudly that a test could not be run here, and why.
pub fn skip(why: &str) {
    println!("SKIPPED: {why}");
}

/// Runs the tests that the arguments select, one after the other; returns the exit code.
pub fn main(tests: &[Test]) -> i32 {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flag = |f: &str| args.iter().any(|a| a == f);
    let mut filters: Vec<&str> = Vec::new();
    let mut skips: Vec<&str> = Vec::new();
    let mut it = args.iter();
    while let Some(a) = it.next() {
        match a.as_str() {
            "--skip" => skips.extend(it.next().map(String::as_str)),
            "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                it.next();
            }
            a if a.starts_with('-') => {}
            a => filters.push(a),
        }
    }
    let exact = flag("--exact");
    let matches = |n: &str, f: &&str| if exact { n == *f } else { n.contains(*f) };
    let chosen: Vec<&Test> = tests
        .iter()
        .filter(|(n, _)| filters.is_empty() || filters.iter().any(|f| matches(n, f)))
        .filter(|(n, _)| !skips.iter().any(|f| matches(n, f)))
        .collect();
    if flag("--list") {
        if !flag("--ignored") {
            chosen.iter().for_each(|(n, _)| println!("{n}: test"));
        }
        return 0;
    }
    if flag("--ignored") {
        return 0;
    }
    println!("\nrunning {} tests", chosen.len());
    let mut failed = Vec::new();
    for (name, test) in &chosen {
        println!("test {name} ...");
        let begun = std::time::Instant::now();
        let ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!(
            "test {name} {} ({:.2} s)",
            if ok { "ok" } else { "FAILED" },
            begun.elapsed().as_secs_f64()
        );
        if !ok {
            failed.push(*name);
        }
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {} passed; {} failed",
        chosen.len() - failed.len(),
        failed.len()
    );
    failed.iter().for_each(|n| println!("    {n}"));
    i32::from(!failed.is_empty()) * 101
}

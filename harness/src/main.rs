//! The one binary.

fn main() -> std::process::ExitCode {
    // Before the command line is read and before any thread exists: the stub between the supervisor and its child.
    if std::env::args_os()
        .nth(1)
        .is_some_and(|a| a == "spawn-stub")
    {
        std::process::exit(legwork::supervise::stub::main());
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|a| a == legwork::stage::SHARE_VERB)
    {
        std::process::exit(legwork::stage::worker_main());
    }
    legwork::cli::main()
}

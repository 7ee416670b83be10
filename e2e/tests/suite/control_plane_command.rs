//! The `control-plane` program as a shell uses it.

use std::process::Command;

use anyhow::Result;

#[test]
fn a_command_finds_the_cluster_and_its_exit_code_is_passed_on() -> Result<()> {
    let output = control_plane(&["kubectl", "get", "node", "no-such-node"]).output()?;

    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("nodes \"no-such-node\" not found"),
        "{stderr}"
    );
    assert_eq!(output.status.code(), Some(1));
    Ok(())
}

fn control_plane(command: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_control-plane"));
    program.arg("--").args(command);
    program
}

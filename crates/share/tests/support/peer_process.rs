//! Peer processes: this test program, started again, executes commands from its standard input.
//!
//! It replies to each line with one line that begins with `@`, which tells replies from the output of the test harness.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The variable that makes the program a peer.
const PEER_VARIABLE: &str = "TENSORFERRY_SHARE_PEER";

/// A process that executes commands.
pub(crate) struct PeerProcess {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl PeerProcess {
    pub(crate) fn start() -> Self {
        Self::start_with::<&str>(&[])
    }

    /// Starts it with these environment variables.
    pub(crate) fn start_with<Value: AsRef<OsStr>>(variables: &[(&str, Value)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["peer_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(PEER_VARIABLE, "1")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Sends a command without waiting for the reply.
    pub(crate) fn send_line(&mut self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Waits for a reply; `None` if the process ended.
    pub(crate) fn read_reply(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, reply)) = line.split_once('@') {
                return Some(reply.trim_end().to_owned());
            }
        }
    }

    /// Sends a command and waits for the reply.
    pub(crate) fn request(&mut self, line: &str) -> String {
        self.send_line(line);
        self.read_reply().unwrap_or_else(|| panic!("no reply to {line}"))
    }

    /// Kills the process.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes the standard input, so that the process exits.
    pub(crate) fn finish(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

/// Executes commands and exits, if this process is a peer.
pub(crate) fn run_commands(mut execute: impl FnMut(&[&str]) -> String) {
    if std::env::var_os(PEER_VARIABLE).is_none() {
        return;
    }
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let reply = execute(&line.split(' ').collect::<Vec<_>>());
        println!("@{reply}");
        std::io::stdout().flush().unwrap();
    }
    std::process::exit(0);
}

/// A pseudo-random generator (xorshift) with a fixed seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

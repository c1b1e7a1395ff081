//! Other processes, which are this program again: told what to do line by line, they answer each line with one that has
//! an `@`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const VARIABLE: &str = "TENSORFERRY_SHARE_ROLE";

/// Another process that plays a role.
pub(crate) struct Other {
    pub(crate) child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start() -> Self {
        Self::start_with::<&str>(&[])
    }

    /// With these variables in its environment.
    pub(crate) fn start_with<Value: AsRef<OsStr>>(variables: &[(&str, Value)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, "other")
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Says a line without waiting for an answer.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Waits for an answer; `None` where the process ended instead.
    pub(crate) fn hear(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, answer)) = line.split_once('@') {
                return Some(answer.trim_end().to_owned());
            }
        }
    }

    /// Says a line and waits for the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear().unwrap_or_else(|| panic!("no answer to {line}"))
    }

    /// Kills it at once.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end in good order.
    pub(crate) fn end(mut self) {
        self.input = None;
        assert!(self.child.wait().unwrap().success());
    }
}

/// Plays a role, if this process has one, and ends.
pub(crate) fn play(mut follow: impl FnMut(&[&str]) -> String) {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let answer = follow(&line.split(' ').collect::<Vec<_>>());
        println!("@{answer}");
        std::io::stdout().flush().unwrap();
    }
    std::process::exit(0);
}

/// Numbers without a pattern, the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

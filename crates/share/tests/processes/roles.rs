//! The other processes. They are told what to do line by line, and answer each line with one that has an `@`.

use crate::common::{publish_bytes, read, take};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tensorferry_core::Access;
use tensorferry_share::{AttachedTensor, Options, Outgoing, Publication, Ticket, publish};

const VARIABLE: &str = "TENSORFERRY_SHARE_ROLE";

/// Another process that plays a role.
pub(crate) struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With these variables in its environment.
    pub(crate) fn start_with(variables: &[(&str, &OsStr)]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["role", "--exact", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, "other")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Says a line without waiting for an answer.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Says a line and waits for the answer.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear().unwrap_or_else(|| panic!("no answer to {line}"))
    }

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

    pub(crate) fn publish(&mut self, line: &str) -> Ticket {
        Ticket::from_text(&self.ask(line)).unwrap()
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

#[derive(Default)]
struct Role {
    publications: Vec<Publication>,
    tensors: Vec<AttachedTensor>,
}

/// Plays a role, if this process has one, and ends.
pub(crate) fn play() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let mut role = Role::default();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let answer = role.follow(&line.split(' ').collect::<Vec<_>>());
        println!("@{answer}");
        std::io::stdout().flush().unwrap();
    }
    std::process::exit(0);
}

impl Role {
    fn follow(&mut self, words: &[&str]) -> String {
        match words {
            ["publish", text, rest @ ..] => {
                let mut options = Options::default();
                for word in rest {
                    match *word {
                        "once" => options.once = true,
                        "read-only" => options.access = Access::ReadOnly,
                        number => options.timeout = Some(Duration::from_millis(number.parse().unwrap())),
                    }
                }
                self.keep(publish_bytes(text.as_bytes(), options))
            }
            ["attach", text] => match take(&Ticket::from_text(text).unwrap()) {
                Ok(attached) => {
                    self.tensors.extend(attached.tensors);
                    self.words()
                }
                Err(error) => format!("{:?}: {}", error.kind(), error.fact()),
            },
            ["read"] => self.words(),
            ["write", letter] => {
                // SAFETY: memory that was handed over for writing, while the other side waits.
                self.tensors
                    .iter()
                    .for_each(|one| unsafe { one.data().write_volatile(letter.as_bytes()[0]) });
                "ok".into()
            }
            ["again", access] => {
                let tensors: Vec<Outgoing> = self.tensors.iter().map(outgoing).collect();
                let access = if *access == "read-only" { Access::ReadOnly } else { Access::ReadWrite };
                match publish(&tensors, b"again", &Options { access, ..Options::default() }) {
                    Ok(publication) => self.keep(publication),
                    Err(error) => error.fact().to_owned(),
                }
            }
            ["leases"] => self.publications.last().unwrap().leases().to_string(),
            ["withdraw"] => {
                self.publications.last().unwrap().withdraw();
                "ok".into()
            }
            ["drop"] => {
                self.tensors.clear();
                "ok".into()
            }
            ["fork"] => {
                // SAFETY: the child ends in good order, with all that is done then, and the parent waits for it.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::exit(0);
                    }
                    let mut status = -1;
                    libc::waitpid(child, &raw mut status, 0);
                    status.to_string()
                }
            }
            _ => panic!("unknown words"),
        }
    }

    fn keep(&mut self, publication: Publication) -> String {
        let text = publication.ticket().to_text();
        self.publications.push(publication);
        text
    }

    fn words(&self) -> String {
        self.tensors.iter().map(|one| String::from_utf8(read(one)).unwrap()).collect::<Vec<_>>().join(",")
    }
}

/// A tensor that was attached, to be published again.
pub(crate) fn outgoing(tensor: &AttachedTensor) -> Outgoing {
    let (memory, offset) = tensorferry_share::find(tensor.data(), tensor.layout().bytes()).unwrap();
    Outgoing { memory: memory.into(), offset, dtype: tensor.dtype(), layout: tensor.layout().clone() }
}

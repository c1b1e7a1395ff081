//! Serves the tensors of model files to other processes, such as trainers in Python, without a copy for each of them.
//!
//! ```sh
//! cargo run --example serve_weights --features share -- model.safetensors
//! ```
//!
//! It prints a ticket for each file. `ferry.attach(ticket, "torch")` in Python gives a dict of its tensors. A line on the standard
//! input asks for the number of consumers of each file. The files are served until the standard input is closed.

use std::env;
use std::io::{self, BufRead, Write};
use tensorferry::files::TensorFile;
use tensorferry::share::{Publication, PublishOptions, publish_named};
use tensorferry::{Result, Tensor};

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<String> = env::args().skip(1).collect();
    if paths.is_empty() {
        return Err("usage: serve_weights FILE...".into());
    }
    let mut out = io::stdout();
    let mut publications = Vec::new();
    for path in &paths {
        let publication = publish_file(path)?;
        // Keep the ticket as secret as a password: every process of this user that has it can attach.
        writeln!(out, "{}", publication.ticket().to_text())?;
        publications.push(publication);
    }
    out.flush()?;
    for line in io::stdin().lock().lines() {
        line?;
        let consumers: Vec<String> =
            publications.iter().map(|publication| publication.leases().to_string()).collect();
        writeln!(out, "{}", consumers.join(" "))?;
        out.flush()?;
    }
    // Consumers keep the tensors that they have attached. Nobody can attach any more.
    drop(publications);
    Ok(())
}

/// Publishes all tensors of a file for reading, with one ticket. They are read into the memory that consumers map.
fn publish_file(path: &str) -> Result<Publication> {
    let file = TensorFile::open(path)?;
    let tensors = file
        .entries()
        .map(|entry| Ok((entry.name().to_owned(), entry.read_shared()?)))
        .collect::<Result<Vec<(String, Tensor)>>>()?;
    publish_named(tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)), &PublishOptions::new())
}

//! The package of the crate contains what its sources include.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

#[test]
fn included_files_are_in_the_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let packaged = manifest.lines().find(|line| line.starts_with("include = ")).unwrap();
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let mut included = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for after in text.split("include_str!(\"").skip(1) {
            let path = after.split('"').next().unwrap();
            // Links are not followed: cargo packages the file behind a link.
            let mut target = file.parent().unwrap().to_owned();
            for step in Path::new(path) {
                match step == ".." {
                    true => assert!(target.pop()),
                    false => target.push(step),
                }
            }
            let inside = target.strip_prefix(root).unwrap_or_else(|_| Path::new(path));
            let is_packaged = packaged.contains(&format!("\"/{}\"", inside.display()));
            assert!(target.exists() && is_packaged, "{} includes {path}", file.display());
            included += 1;
        }
    }
    assert_eq!(included, 2, "the README and the guide");
}

//! The examples run as programs, and their results are those of the crates `safetensors` and `half`.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod support;

use half::{bf16, f16};
use safetensors::tensor::{Dtype, SafeTensors, TensorView, serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Output, Stdio};
use support::{Folder, example};
use tensorferry::share::{PublishOptions, publish_named};

fn run(name: &str, arguments: &[&Path]) -> Output {
    example(name).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn floats() -> Vec<f32> {
    // The second and the third number lie halfway between two of bfloat16.
    let ties = [1.0, 1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0];
    let special = [0.0, -0.0, ties[0], ties[1], ties[2], -3.3e38, 3.4e38, 1e-40, f32::NAN, f32::MAX];
    special.into_iter().chain((0..2000).map(|index| ((index * 7919) as f32 - 5e6) * 1.37e-3)).collect()
}

/// A checkpoint with several types, written without this library.
fn checkpoint(path: &Path) -> Vec<f32> {
    let floats = floats();
    let single: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
    let double: Vec<u8> = floats.iter().flat_map(|&value| (f64::from(value) * 1.1).to_le_bytes()).collect();
    let half: Vec<u8> = floats.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
    let counts: Vec<u8> = (0..6i64).flat_map(|value| (value << 40).to_le_bytes()).collect();
    let rows = floats.len() / 10;
    let tensors = [
        ("layer.weight", TensorView::new(Dtype::F32, vec![rows, 10], &single).unwrap()),
        ("layer.scale", TensorView::new(Dtype::F64, vec![floats.len()], &double).unwrap()),
        ("half", TensorView::new(Dtype::F16, vec![rows, 5, 2], &half).unwrap()),
        ("steps", TensorView::new(Dtype::I64, vec![2, 3], &counts).unwrap()),
        ("flag", TensorView::new(Dtype::BOOL, vec![], &[1]).unwrap()),
        ("empty", TensorView::new(Dtype::F32, vec![0, 4], &[]).unwrap()),
    ];
    let metadata =
        HashMap::from([("format".to_owned(), "pt".to_owned()), ("step".to_owned(), "7".to_owned())]);
    std::fs::write(path, serialize(tensors, Some(metadata)).unwrap()).unwrap();
    floats
}

#[test]
fn cast_checkpoint_rounds_as_half_and_keeps_the_rest() {
    let folder = Folder::new();
    let (from, to) = (folder.file("model.safetensors"), folder.file("small.safetensors"));
    let floats = checkpoint(&from);
    let output = run("cast_checkpoint", &[&from, &to]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let count = floats.len();
    let (before, after) = (count * (4 + 8 + 2) + 48 + 1, count * 6 + 48 + 1);
    assert_eq!(text(&output.stdout), format!("{before} bytes became {after}\n"));

    let (old, new) = (std::fs::read(&from).unwrap(), std::fs::read(&to).unwrap());
    let (_, header) = SafeTensors::read_metadata(&new).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    assert_eq!(header.metadata().as_ref().unwrap()["step"], "7");
    let (old, new) = (SafeTensors::deserialize(&old).unwrap(), SafeTensors::deserialize(&new).unwrap());
    assert_eq!(new.len(), old.len());
    let bits = |name: &str| -> Vec<u16> {
        let tensor = new.tensor(name).unwrap();
        assert_eq!(
            (tensor.dtype(), tensor.shape()),
            (Dtype::BF16, old.tensor(name).unwrap().shape()),
            "{name}"
        );
        tensor.data().chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect()
    };
    let check = |name: &str, expected: &dyn Fn(f32) -> bf16| {
        for (&found, &value) in bits(name).iter().zip(&floats) {
            let expected = expected(value);
            let both_nan = expected.is_nan() && bf16::from_bits(found).is_nan();
            assert!(found == expected.to_bits() || both_nan, "{name}: {value} became {found:#x}");
        }
        assert_eq!(bits(name).len(), floats.len());
    };
    check("layer.weight", &bf16::from_f32);
    check("layer.scale", &|value| bf16::from_f64(f64::from(value) * 1.1));
    check("half", &|value| bf16::from_f32(f16::from_f32(value).to_f32()));
    for name in ["steps", "flag"] {
        let (before, after) = (old.tensor(name).unwrap(), new.tensor(name).unwrap());
        assert_eq!(
            (before.dtype(), before.shape(), before.data()),
            (after.dtype(), after.shape(), after.data())
        );
    }
    assert_eq!(new.tensor("empty").unwrap().dtype(), Dtype::BF16);
}

#[test]
fn cast_checkpoint_drops_nothing() {
    let folder = Folder::new();
    // A file of NumPy, with arrays of strings and Python objects beside readable ones.
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/files/corpus");
    let source = corpus.join("numpy-mixed.npz");
    let to = folder.file("small.npz");
    let output = run("cast_checkpoint", &[&source, &to]);
    let error = text(&output.stderr);
    assert!(!output.status.success() && error.contains("\"names\"") && error.contains("\nhint: "), "{error}");
    assert!(!to.exists());

    let from = folder.file("one.safetensors");
    let weight = tensorferry::Tensor::from_vec(vec![1.0f32, 2.0], &[2]).unwrap();
    tensorferry::files::save(&from, [("weight", &weight)]).unwrap();
    for name in ["small.bin", "small.raw", "small.npy", "small.pb"] {
        let to = folder.file(name);
        let output = run("cast_checkpoint", &[&from, &to]);
        let error = text(&output.stderr);
        assert!(!output.status.success() && error.contains(name) && error.contains("\nhint: "), "{error}");
        assert!(!to.exists());
    }
}

#[test]
fn inspect_model_lists_types_shapes_and_ranges() {
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    let floats = checkpoint(&path);
    let output = run("inspect_model", &[&path]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let listing = text(&output.stdout);
    let numbers = || floats.iter().copied().filter(|value| !value.is_nan());
    let (least, greatest) =
        (numbers().fold(f32::INFINITY, f32::min), numbers().fold(f32::NEG_INFINITY, f32::max));
    let (rows, count) = (floats.len() / 10, floats.len());
    let mut expected = vec![
        format!(
            "\"layer.weight\"  float32 [{rows}, 10]  {} bytes  min {} max {}",
            count * 4,
            f64::from(least),
            f64::from(greatest)
        ),
        format!(
            "\"layer.scale\"  float64 [{count}]  {} bytes  min {} max {}",
            count * 8,
            f64::from(least) * 1.1,
            f64::from(greatest) * 1.1
        ),
        format!("\"half\"  float16 [{rows}, 5, 2]  {} bytes  min -inf max inf", count * 2),
        "\"steps\"  int64 [2, 3]  48 bytes".to_owned(),
        "\"flag\"  bool []  1 bytes".to_owned(),
        "\"empty\"  float32 [0, 4]  0 bytes".to_owned(),
        format!("6 tensors, {} bytes", count * 14 + 49),
    ];
    let mut lines: Vec<&str> = listing.lines().collect();
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[test]
fn examples_report_errors_with_a_hint() {
    let folder = Folder::new();
    let (missing, to) = (folder.file("missing.safetensors"), folder.file("to.safetensors"));
    for output in [run("inspect_model", &[&missing]), run("cast_checkpoint", &[&missing, &to])] {
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.contains("missing.safetensors") && error.contains("\nhint: "), "{error}");
    }
    assert!(!to.exists());
    assert_eq!(run("inspect_model", &[]).status.code(), Some(2));
    assert_eq!(run("cast_checkpoint", &[&missing]).status.code(), Some(2));
}

#[test]
fn serve_weights_has_the_tensors_once() {
    const WEIGHT_BYTES: usize = 96 << 20;
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    let weight = tensorferry::Tensor::zeros(tensorferry::DType::Float32, &[WEIGHT_BYTES / 4]).unwrap();
    tensorferry::files::save(&path, [("weight", &weight)]).unwrap();
    let mut child =
        example("serve_weights").arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ticket = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ticket).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    let bytes = |name: &str| -> usize {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    };
    let (private, shared) = (bytes("RssAnon:"), bytes("RssShmem:"));
    assert!(private < WEIGHT_BYTES / 2 && shared >= WEIGHT_BYTES, "{private} and {shared} bytes");
}

#[test]
fn inspect_model_escapes_names() {
    let folder = Folder::new();
    let path = folder.file("model.safetensors");
    let weight = tensorferry::Tensor::zeros(tensorferry::DType::Int8, &[1]).unwrap();
    tensorferry::files::save(&path, [("a\u{1b}[2J\nb", &weight)]).unwrap();
    let listing = text(&run("inspect_model", &[&path]).stdout);
    assert!(
        listing.starts_with("\"a\\u{1b}[2J\\nb\"  int8 [1]") && listing.lines().count() == 2,
        "{listing}"
    );
}

#[test]
fn attach_trainer_counts_values_that_are_not_finite() {
    let complex = [[1.0f32, 2.0], [f32::NAN, 0.0], [0.0, f32::INFINITY], [f32::NAN, f32::NAN]];
    let complex = tensorferry::Tensor::from_vec(complex.to_vec(), &[4]).unwrap();
    let float = tensorferry::Tensor::from_vec(vec![f64::NAN, 1.0], &[2]).unwrap();
    let publication =
        publish_named([("complex", &complex), ("float", &float)], &PublishOptions::new()).unwrap();
    let output =
        example("attach_trainer").arg(publication.ticket().to_text()).stdin(Stdio::null()).output().unwrap();
    let listing = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        listing.contains("\"complex\" complex64 [4] 3 ") && listing.contains("\"float\" float64 [2] 1 "),
        "{listing}"
    );
}

//! Compares the engine with the reference implementation: every pair of types, any layout, any number of threads.

use super::reference::*;
use super::{CopyDestination, CopySource, convert};
use crate::dtype::{DType, DTypeKind};
use crate::layout::Layout;
use crate::tensor::ByteOrder;
use proptest::prelude::*;

/// A pseudo-random generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// An element, with special bit patterns more often than by chance.
    fn element(&mut self, dtype: DType) -> Vec<u8> {
        if dtype.kind() == DTypeKind::Complex {
            let part = if dtype == DType::Complex64 { DType::Float32 } else { DType::Float64 };
            return [self.element(part), self.element(part)].concat();
        }
        let code = match (dtype.kind(), self.below(4)) {
            (_, 0) | (DTypeKind::Bool, _) => self.next() & if self.below(4) == 0 { 0 } else { u64::MAX },
            (DTypeKind::Float, _) => encode_float(dtype, self.value()),
            // Integers of every length, with ties at every length.
            _ => {
                let length = 64 - self.below(64) as u32;
                let number = (self.next() | 1 << 63) >> (64 - length)
                    & !(u64::MAX.checked_shr(64 - self.below(length as u64 + 1) as u32).unwrap_or(0));
                let number = number.wrapping_add(self.below(3)).wrapping_sub(1);
                if self.below(2) == 0 { number } else { number.wrapping_neg() }
            }
        };
        code.to_le_bytes()[..dtype.size()].to_vec()
    }

    /// A number near a value, or a tie, of some float format.
    fn value(&mut self) -> Value {
        let floats: Vec<DType> =
            DType::all().filter(|d| d.kind() == DTypeKind::Float && *d != DType::Float64).collect();
        let near = floats[self.below(floats.len() as u64) as usize];
        let (_, mantissa, bias, _) = format(near);
        let negative = self.below(2) == 1;
        match self.below(16) {
            0 => return Value::Nan { negative, payload: self.next() >> 13 },
            1 => return Value::Infinite { negative },
            2 => return Value::Finite { negative, magnitude: 0, exponent: 0 },
            _ => {}
        }
        // One bit more than the format has gives ties half of the time; a small amount is then added on either side.
        let head = u128::from(self.below(2 << mantissa) | 1 << mantissa) * 2 + u128::from(self.below(2));
        let low = 1 - bias - mantissa as i32 - 3;
        let exponent = low + self.below((2 * bias + 6) as u64) as i32;
        let trace = 50 - mantissa as i32 - self.below(3) as i32 * 12;
        let magnitude = ((head << trace) + u128::from(self.below(3))).wrapping_sub(1);
        Value::Finite { negative, magnitude, exponent: exponent - trace }
    }
}

/// A tensor with its own memory, at an odd address.
struct OwnedTensor {
    bytes: Vec<u8>,
    start: usize,
    layout: Layout,
    dtype: DType,
}

impl OwnedTensor {
    fn new(dtype: DType, layout: Layout) -> Self {
        let (low, high) = layout.extent();
        Self { bytes: vec![0xa5; (high - low) as usize + 1], start: (1 - low) as usize, layout, dtype }
    }

    fn element_offsets(&self) -> Vec<usize> {
        offsets(&self.layout).into_iter().map(|offset| (self.start as i64 + offset) as usize).collect()
    }
}

fn check(from: &OwnedTensor, order: ByteOrder, to: &mut OwnedTensor, threads: usize) {
    let mut expected = to.bytes.clone();
    for (f, t) in from.element_offsets().into_iter().zip(to.element_offsets()) {
        let bytes = &from.bytes[f..f + from.dtype.size()];
        let native = if order == ByteOrder::Swapped { swapped(from.dtype, bytes) } else { bytes.to_vec() };
        expected[t..t + to.dtype.size()].copy_from_slice(&cast(from.dtype, to.dtype, &native));
    }
    // SAFETY: both vectors have the extent of their layout around `start`, and do not overlap. The layout of the target has no
    // two indices of the same byte, and nothing else uses the vectors.
    let result = unsafe {
        let source = CopySource {
            data: from.bytes.as_ptr().add(from.start),
            dtype: from.dtype,
            layout: &from.layout,
            order,
        };
        let destination = CopyDestination {
            data: to.bytes.as_mut_ptr().add(to.start),
            dtype: to.dtype,
            layout: &to.layout,
        };
        convert(&source, &destination, threads)
    };
    result.unwrap();
    if to.bytes != expected {
        for (f, t) in from.element_offsets().into_iter().zip(to.element_offsets()) {
            let size = to.dtype.size();
            assert_eq!(
                to.bytes[t..t + size],
                expected[t..t + size],
                "{:?} {order:?} as {}, from the bytes {:x?}, {:?} to {:?}",
                from.dtype,
                to.dtype,
                &from.bytes[f..f + from.dtype.size()],
                from.layout,
                to.layout
            );
        }
        panic!("bytes beside the elements were written: {:?} to {:?}", from.layout, to.layout);
    }
}

fn fill(memory: &mut OwnedTensor, random: &mut Random) {
    for place in memory.element_offsets() {
        let element = random.element(memory.dtype);
        memory.bytes[place..place + element.len()].copy_from_slice(&element);
    }
}

/// Strides without overlap: a permutation of the dimensions, with gaps, and some negative.
fn spread(item: usize, shape: &[i64], random: &mut Random) -> Layout {
    let mut order: Vec<usize> = (0..shape.len()).rev().collect();
    if random.below(2) == 0 {
        for i in (1..order.len()).rev() {
            order.swap(i, random.below(i as u64 + 1) as usize);
        }
    }
    let mut strides = vec![0; shape.len()];
    let mut step = item as i64;
    for axis in order {
        if random.below(4) == 0 {
            step += [1, item as i64, 3][random.below(3) as usize];
        }
        strides[axis] = if random.below(4) == 0 { -step } else { step };
        step *= shape[axis];
    }
    Layout::strided(item, shape, &strides).unwrap()
}

/// Arbitrary strides.
fn any_strides(item: usize, shape: &[i64], random: &mut Random) -> Layout {
    let strides: Vec<i64> = shape.iter().map(|_| random.below(81) as i64 - 40).collect();
    Layout::strided(item, shape, &strides).unwrap()
}

fn types(index: usize) -> DType {
    DType::all().nth(index).unwrap()
}

fn swaps(dtype: DType, wanted: bool) -> ByteOrder {
    if wanted && dtype.swap_unit() > 1 { ByteOrder::Swapped } else { ByteOrder::Native }
}

#[test]
fn every_pair_of_types() {
    let mut random = Random(1);
    let n = if cfg!(miri) { 5 } else { 1500 };
    for from in DType::all() {
        for to in DType::all() {
            // Under Miri an eighth of the pairs, with each type on both sides.
            if cfg!(miri) && !(from as usize + to as usize).is_multiple_of(8) {
                continue;
            }
            let mut source = OwnedTensor::new(from, Layout::dense(from.size(), &[n]).unwrap());
            let mut target = OwnedTensor::new(to, Layout::dense(to.size(), &[n]).unwrap());
            fill(&mut source, &mut random);
            check(&source, ByteOrder::Native, &mut target, 1);
            if from.swap_unit() > 1 && !cfg!(miri) {
                check(&source, ByteOrder::Swapped, &mut target, 3);
            }
        }
    }
}

/// All 256 or 65,536 elements of every narrow type to every type.
#[test]
fn every_narrow_element() {
    for from in DType::all().filter(|dtype| dtype.size() <= 2) {
        let n = if cfg!(miri) { 32 } else { 1i64 << (8 * from.size()) };
        let mut source = OwnedTensor::new(from, Layout::dense(from.size(), &[n]).unwrap());
        for (code, place) in source.element_offsets().into_iter().enumerate() {
            let code = if cfg!(miri) { code * 2055 } else { code };
            source.bytes[place..place + from.size()].copy_from_slice(&code.to_le_bytes()[..from.size()]);
        }
        for to in DType::all().filter(|to| !cfg!(miri) || matches!(to, DType::Float32 | DType::Float8E4M3Fn))
        {
            check(
                &source,
                ByteOrder::Native,
                &mut OwnedTensor::new(to, Layout::dense(to.size(), &[n]).unwrap()),
                1,
            );
        }
    }
}

/// Tests the reference: values that a wider type represents exactly survive a round trip.
#[test]
fn exact_values_come_back() {
    for dtype in DType::all().filter(|d| d.kind() == DTypeKind::Float && d.bits() <= 16) {
        for code in (0..1u64 << dtype.bits()).step_by(if cfg!(miri) { 977 } else { 1 }) {
            let bytes = &code.to_le_bytes()[..dtype.size()];
            let value = decode(dtype, bytes).0;
            if !matches!(value, Value::Nan { .. }) {
                for through in [DType::Float32, DType::Float64] {
                    assert_eq!(cast(through, dtype, &cast(dtype, through, bytes)), bytes, "{dtype} {code:x}");
                }
            }
        }
    }
}

fn one(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    let mut source = OwnedTensor::new(from, Layout::dense(from.size(), &[]).unwrap());
    let mut target = OwnedTensor::new(to, Layout::dense(to.size(), &[]).unwrap());
    source.bytes[1..].copy_from_slice(bytes);
    check(&source, ByteOrder::Native, &mut target, 1);
    target.bytes[1..].to_vec()
}

/// Tests the reference with numbers computed by hand.
#[test]
fn known_numbers() {
    let f64s = |to, value: f64| bits_of(&one(DType::Float64, to, &value.to_le_bytes()));
    let power = |exponent: i64| f64::from_bits(((exponent + 1023) as u64) << 52);
    // Above a tie by less than the precision of float32: rounding twice gives 1.
    assert_eq!(f64s(DType::Float16, 1.0 + power(-11) + power(-40)), 0x3c01);
    assert_eq!(f64s(DType::Float16, 1.0 + power(-11)), 0x3c00);
    assert_eq!(f64s(DType::Float16, 1.0 + 3.0 * power(-11)), 0x3c02);
    assert_eq!(f64s(DType::Float16, 1.0 + 3.0 * power(-11) - power(-40)), 0x3c01);
    assert_eq!(f64s(DType::BFloat16, 1.0 + power(-8) + power(-40)), 0x3f81);
    assert_eq!(f64s(DType::BFloat16, 1.0 + power(-8)), 0x3f80);
    assert_eq!(f64s(DType::Float8E4M3Fn, 1.0 + power(-4) + power(-50)), 0x39);
    assert_eq!(f64s(DType::Float8E4M3Fn, 464.0), 0x7e);
    assert_eq!(f64s(DType::Float8E4M3Fn, -464.0 - power(-40)), 0xff);
    assert_eq!(f64s(DType::Float8E5M2, 61440.0), 0x7c);
    assert_eq!(f64s(DType::Float8E5M2, 61440.0 - power(-30)), 0x7b);
    assert_eq!(f64s(DType::Float16, 65520.0), 0x7c00);
    assert_eq!(f64s(DType::Float16, 65520.0 - power(-30)), 0x7bff);
    assert_eq!(f64s(DType::Float16, power(-25)), 0);
    assert_eq!(f64s(DType::Float16, power(-25) + power(-70)), 1);
    assert_eq!(f64s(DType::Float16, -power(-200)), 0x8000);
    assert_eq!(f64s(DType::Float8E4M3Fnuz, -power(-200)), 0);
    assert_eq!(f64s(DType::Float8E8M0Fnu, 1.5), 0x80);
    assert_eq!(f64s(DType::Float8E8M0Fnu, 3.0), 0x81);
    assert_eq!(f64s(DType::Float8E8M0Fnu, power(-300)), 0);
    assert_eq!(f64s(DType::Float8E8M0Fnu, 0.0), 0xff);
    assert_eq!(f64s(DType::Float8E8M0Fnu, -1.0), 0xff);
    assert_eq!(f64s(DType::Float4E2M1Fn, 1e300), 0x07);
    assert_eq!(f64s(DType::Float4E2M1Fn, f64::NEG_INFINITY), 0x0f);
    assert_eq!(f64s(DType::Float6E3M2Fn, f64::NAN), 0x20);
    assert_eq!(f64s(DType::Int4, -9.9), 0xf8);
    assert_eq!(f64s(DType::UInt4, 99.0), 15);
    assert_eq!(f64s(DType::UInt8, -1.5), 0);
    assert_eq!(f64s(DType::Int64, 1e300), i64::MAX as u64);
    assert_eq!(f64s(DType::Bool, f64::NAN), 1);
    assert_eq!(f64s(DType::Bool, -0.0), 0);
    let u64s = |to, value: u64| bits_of(&one(DType::UInt64, to, &value.to_le_bytes()));
    // 2^63 + 2^39 is a tie in float32; one more is not, and float64 cannot represent it.
    assert_eq!(u64s(DType::Float32, (1 << 63) + (1 << 39)), 0x5f00_0000);
    assert_eq!(u64s(DType::Float32, (1 << 63) + (1 << 39) + 1), 0x5f00_0001);
    assert_eq!(u64s(DType::BFloat16, (1 << 63) + (1 << 55) + 1), 0x5f01);
    assert_eq!(u64s(DType::BFloat16, (1 << 63) + (1 << 55)), 0x5f00);
    assert_eq!(u64s(DType::Int4, 0x1234_5678), 0xf8);
    assert_eq!(one(DType::UInt4, DType::UInt8, &[0xf3]), [3]);
    assert_eq!(one(DType::Int4, DType::Int16, &[0x0f]), [0xff, 0xff]);
    assert_eq!(one(DType::Bool, DType::Bool, &[7]), [1]);
    assert_eq!(one(DType::Bool, DType::UInt8, &[7]), [1]);
    assert_eq!(one(DType::Bool, DType::Float8E8M0Fnu, &[0]), [0xff]);
}

/// The `half` crate agrees for float16 and bfloat16.
#[test]
fn agrees_with_half() {
    let mut random = Random(7);
    for _ in 0..if cfg!(miri) { 50 } else { 100_000 } {
        let bytes = random.element(DType::Float32);
        let value = f32::from_bits(bits_of(&bytes) as u32);
        if !value.is_nan() {
            assert_eq!(
                bits_of(&cast(DType::Float32, DType::Float16, &bytes)),
                half::f16::from_f32(value).to_bits().into()
            );
            assert_eq!(
                bits_of(&cast(DType::Float32, DType::BFloat16, &bytes)),
                half::bf16::from_f32(value).to_bits().into()
            );
        }
    }
}

#[test]
fn shapes_must_agree() {
    let (two, three) = (Layout::dense(4, &[2]).unwrap(), Layout::dense(4, &[3]).unwrap());
    let mut to = [0u8; 12];
    let from = [0u8; 12];
    let run = |dtype, from_layout, to_layout, to: &mut [u8]| {
        let source = CopySource { data: from.as_ptr(), dtype, layout: from_layout, order: ByteOrder::Native };
        let destination = CopyDestination { data: to.as_mut_ptr(), dtype: DType::Float32, layout: to_layout };
        // SAFETY: the arrays have three elements of four bytes, as the accepted layouts. Layouts of another shape or element
        // size are rejected before anything is read.
        unsafe { convert(&source, &destination, 1) }
    };
    assert!(run(DType::Float32, &two, &three, &mut to).unwrap_err().fact().contains("[2]"));
    assert!(run(DType::Float64, &two, &two, &mut to).unwrap_err().fact().contains("float64"));
    assert!(run(DType::Int32, &three, &three, &mut to).is_ok());
}

#[test]
fn empty_and_scalar_and_64_dimensions() {
    let mut random = Random(3);
    for (from, to) in [(DType::Float32, DType::Float32), (DType::Int64, DType::BFloat16)] {
        let mut long = vec![1i64; 64];
        for shape in [vec![], vec![0], vec![3, 0, 2], {
            long[5] = 3;
            long[17] = 2;
            long[60] = 5;
            long.clone()
        }] {
            let mut source = OwnedTensor::new(from, spread(from.size(), &shape, &mut random));
            fill(&mut source, &mut random);
            let mut target = OwnedTensor::new(to, spread(to.size(), &shape, &mut random));
            check(&source, ByteOrder::Native, &mut target, 2);
        }
    }
    let binary = vec![2i64; if cfg!(miri) { 6 } else { 11 }];
    let mut source = OwnedTensor::new(DType::Float16, spread(2, &binary, &mut random));
    fill(&mut source, &mut random);
    let mut target = OwnedTensor::new(DType::Float64, spread(8, &binary, &mut random));
    check(&source, ByteOrder::Swapped, &mut target, 3);
}

/// Planes larger than the buffers: transposed, strided, with every thread count.
/// Long enough for interleaved runs, with partial lines at both ends.
#[test]
fn long_rows() {
    if cfg!(miri) {
        return;
    }
    let mut random = Random(77);
    for (from, to, order) in [
        (DType::Float32, DType::BFloat16, ByteOrder::Native),
        (DType::UInt8, DType::Float64, ByteOrder::Native),
        (DType::Float64, DType::Float8E5M2, ByteOrder::Swapped),
        (DType::Float32, DType::Float32, ByteOrder::Swapped),
        (DType::Bool, DType::Bool, ByteOrder::Native),
    ] {
        for count in [65_536 / 4, 70_001, 140_000] {
            let mut source = OwnedTensor::new(from, Layout::dense(from.size(), &[count]).unwrap());
            fill(&mut source, &mut random);
            for threads in [1, 3] {
                let mut target = OwnedTensor::new(to, Layout::dense(to.size(), &[count]).unwrap());
                check(&source, order, &mut target, threads);
            }
        }
    }
}

#[test]
fn large_planes() {
    let mut random = Random(5);
    let pairs = [
        (DType::Float32, DType::Float32),
        (DType::UInt8, DType::UInt8),
        (DType::Float64, DType::Float32),
        (DType::UInt8, DType::Float32),
        (DType::Complex64, DType::Complex128),
        (DType::Int64, DType::Float8E5M2),
        (DType::Float16, DType::Bool),
        (DType::Bool, DType::Bool),
    ];
    let shapes: &[[i64; 2]] =
        if cfg!(miri) { &[[20, 19]] } else { &[[3000, 3], [3, 3000], [200, 170], [1, 9000]] };
    for (from, to) in pairs.into_iter().take(if cfg!(miri) { 3 } else { 8 }) {
        for shape in shapes {
            for round in 0..if cfg!(miri) { 1 } else { 6 } {
                let mut source = OwnedTensor::new(from, spread(from.size(), shape, &mut random));
                let mut target = OwnedTensor::new(to, spread(to.size(), shape, &mut random));
                fill(&mut source, &mut random);
                check(&source, swaps(from, round % 2 == 0), &mut target, 1 + round % 4);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 10 } else { 4000 }, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn any_types_and_layouts(
        from in 0..DType::COUNT,
        to in 0..DType::COUNT,
        shape in proptest::collection::vec(0i64..7, 0..5),
        seed in any::<u64>(),
        swap in any::<bool>(),
        strange in any::<bool>(),
        threads in 0usize..5,
    ) {
        let (from, to) = (types(from), types(to));
        let mut random = Random(seed);
        let layout = if strange { any_strides } else { spread };
        let mut source = OwnedTensor::new(from, layout(from.size(), &shape, &mut random));
        fill(&mut source, &mut random);
        let mut target = OwnedTensor::new(to, spread(to.size(), &shape, &mut random));
        check(&source, swaps(from, swap), &mut target, threads);
    }

    #[test]
    fn copies_of_any_layout(
        dtype in 0..DType::COUNT,
        shape in proptest::collection::vec(1i64..if cfg!(miri) { 5 } else { 20 }, 0..4),
        seed in any::<u64>(),
        threads in 1usize..5,
    ) {
        let dtype = types(dtype);
        let mut random = Random(seed);
        let mut source = OwnedTensor::new(dtype, spread(dtype.size(), &shape, &mut random));
        fill(&mut source, &mut random);
        let mut target = OwnedTensor::new(dtype, spread(dtype.size(), &shape, &mut random));
        check(&source, ByteOrder::Native, &mut target, threads);
    }
}

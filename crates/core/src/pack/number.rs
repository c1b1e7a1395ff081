//! The number formats that the machine does not have, and rounding that happens once.
//!
//! Every format here is narrower than float32 and each of its values is a float32 exactly, so float32 is the
//! bridge: decoding is exact, and encoding rounds a float32 to the format. What comes from a wider type
//! (float64, 32 and 64-bit integers) crosses the bridge **rounded to odd** ([`odd_from_f64`]): cut off, with
//! the last bit set when anything was lost. Such a float32 lies on the same side of every tie and every bound
//! of a format with at most 22 bits of precision as the exact value does, so the one rounding that follows
//! gives what rounding the exact value would. That is the whole defence against rounding twice.
//!
//! Everything is branch-free integer arithmetic (and one addition for subnormals), because these functions
//! are the bodies of loops that the compiler is to vectorise.

/// A floating point format of at most eight bits: sign, exponent, mantissa, from the top.
#[derive(Clone, Copy)]
pub(super) struct Format {
    /// How many bits count.
    pub(super) bits: u32,
    /// How many of them are mantissa.
    pub(super) mantissa: u32,
    /// What is taken off the exponent field.
    pub(super) bias: u32,
    /// The code of the largest finite value.
    pub(super) largest: u8,
    /// The code of what is too large: infinity, NaN, or the largest finite value.
    pub(super) overflow: u8,
    /// The code that a NaN becomes.
    pub(super) nan: u8,
    /// How a negative number is told.
    pub(super) sign: Sign,
}

/// How a format treats the sign.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// The top bit, on every code.
    Plain,
    /// The top bit, but minus zero is the one NaN (the `fnuz` formats).
    NoMinusZero,
    /// There is none, nor a zero: bare powers of two (`e8m0fnu`).
    Unsigned,
}

/// A type that stands for a [`Format`].
pub(super) trait Small: Copy {
    /// The format.
    const FORMAT: Format;
    /// The float32 bits of each code.
    const VALUES: [u32; 256] = values(Self::FORMAT);
}

macro_rules! formats {
    ($($name:ident: $bits:literal bits, $mantissa:literal mantissa, bias $bias:literal,
       largest $largest:literal, overflow $overflow:literal, nan $nan:literal, $sign:ident;)*) => {$(
        #[derive(Clone, Copy)]
        pub(super) struct $name;
        impl Small for $name {
            const FORMAT: Format = Format {
                bits: $bits, mantissa: $mantissa, bias: $bias, largest: $largest, overflow: $overflow, nan: $nan,
                sign: Sign::$sign,
            };
        }
    )*};
}

// The NaN of float6 and float4, which have none, is minus zero: with the sign of the NaN turned in, a NaN
// becomes a zero of the other sign, as in ml_dtypes.
formats! {
    E3M4:        8 bits, 4 mantissa, bias 3,   largest 0x6f, overflow 0x70, nan 0x78, Plain;
    E4M3:        8 bits, 3 mantissa, bias 7,   largest 0x77, overflow 0x78, nan 0x7c, Plain;
    E4M3B11Fnuz: 8 bits, 3 mantissa, bias 11,  largest 0x7f, overflow 0x80, nan 0x80, NoMinusZero;
    E4M3Fn:      8 bits, 3 mantissa, bias 7,   largest 0x7e, overflow 0x7f, nan 0x7f, Plain;
    E4M3Fnuz:    8 bits, 3 mantissa, bias 8,   largest 0x7f, overflow 0x80, nan 0x80, NoMinusZero;
    E5M2:        8 bits, 2 mantissa, bias 15,  largest 0x7b, overflow 0x7c, nan 0x7e, Plain;
    E5M2Fnuz:    8 bits, 2 mantissa, bias 16,  largest 0x7f, overflow 0x80, nan 0x80, NoMinusZero;
    E8M0Fnu:     8 bits, 0 mantissa, bias 127, largest 0xfe, overflow 0xff, nan 0xff, Unsigned;
    E2M3Fn:      6 bits, 3 mantissa, bias 1,   largest 0x1f, overflow 0x1f, nan 0x20, Plain;
    E3M2Fn:      6 bits, 2 mantissa, bias 3,   largest 0x1f, overflow 0x1f, nan 0x20, Plain;
    E2M1Fn:      4 bits, 1 mantissa, bias 1,   largest 0x07, overflow 0x07, nan 0x08, Plain;
}

const QUIET: u32 = 0x7fc0_0000;
const INFINITY: u32 = 0x7f80_0000;
const MAGNITUDE: u32 = 0x7fff_ffff;

/// The float32 bits of one code; bits above the format's own do not count.
const fn value(format: Format, code: u8) -> u32 {
    let code = code as u32 & ((1 << format.bits) - 1);
    let (sign, magnitude) = match format.sign {
        Sign::Unsigned => (0, code),
        _ => ((code >> (format.bits - 1)) << 31, code & ((1 << (format.bits - 1)) - 1)),
    };
    if matches!(format.sign, Sign::NoMinusZero) && code == format.nan as u32 {
        return QUIET;
    }
    if magnitude > format.largest as u32 {
        let infinite = format.overflow != format.nan && magnitude == format.overflow as u32;
        return sign | if infinite { INFINITY } else { QUIET };
    }
    let exponent = magnitude >> format.mantissa;
    let fraction = magnitude & ((1 << format.mantissa) - 1);
    if format.bias == 127 {
        // A power of two; the smallest is subnormal in float32.
        return if exponent == 0 { 1 << 22 } else { exponent << 23 };
    }
    if exponent != 0 {
        return sign | ((exponent + 127 - format.bias) << 23) | (fraction << (23 - format.mantissa));
    }
    if fraction == 0 {
        return sign;
    }
    // Subnormal: shift the leading one out, and count what that costs.
    let shift = fraction.leading_zeros() - (31 - format.mantissa);
    let fraction = (fraction << shift) & ((1 << format.mantissa) - 1);
    sign | ((128 - format.bias - shift) << 23) | (fraction << (23 - format.mantissa))
}

const fn values(format: Format) -> [u32; 256] {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = value(format, code as u8);
        code += 1;
    }
    table
}

/// The magnitude of a float32 rounded to `mantissa` bits under another `bias`, as a code that may lie past
/// the largest of its format. NaN gives nonsense that the caller replaces.
#[inline(always)]
fn round(magnitude: u32, mantissa: u32, bias: u32) -> u32 {
    let drop = 23 - mantissa;
    // Normal: round half to even by adding just under a half, or a half when the kept part is odd. A carry
    // out of the mantissa is the right next exponent. Wraps for what is not normal, which is not used then.
    let moved = magnitude.wrapping_sub((127 - bias) << 23);
    let normal = moved.wrapping_add((1 << (drop - 1)) - 1 + (moved >> drop & 1)) >> drop;
    // Subnormal: adding a power of two whose last place is the format's smallest value makes the addition
    // round.
    let magic = (127 + 1 - bias + drop) << 23;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(magic)).to_bits().wrapping_sub(magic);
    if magnitude < (128 - bias) << 23 { subnormal } else { normal }
}

/// A float32, given by its bits, rounded to a small format.
#[inline(always)]
pub(super) fn encode<S: Small>(bits: u32) -> u8 {
    let format = S::FORMAT;
    let magnitude = bits & MAGNITUDE;
    if format.sign == Sign::Unsigned {
        // Significands are bare ones, and one and a half lies between one and two, of which two is even: ties
        // go up.
        let normal = (magnitude + (1 << 22)) >> 23;
        let subnormal = u32::from(magnitude >= 3 << 21);
        let code = if magnitude < 1 << 23 { subnormal } else { normal };
        return if bits.wrapping_sub(1) >= INFINITY - 1 { format.nan } else { code as u8 };
    }
    let code = round(magnitude, format.mantissa, format.bias);
    let code = if code > format.largest as u32 { format.overflow as u32 } else { code };
    let code = if magnitude > INFINITY { format.nan as u32 } else { code };
    let sign = bits >> 31 << (format.bits - 1);
    match format.sign {
        // Codes of magnitude zero have no sign to carry, and the NaN is the sign bit itself.
        Sign::NoMinusZero => (if code == 0 { 0 } else { code | sign }) as u8,
        _ => (code ^ sign) as u8,
    }
}

/// A float32, given by its bits, rounded to float16.
#[inline(always)]
pub(super) fn encode_f16(bits: u32) -> u16 {
    let magnitude = bits & MAGNITUDE;
    let code = round(magnitude, 10, 15).min(0x7c00);
    let code = if magnitude > INFINITY { 0x7e00 | (magnitude >> 13 & 0x1ff) } else { code };
    (code | (bits >> 31 << 15)) as u16
}

/// A float32, given by its bits, rounded to bfloat16.
#[inline(always)]
pub(super) fn encode_bf16(bits: u32) -> u16 {
    // The same exponent as float32, so subnormals and overflow to infinity come out of the carry.
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    (if bits & MAGNITUDE > INFINITY { bits >> 16 | 0x40 } else { rounded }) as u16
}

/// The float32 bits of a float16.
#[inline(always)]
pub(super) fn decode_f16(code: u16) -> u32 {
    let code = u32::from(code);
    let magnitude = code & 0x7fff;
    let normal = (magnitude << 13) + ((127 - 15) << 23);
    // As an i32, because the machine has that conversion for vectors.
    let subnormal = (magnitude as i32 as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    let special = INFINITY | magnitude << 13 | u32::from(magnitude > 0x7c00) << 22;
    let value = if magnitude < 0x400 { subnormal } else { normal };
    let value = if magnitude >= 0x7c00 { special } else { value };
    value | (code >> 15 << 31)
}

/// The float32 bits of a bfloat16.
#[inline(always)]
pub(super) fn decode_bf16(code: u16) -> u32 {
    let bits = u32::from(code) << 16;
    bits | u32::from(bits & MAGNITUDE > INFINITY) << 22
}

/// A float64 rounded to the nearest float32. A NaN keeps its sign and the top of its payload and becomes
/// quiet: what machines do, but written out, because the language leaves a NaN's bits open.
#[inline(always)]
pub(super) fn narrow(value: f64) -> f32 {
    let bits = value.to_bits();
    let nan = (bits >> 63 << 31) as u32 | QUIET | (bits >> 29) as u32 & 0x003f_ffff;
    if value.is_nan() { f32::from_bits(nan) } else { value as f32 }
}

/// A float32 as a float64; a NaN as in [`narrow`].
#[inline(always)]
pub(super) fn widen(value: f32) -> f64 {
    let bits = u64::from(value.to_bits());
    let nan = bits >> 31 << 63 | 0x7ff8_0000_0000_0000 | (bits & 0x003f_ffff) << 29;
    if value.is_nan() { f64::from_bits(nan) } else { f64::from(value) }
}

/// A float64 rounded to odd: the float32 that it is, or else the neighbour of the two whose last bit is set.
#[inline(always)]
pub(super) fn odd_from_f64(value: f64) -> f32 {
    let nearest = narrow(value);
    let back = f64::from(nearest);
    let bits = nearest.to_bits();
    // Rounded away from zero: step back. Infinity steps back to the largest number, which is odd.
    let cut = bits - u32::from(back.abs() > value.abs());
    // A NaN differs from itself and must stay as it is.
    f32::from_bits(if back == value || value.is_nan() { bits } else { cut | 1 })
}

/// A 64-bit integer rounded to odd.
#[inline(always)]
pub(super) fn odd_from_i64(value: i64) -> f32 {
    // What 53 bits cannot hold loses eleven bits, which leaves at least 42: enough, with the lost ones noted
    // in the last.
    let cut = (value >> 11) | i64::from(value & 0x7ff != 0);
    let small = value.wrapping_add(1 << 52) as u64 >> 53 == 0;
    odd_from_f64(if small { value as f64 } else { cut as f64 * 2048.0 })
}

/// As [`odd_from_i64`].
#[inline(always)]
pub(super) fn odd_from_u64(value: u64) -> f32 {
    let cut = (value >> 11) | u64::from(value & 0x7ff != 0);
    odd_from_f64(if value >> 53 == 0 { value as i64 as f64 } else { cut as i64 as f64 * 2048.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_to_odd_keeps_the_side() {
        let power = |exponent: i64| f64::from_bits(((exponent + 1023) as u64) << 52);
        assert_eq!(odd_from_f64(1.0), 1.0);
        assert_eq!(odd_from_f64(1.0 + power(-40)).to_bits(), 0x3f80_0001);
        assert_eq!(odd_from_f64(-1.0 + power(-40)).to_bits(), 0xbf7f_ffff);
        assert_eq!(odd_from_f64(1e300), f32::MAX);
        assert_eq!(odd_from_f64(f64::NEG_INFINITY), f32::NEG_INFINITY);
        assert_eq!(odd_from_f64(-1e-300).to_bits(), 0x8000_0001);
        assert_eq!(odd_from_f64(-0.0).to_bits(), 0x8000_0000);
        assert!(odd_from_f64(f64::NAN).is_nan());
        assert_eq!(odd_from_i64(i64::MIN), -power(63) as f32);
        assert_eq!(odd_from_i64(i64::MIN + 1).to_bits(), 0xdeff_ffff);
        assert_eq!(odd_from_i64(i64::MAX).to_bits(), 0x5eff_ffff);
        assert_eq!(odd_from_u64(u64::MAX).to_bits(), 0x5f7f_ffff);
        assert_eq!(odd_from_u64((1 << 63) + 1).to_bits(), 0x5f00_0001);
    }

    #[test]
    fn small_formats_are_what_their_names_say() {
        fn ends<S: Small>() -> (f32, f32) {
            (f32::from_bits(S::VALUES[usize::from(S::FORMAT.largest)]), f32::from_bits(S::VALUES[1]))
        }
        let power = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
        assert_eq!(ends::<E3M4>(), (15.5, power(-6)));
        assert_eq!(ends::<E4M3>(), (240.0, power(-9)));
        assert_eq!(ends::<E4M3Fn>(), (448.0, power(-9)));
        assert_eq!(ends::<E4M3Fnuz>(), (240.0, power(-10)));
        assert_eq!(ends::<E4M3B11Fnuz>(), (30.0, power(-13)));
        assert_eq!(ends::<E5M2>(), (57344.0, power(-16)));
        assert_eq!(ends::<E5M2Fnuz>(), (57344.0, power(-17)));
        assert_eq!(ends::<E8M0Fnu>(), (power(127), power(-126)));
        assert_eq!(ends::<E2M3Fn>(), (7.5, 0.125));
        assert_eq!(ends::<E3M2Fn>(), (28.0, 0.0625));
        assert_eq!(ends::<E2M1Fn>(), (6.0, 0.5));
    }
}

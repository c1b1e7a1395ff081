//! Detection of the vector instructions that the fast loops use.

/// Whether the processor has AVX2 and the features that appeared with it: F16C, BMI1, BMI2, LZCNT and POPCNT.
pub(super) fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("f16c") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
}

//! Tests of the planner of sparse tensors.

use super::*;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Hint};
use crate::hints;
use proptest::prelude::*;

const BOTH: &[DType] = &[DType::Int32, DType::Int64];
const ONLY_INT64: &[DType] = &[DType::Int64];
const ONLY_INT32: &[DType] = &[DType::Int32];

const fn strict(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities {
        in_order: true,
        unique: true,
        reason: "it is strict",
        ..FormatCapabilities::any(format, BOTH)
    }
}

const fn free(format: SparseFormat) -> FormatCapabilities {
    FormatCapabilities { strided: true, ..FormatCapabilities::any(format, BOTH) }
}

static FREE: [FormatCapabilities; 4] =
    [free(SparseFormat::Coo), free(SparseFormat::Csr), free(SparseFormat::Csc), free(SparseFormat::Bsr)];
static STRICT: [FormatCapabilities; 4] = [
    strict(SparseFormat::Coo),
    strict(SparseFormat::Csr),
    strict(SparseFormat::Csc),
    strict(SparseFormat::Bsr),
];
static POINTS: [FormatCapabilities; 1] = [FormatCapabilities {
    layout: CoordinateLayout::Points,
    ..FormatCapabilities::any(SparseFormat::Coo, ONLY_INT64)
}];
static ROWS: [FormatCapabilities; 1] = [FormatCapabilities::any(SparseFormat::Csr, ONLY_INT32)];

fn target(formats: &'static [FormatCapabilities], has_matrices: bool) -> SparseTarget {
    SparseTarget { framework: "target", title: "Target", formats, has_matrices }
}

fn source(format: SparseFormat) -> SparseSource<'static> {
    SparseSource {
        framework: "source",
        format,
        is_matrix: false,
        layout: CoordinateLayout::Separate,
        shape: &[6, 8],
        batch_axes: 0,
        dense_axes: 0,
        block: (format == SparseFormat::Bsr).then_some([2, 2]),
        index_dtypes: &[DType::Int32],
    }
}

const CANONICAL: ElementOrder = ElementOrder { in_order: true, unique: true, grouped: true };
const MIXED: ElementOrder = ElementOrder { in_order: false, unique: false, grouped: false };

fn structure(order: ElementOrder) -> SparseStructure {
    SparseStructure { count: 5, spare: 0, order }
}

/// An inspection with fixed answers, which records the queries.
struct FixedInspection {
    order: ElementOrder,
    distinct: usize,
    after: ElementOrder,
    queries: Vec<&'static str>,
}

impl FixedInspection {
    fn of(order: ElementOrder, distinct: usize) -> Self {
        Self { order, distinct, after: CANONICAL, queries: Vec::new() }
    }
}

impl Inspect for FixedInspection {
    type Error = Error;

    fn order(&mut self, _: bool) -> Result<ElementOrder, Error> {
        self.queries.push("order");
        Ok(self.order)
    }

    fn distinct(&mut self, _: bool) -> Result<usize, Error> {
        self.queries.push("distinct");
        Ok(self.distinct)
    }

    fn order_after_grouping(&mut self, _: bool, _: DType) -> Result<ElementOrder, Error> {
        self.queries.push("after");
        Ok(self.after)
    }
}

fn planned(
    source: &SparseSource<'_>,
    structure: SparseStructure,
    formats: &'static [FormatCapabilities],
    request: &SparseRequest<'_>,
    inspection: &mut FixedInspection,
) -> Result<SparseConversion, Error> {
    let choice = choose(source, &target(formats, false), request)?;
    choice.check_axes(source)?;
    convert(source, &structure, &choice, inspection)
}

fn request(format: &str) -> SparseRequest<'_> {
    SparseRequest { format: Some(format), block: None }
}

fn kinds(conversion: &SparseConversion, number: usize) -> Vec<&'static str> {
    match &conversion.arrays[number].origin {
        Origin::Given => vec![],
        Origin::Made(steps) => steps.iter().map(Step::kind).collect(),
    }
}

#[test]
fn a_missing_format_becomes_the_nearest() {
    let nearest = |format, formats| {
        choose(&source(format), &target(formats, false), &SparseRequest::default())
            .unwrap()
            .capabilities
            .format
    };
    assert_eq!(nearest(SparseFormat::Csc, &POINTS), SparseFormat::Coo);
    assert_eq!(nearest(SparseFormat::Bsr, &ROWS), SparseFormat::Csr);
    assert_eq!(nearest(SparseFormat::Bsr, &FREE), SparseFormat::Bsr);
    assert_eq!(nearest(SparseFormat::Csc, &ROWS), SparseFormat::Csr);
}

#[test]
fn matrices_stay_matrices_unless_arrays_are_requested() {
    let x = SparseSource { is_matrix: true, ..source(SparseFormat::Csr) };
    let chosen = |format, has_matrices| {
        let request = SparseRequest { format, block: None };
        choose(&x, &target(&FREE, has_matrices), &request).map(|choice| choice.is_matrix)
    };
    assert_eq!(chosen(None, true), Ok(true));
    assert_eq!(chosen(Some("csc"), true), Ok(true));
    assert_eq!(chosen(Some("csr_array"), true), Ok(false));
    assert_eq!(chosen(Some("csc_matrix"), true), Ok(true));
    assert_eq!(chosen(None, false), Ok(false));
    assert!(chosen(Some("csr_matrix"), false).is_err());
    for wrong in ["csd", "csr_tensor", "", "_matrix"] {
        let error = chosen(Some(wrong), true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            error.hint(),
            Some(&Hint::Key(hints::CHOOSE_SPARSE_FORMAT, Some("coo, csr, csc, bsr".into())))
        );
    }
}

#[test]
fn axes_that_a_format_does_not_have_are_rejected() {
    let check = |x: SparseSource<'_>, format| {
        choose(&x, &target(&FREE, false), &request(format))
            .unwrap()
            .check_axes(&x)
            .unwrap_err()
            .fact()
            .to_owned()
    };
    let cube = SparseSource { shape: &[2, 3, 4], ..source(SparseFormat::Coo) };
    assert!(check(cube, "csr").contains("has 3 axes and Target's csr has 2"));
    assert!(check(SparseSource { batch_axes: 1, ..cube }, "coo").contains("batch axes (1)"));
    assert!(check(SparseSource { dense_axes: 1, ..cube }, "coo").contains("hybrid"));
    assert!(check(SparseSource { shape: &[], ..cube }, "coo").contains("no sparse axis"));
}

#[test]
fn arrays_in_the_same_format_are_reused() {
    for format in SparseFormat::ALL {
        for formats in [&FREE, &STRICT] {
            let mut inspection = FixedInspection::of(CANONICAL, 5);
            let plan = planned(
                &source(format),
                structure(CANONICAL),
                formats,
                &request(format.name()),
                &mut inspection,
            )
            .unwrap();
            assert_eq!(plan.work, ElementWork::Keep);
            assert!(plan.arrays.iter().all(|array| array.origin == Origin::Given));
            assert_eq!(plan.arrays[0].role, ArrayRole::Values);
            assert_eq!((plan.count, plan.in_order, plan.unique), (Some(5), true, true));
            assert!(inspection.queries.is_empty());
        }
    }
}

#[test]
fn strict_formats_are_sorted_and_summed() {
    let mut inspection = FixedInspection::of(MIXED, 3);
    let plan =
        planned(&source(SparseFormat::Coo), structure(MIXED), &STRICT, &request("csr"), &mut inspection)
            .unwrap();
    assert_eq!(plan.work, ElementWork::Elements { sort: true, sum: true });
    assert_eq!((plan.count, plan.in_order, plan.unique), (Some(3), true, true));
    assert_eq!(kinds(&plan, 0), ["sort", "sum"]);
    assert_eq!(kinds(&plan, 1), ["count"]);
    assert_eq!(kinds(&plan, 2), ["sort", "sum"]);
    let Origin::Made(steps) = &plan.arrays[0].origin else { panic!("expected steps") };
    assert_eq!(steps[1], Step::Sum { duplicates: 2, reason: "it is strict" });
    let mut inspection = FixedInspection::of(MIXED, 5);
    let plan =
        planned(&source(SparseFormat::Coo), structure(MIXED), &STRICT, &request("coo"), &mut inspection)
            .unwrap();
    assert_eq!(plan.work, ElementWork::Elements { sort: true, sum: false });
    let flat = ElementOrder { unique: false, ..CANONICAL };
    let mut inspection = FixedInspection::of(flat, 4);
    let plan =
        planned(&source(SparseFormat::Csr), structure(flat), &STRICT, &request("csr"), &mut inspection)
            .unwrap();
    assert_eq!(plan.work, ElementWork::Elements { sort: true, sum: true });
    assert_eq!(kinds(&plan, 0), ["sum"]);
}

#[test]
fn elements_that_are_grouped_need_only_pointers() {
    let grouped = ElementOrder { grouped: true, ..MIXED };
    let mut inspection = FixedInspection::of(grouped, 5);
    let plan =
        planned(&source(SparseFormat::Coo), structure(grouped), &FREE, &request("csr"), &mut inspection)
            .unwrap();
    assert_eq!(plan.work, ElementWork::Elements { sort: false, sum: false });
    assert_eq!(plan.arrays[0].origin, Origin::Given);
    assert_eq!(plan.arrays[2].origin, Origin::Given);
    assert_eq!(kinds(&plan, 1), ["count"]);
    assert!(inspection.queries.is_empty());
    // The order by columns has to be queried, because the source is sorted by rows.
    let mut inspection = FixedInspection::of(MIXED, 5);
    let plan =
        planned(&source(SparseFormat::Coo), structure(CANONICAL), &FREE, &request("csc"), &mut inspection)
            .unwrap();
    assert_eq!(plan.work, ElementWork::Group);
    assert_eq!(inspection.queries, ["order", "after"]);
}

#[test]
fn compressed_rows_and_columns_are_grouped_in_one_pass() {
    for formats in [&FREE, &STRICT] {
        let mut inspection = FixedInspection::of(MIXED, 5);
        let plan = planned(
            &source(SparseFormat::Csr),
            structure(CANONICAL),
            formats,
            &request("csc"),
            &mut inspection,
        )
        .unwrap();
        assert_eq!(plan.work, ElementWork::Group);
        assert_eq!(kinds(&plan, 2), ["expand", "sort"]);
        assert!(plan.in_order && plan.unique && inspection.queries.is_empty());
    }
    // Uniqueness of unsorted elements is unknown, but grouping sorts them.
    let mut inspection = FixedInspection::of(MIXED, 5);
    inspection.after = ElementOrder { unique: false, ..CANONICAL };
    let plan = planned(&source(SparseFormat::Csr), structure(MIXED), &FREE, &request("csc"), &mut inspection)
        .unwrap();
    assert_eq!((plan.work, plan.in_order, plan.unique), (ElementWork::Group, true, false));
}

#[test]
fn padding_is_dropped_and_unused_capacity_is_ignored() {
    let spare = SparseStructure { spare: 2, ..structure(CANONICAL) };
    let mut inspection = FixedInspection::of(CANONICAL, 5);
    let plan = planned(&source(SparseFormat::Coo), spare, &FREE, &request("coo"), &mut inspection).unwrap();
    assert_eq!(kinds(&plan, 0), ["drop"]);
    assert_eq!(kinds(&plan, 1), ["drop"]);
    let plan = planned(&source(SparseFormat::Csr), spare, &FREE, &request("csr"), &mut inspection).unwrap();
    assert_eq!((plan.work, plan.count), (ElementWork::Keep, Some(5)));
}

#[test]
fn coordinates_change_their_layout_and_type() {
    let mut inspection = FixedInspection::of(CANONICAL, 5);
    let plan =
        planned(&source(SparseFormat::Coo), structure(CANONICAL), &POINTS, &request("coo"), &mut inspection)
            .unwrap();
    assert_eq!(kinds(&plan, 1), ["arrange", "cast"]);
    assert_eq!(plan.index_dtype, DType::Int64);
    let Origin::Made(steps) = &plan.arrays[1].origin else { panic!("expected steps") };
    assert!(
        steps[0].sentence().contains(
            "stored as one array per axis, and Target needs them as one array with a row per element"
        )
    );
    assert_eq!(steps[1].sentence(), "Target stores these indices as int64, and they are int32");
    let plan =
        planned(&source(SparseFormat::Csr), structure(CANONICAL), &POINTS, &request("coo"), &mut inspection)
            .unwrap();
    assert_eq!(kinds(&plan, 1), ["expand", "arrange", "cast"]);
}

#[test]
fn index_types_hold_the_shape() {
    let chosen = |shape: &'static [i64], dtypes: &'static [DType], formats| {
        let x = SparseSource { shape, index_dtypes: dtypes, ..source(SparseFormat::Csr) };
        planned(&x, structure(CANONICAL), formats, &request("csr"), &mut FixedInspection::of(CANONICAL, 5))
            .map(|plan| plan.index_dtype)
    };
    let edge: &'static [i64] = &[i32::MAX as i64, 3];
    let beyond: &'static [i64] = &[1 << 31, 3];
    assert_eq!(chosen(edge, &[DType::Int32], &FREE), Ok(DType::Int32));
    assert_eq!(chosen(beyond, &[DType::Int32], &FREE), Ok(DType::Int64));
    assert_eq!(chosen(&[3, 3], &[DType::Int64], &FREE), Ok(DType::Int64));
    assert_eq!(chosen(&[3, 3], &[DType::Int32, DType::Int64], &FREE), Ok(DType::Int64));
    assert_eq!(chosen(&[3, 3], &[DType::UInt8], &FREE), Ok(DType::Int32));
    assert_eq!(chosen(&[3, 3], &[DType::Int64], &ROWS), Ok(DType::Int32));
    let error = chosen(beyond, &[DType::Int64], &ROWS).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedDType);
    assert!(error.fact().contains("(2147483648, 3) with 5 elements exceeds int32"));
}

#[test]
fn pointers_of_single_elements_hold_the_elements_of_all_blocks() {
    let x =
        SparseSource { shape: &[50_000, 50_000], block: Some([50_000, 50_000]), ..source(SparseFormat::Bsr) };
    let one = SparseStructure { count: 1, ..structure(CANONICAL) };
    let chosen = |format| {
        let plan = planned(&x, one, &FREE, &request(format), &mut FixedInspection::of(CANONICAL, 5)).unwrap();
        (plan.index_dtype, plan.count)
    };
    assert_eq!(chosen("csr"), (DType::Int64, Some(2_500_000_000)));
    assert_eq!(chosen("bsr"), (DType::Int32, Some(1)));
}

#[test]
fn blocks_must_divide_the_shape() {
    let blocks = |block: Option<[i64; 2]>, from| {
        let request = SparseRequest { format: Some("bsr"), block };
        planned(&source(from), structure(CANONICAL), &FREE, &request, &mut FixedInspection::of(CANONICAL, 5))
    };
    assert_eq!(blocks(Some([3, 4]), SparseFormat::Csr).unwrap().work, ElementWork::Blocks([3, 4]));
    assert_eq!(blocks(Some([2, 2]), SparseFormat::Bsr).unwrap().work, ElementWork::Keep);
    assert_eq!(blocks(Some([1, 2]), SparseFormat::Bsr).unwrap().work, ElementWork::Blocks([1, 2]));
    assert!(blocks(None, SparseFormat::Csr).unwrap_err().fact().contains("needs a block size"));
    assert!(
        blocks(Some([4, 4]), SparseFormat::Csr)
            .unwrap_err()
            .fact()
            .contains("(4, 4) do not divide the shape (6, 8)")
    );
    let wrong = SparseRequest { format: Some("csr"), block: Some([2, 2]) };
    assert!(
        choose(&source(SparseFormat::Csr), &target(&FREE, false), &wrong)
            .unwrap_err()
            .fact()
            .contains("no blocks")
    );
}

#[test]
fn batches_are_unchanged_or_rejected() {
    static BATCHED: [FormatCapabilities; 1] =
        [FormatCapabilities { batch_axes: true, ..strict(SparseFormat::Csr) }];
    let x = SparseSource { shape: &[2, 6, 8], batch_axes: 1, ..source(SparseFormat::Csr) };
    let plan =
        |order| planned(&x, structure(order), &BATCHED, &request("csr"), &mut FixedInspection::of(order, 5));
    assert_eq!(plan(CANONICAL).unwrap().work, ElementWork::Keep);
    assert!(plan(MIXED).unwrap_err().fact().contains("cannot be rearranged: it is strict"));
}

#[test]
fn strided_arrays_are_packed_where_they_must_be_dense() {
    let packed = |from, to, formats: &'static [FormatCapabilities]| {
        let (x, mut inspection) = (source(from), FixedInspection::of(CANONICAL, 20));
        let choice = choose(&x, &target(formats, false), &request(to)).unwrap();
        let mut plan = convert(&x, &structure(CANONICAL), &choice, &mut inspection).unwrap();
        plan.pack_strided::<Error>(&x, &choice.capabilities, |_, _| Ok(false)).unwrap();
        kinds(&plan, 0)
    };
    assert!(packed(SparseFormat::Csr, "csr", &FREE).is_empty());
    assert_eq!(packed(SparseFormat::Csr, "csr", &STRICT), ["pack"]);
    // A view of blocks as single elements needs dense memory.
    assert_eq!(packed(SparseFormat::Bsr, "coo", &FREE), ["pack"]);
    assert!(packed(SparseFormat::Bsr, "bsr", &FREE).is_empty());
}

#[test]
fn dense_tensors_are_filled_by_the_method_for_the_format() {
    let many = |count, order| SparseStructure { count, spare: 0, order };
    assert_eq!(fill_method(SparseFormat::Csc, 2, &many(9, MIXED)), FillMethod::Compressed);
    assert_eq!(fill_method(SparseFormat::Coo, 2, &many(9, MIXED)), FillMethod::Coordinates);
    assert_eq!(fill_method(SparseFormat::Coo, 2, &many(1 << 20, MIXED)), FillMethod::Grouped);
    assert_eq!(fill_method(SparseFormat::Coo, 2, &many(1 << 20, CANONICAL)), FillMethod::Coordinates);
    assert_eq!(fill_method(SparseFormat::Coo, 3, &many(1 << 20, MIXED)), FillMethod::Coordinates);
}

proptest! {
    /// The result always has the order that the target needs, and arrays that are not computed are those of the source.
    #[test]
    fn capabilities_are_respected(
        from in 0usize..4, to in 0usize..4, is_strict: bool, in_order: bool, unique: bool, grouped: bool, distinct in 1usize..=5,
    ) {
        let order = ElementOrder { in_order, unique: in_order && unique, grouped: in_order || grouped };
        let distinct = if order.unique { 5 } else { distinct };
        let formats = if is_strict { &STRICT } else { &FREE };
        let x = SparseSource { block: (from == 3).then_some([1, 1]), ..source(SparseFormat::ALL[from]) };
        let format = SparseFormat::ALL[to];
        let request = SparseRequest { format: Some(format.name()), block: (to == 3).then_some([1, 1]) };
        let plan = planned(&x, structure(order), formats, &request, &mut FixedInspection::of(order, distinct)).unwrap();
        prop_assert!(!is_strict || (plan.in_order && plan.unique));
        prop_assert!(!plan.unique || plan.in_order);
        if plan.work == ElementWork::Keep {
            prop_assert_eq!(x.format, format);
        }
        if let ElementWork::Elements { sort, sum } = plan.work {
            prop_assert!(sort || !sum);
            let is_given = plan.arrays[0].origin == Origin::Given;
            prop_assert_eq!(is_given, !sort);
        }
        for array in &plan.arrays {
            if let Origin::Made(steps) = &array.origin {
                prop_assert!(!steps.is_empty());
                prop_assert!(steps.iter().all(|step| !step.sentence().is_empty()));
            }
        }
    }
}

//! The loop nest of a copy: pure arithmetic on shapes and strides, without memory accesses.
//!
//! A [`LoopNest`] is normalised: dimensions of length one are dropped, the strides of the target are positive, its smallest
//! stride is innermost, and adjacent dimensions that are contiguous in both tensors are merged. A dense copy of any rank is
//! then a single loop. A nest can be divided into blocks for threads, and is traversed as [`Planes`] of two dimensions inside
//! outer loops. One dimension of a plane is the innermost of the target. The other is the one with the smallest stride of
//! the source, so that a transpose is visible within the plane.

use smallvec::SmallVec;

/// One loop: its length, and its strides in the source and in the target, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) n: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

impl Axis {
    /// A loop of one iteration.
    const SINGLE: Self = Self { n: 1, from: 0, to: 0 };
}

type Axes = SmallVec<[Axis; 8]>;

/// Loops, outermost first, and the offsets at which they start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoopNest {
    axes: Axes,
    from: isize,
    to: isize,
}

impl LoopNest {
    /// The nest over these axes, none of which has length zero.
    pub(super) fn new(axes: impl Iterator<Item = Axis>) -> Self {
        let mut nest = Self { axes: Axes::new(), from: 0, to: 0 };
        for mut axis in axes {
            if axis.n == 1 {
                continue;
            }
            if axis.to < 0 {
                let last = axis.n as isize - 1;
                nest.from += last * axis.from;
                nest.to += last * axis.to;
                // Wrapping, because `isize::MIN` has no negation; strides within an extent never have that value.
                axis.from = axis.from.wrapping_neg();
                axis.to = axis.to.wrapping_neg();
            }
            nest.axes.push(axis);
        }
        nest.axes.sort_by_key(|axis| std::cmp::Reverse((axis.to, axis.from.unsigned_abs())));
        nest.merge();
        nest
    }

    /// Merges adjacent loops that are contiguous in both tensors.
    fn merge(&mut self) {
        let mut merged = Axes::new();
        for &inner in &self.axes {
            if let Some(outer) = merged.last_mut() {
                let run = |step: isize| step.checked_mul(inner.n as isize);
                if run(inner.from) == Some(outer.from) && run(inner.to) == Some(outer.to) {
                    *outer = Axis { n: outer.n * inner.n, ..inner };
                    continue;
                }
            }
            merged.push(inner);
        }
        self.axes = merged;
    }

    /// The number of elements.
    pub(super) fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.n).product()
    }

    /// Divides the nest into at most `blocks` blocks of about the same size.
    ///
    /// The outermost loop that is long enough for equal blocks is divided, or else the longest. The innermost loop is divided
    /// at multiples of 64, so that two threads share at most one cache line. Long outer loops are too, so that the tiles of a
    /// transpose are complete.
    pub(super) fn partition(&self, blocks: usize) -> Partition {
        let even = self.axes.iter().position(|axis| axis.n >= blocks.saturating_mul(8));
        let longest = || (0..self.axes.len()).max_by_key(|&i| self.axes[i].n);
        let Some(axis) = even.or_else(longest).filter(|_| blocks > 1) else {
            return Partition { axis: 0, blocks: 1, granularity: 1 };
        };
        // In a transpose, each block reads contiguous runs of the source.
        let last = self.axes.len() - 1;
        let far = |axis: usize| self.axes[axis].from.unsigned_abs();
        let axis = if far(last) > far(axis) && self.axes[last].n / 64 >= blocks { last } else { axis };
        let n = self.axes[axis].n;
        let is_innermost = axis + 1 == self.axes.len();
        let granularity = if is_innermost || n / 64 >= blocks { 64 } else { 1 };
        Partition { axis, blocks, granularity }
    }

    /// One block of the nest; `None` if it is empty. Blocks are disjoint and together cover the nest.
    pub(super) fn block(&self, partition: Partition, index: usize) -> Option<Self> {
        let Partition { axis, blocks, granularity } = partition;
        let mut nest = self.clone();
        let Some(axis) = nest.axes.get_mut(axis).filter(|_| blocks > 1) else { return Some(nest) };
        let n = axis.n;
        let bound = |index: usize| {
            // In 128 bits, because `n * index` may overflow 64.
            let even = (n as u128 * index as u128 / blocks as u128) as usize;
            if index == blocks { n } else { even - even % granularity }
        };
        let (start, end) = (bound(index), bound(index + 1));
        nest.from += start as isize * axis.from;
        nest.to += start as isize * axis.to;
        axis.n = end - start;
        (start < end).then_some(nest)
    }

    /// The nest as planes inside outer loops.
    pub(super) fn planes(&self) -> Planes {
        let mut outer = self.axes.clone();
        let cols = outer.pop().unwrap_or(Axis::SINGLE);
        let closer = (0..outer.len())
            .filter(|&i| outer[i].from != 0 && outer[i].from.unsigned_abs() < cols.from.unsigned_abs())
            .min_by_key(|&i| outer[i].from.unsigned_abs());
        let rows = match closer {
            Some(i) => outer.remove(i),
            None => outer.pop().unwrap_or(Axis::SINGLE),
        };
        Planes { outer, plane: Plane { rows, cols }, from: self.from, to: self.to }
    }
}

/// A division of a nest: the divided loop, the number of blocks, and the unit of their bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Partition {
    axis: usize,
    pub(super) blocks: usize,
    granularity: usize,
}

/// Two loops, the inner one along the smallest stride of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plane {
    pub(super) rows: Axis,
    pub(super) cols: Axis,
}

impl Plane {
    /// The number of elements.
    pub(super) fn count(&self) -> usize {
        self.rows.n * self.cols.n
    }

    /// Whether the source has a smaller stride down the rows than along them.
    pub(super) fn is_transposed(&self) -> bool {
        self.rows.n > 1
            && self.rows.from != 0
            && self.rows.from.unsigned_abs() < self.cols.from.unsigned_abs()
    }

    /// The same plane with a dense target, such as a buffer.
    pub(super) fn with_dense_target(mut self, item: usize) -> Self {
        self.cols.to = item as isize;
        self.rows.to = (item * self.cols.n) as isize;
        self
    }

    /// The same plane with a dense source.
    pub(super) fn with_dense_source(mut self, item: usize) -> Self {
        self.cols.from = item as isize;
        self.rows.from = (item * self.cols.n) as isize;
        self
    }
}

/// A plane for each iteration of the outer loops.
#[derive(Clone, Debug)]
pub(super) struct Planes {
    outer: Axes,
    pub(super) plane: Plane,
    from: isize,
    to: isize,
}

impl Planes {
    /// The offsets of the planes in source and target, in bytes from the data pointers.
    pub(super) fn offsets(&self) -> PlaneOffsets<'_> {
        let remaining = self.outer.iter().map(|axis| axis.n).product();
        PlaneOffsets {
            outer: &self.outer,
            indices: SmallVec::from_elem(0, self.outer.len()),
            from: self.from,
            to: self.to,
            remaining,
        }
    }

    /// Whether the planes traverse the source contiguously, row by row.
    pub(super) fn is_source_dense(&self, item: usize) -> bool {
        self.is_dense(item, |axis| axis.from)
    }

    /// Whether the planes traverse the target contiguously.
    pub(super) fn is_target_dense(&self, item: usize) -> bool {
        self.is_dense(item, |axis| axis.to)
    }

    fn is_dense(&self, item: usize, step: impl Fn(&Axis) -> isize) -> bool {
        let mut run = item as isize;
        [&self.plane.cols, &self.plane.rows].into_iter().chain(self.outer.iter().rev()).all(|axis| {
            let fits = axis.n == 1 || step(axis) == run;
            run = run.saturating_mul(axis.n as isize);
            fits
        })
    }
}

/// The iterator of [`Planes::offsets`]. A clone is cheap and continues from the same plane.
#[derive(Clone, Debug)]
pub(super) struct PlaneOffsets<'a> {
    outer: &'a [Axis],
    indices: SmallVec<[usize; 8]>,
    from: isize,
    to: isize,
    remaining: usize,
}

impl Iterator for PlaneOffsets<'_> {
    type Item = (isize, isize);

    fn next(&mut self) -> Option<(isize, isize)> {
        self.remaining = self.remaining.checked_sub(1)?;
        let offsets = (self.from, self.to);
        for (axis, index) in self.outer.iter().zip(&mut self.indices).rev() {
            *index += 1;
            if *index < axis.n {
                self.from += axis.from;
                self.to += axis.to;
                break;
            }
            // This loop is complete: return to its start, and advance the next outer loop.
            *index = 0;
            let back = axis.n as isize - 1;
            self.from -= back * axis.from;
            self.to -= back * axis.to;
        }
        Some(offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn axes(list: &[(usize, isize, isize)]) -> Vec<Axis> {
        list.iter().map(|&(n, from, to)| Axis { n, from, to }).collect()
    }

    fn nest(list: &[(usize, isize, isize)]) -> LoopNest {
        LoopNest::new(axes(list).into_iter())
    }

    /// Every pair of offsets that the loops reach, sorted.
    fn offsets(axes: &[Axis]) -> Vec<(isize, isize)> {
        let mut all = vec![(0, 0)];
        for axis in axes {
            all = all
                .iter()
                .flat_map(|&(f, t)| (0..axis.n as isize).map(move |i| (f + i * axis.from, t + i * axis.to)))
                .collect();
        }
        all.sort_unstable();
        all
    }

    fn split(nest: &LoopNest, blocks: usize) -> Vec<LoopNest> {
        let partition = nest.partition(blocks);
        (0..partition.blocks).filter_map(|index| nest.block(partition, index)).collect()
    }

    fn visited(nest: &LoopNest) -> Vec<(isize, isize)> {
        let planes = nest.planes();
        let Plane { rows, cols } = planes.plane;
        planes
            .offsets()
            .flat_map(|(f, t)| {
                offsets(&[rows, cols])
                    .into_iter()
                    .map(move |(from, to)| (f + from, t + to))
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn a_dense_copy_is_one_loop() {
        let dense = nest(&[(2, 48, 48), (3, 16, 16), (1, 7, -9), (4, 4, 4)]);
        assert_eq!(dense.axes.as_slice(), axes(&[(24, 4, 4)]));
        // Any order that is the same in both.
        assert_eq!(nest(&[(4, 4, 4), (3, 16, 16), (2, 48, 48)]), dense);
        let planes = dense.planes();
        assert!(planes.is_source_dense(4) && planes.is_target_dense(4) && !planes.is_target_dense(8));
    }

    #[test]
    fn negative_strides_in_both_become_positive() {
        let nest = nest(&[(5, -4, -4)]);
        assert_eq!(nest.axes.as_slice(), axes(&[(5, 4, 4)]));
        assert_eq!((nest.from, nest.to), (-16, -16));
    }

    #[test]
    fn a_transpose_shows_in_its_plane() {
        // (n, h, w, c) to (n, c, h, w): height and width are contiguous in both, channels are contiguous in the source.
        let planes = nest(&[(10, 2400, 2400), (20, 120, 40), (10, 12, 4), (3, 4, 800)]).planes();
        assert_eq!(planes.plane.cols, Axis { n: 200, from: 12, to: 4 });
        assert_eq!(planes.plane.rows, Axis { n: 3, from: 4, to: 800 });
        assert!(planes.plane.is_transposed() && !planes.is_source_dense(4) && planes.is_target_dense(4));
        assert_eq!(planes.offsets().count(), 10);
    }

    #[test]
    fn a_scalar_is_one_element() {
        let nest = nest(&[]);
        assert_eq!((nest.count(), split(&nest, 4).len()), (1, 1));
        assert_eq!(visited(&nest), [(0, 0)]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let nest = nest(&[(2, isize::MAX, isize::MAX), (2, isize::MIN + 1, 1)]);
        assert_eq!(nest.count(), 4);
        let long = LoopNest::new([Axis { n: isize::MAX as usize, from: 0, to: 1 }].into_iter());
        let blocks = split(&long, 1000);
        assert_eq!(blocks.iter().map(LoopNest::count).sum::<usize>(), isize::MAX as usize);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn every_element_is_visited_once(
            list in proptest::collection::vec((1usize..5, -40isize..40, -40isize..40), 0..6),
            blocks in 1usize..6,
        ) {
            let expected = offsets(&axes(&list));
            let whole = nest(&list);
            prop_assert_eq!(whole.count(), expected.len());
            let mut seen = visited(&whole);
            seen.sort_unstable();
            prop_assert_eq!(&seen, &expected);
            let split = split(&whole, blocks);
            prop_assert!(split.len() <= blocks);
            let mut seen: Vec<_> = split.iter().flat_map(visited).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, expected);
        }

        #[test]
        fn dense_means_consecutive(dims in proptest::collection::vec(1usize..5, 0..5), gap in 0isize..3) {
            let mut list = Vec::new();
            let mut step = 4;
            for (i, &n) in dims.iter().enumerate().rev() {
                list.insert(0, (n, step, step * 3));
                step = step * n as isize + if i == 1 { gap } else { 0 };
            }
            let nest = nest(&list);
            let mut all_offsets = visited(&nest).into_iter().enumerate();
            let consecutive = all_offsets.all(|(i, offsets)| offsets.0 - nest.from == 4 * i as isize);
            prop_assert_eq!(nest.planes().is_source_dense(4), consecutive);
        }

        #[test]
        fn long_loops_are_divided_at_cache_lines(n in 1usize..100_000, blocks in 1usize..20) {
            let whole = nest(&[(n, 1, 1)]);
            let split = split(&whole, blocks);
            prop_assert!(split.iter().all(|block| block.to % 64 == 0 && block.to == block.from));
            prop_assert_eq!(split.iter().map(LoopNest::count).sum::<usize>(), n);
        }
    }
}

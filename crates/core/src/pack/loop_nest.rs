//! The order in which a copy visits its elements: pure arithmetic on shapes and strides, no memory.
//!
//! A [`Nest`] is the loop nest of a copy after everything that does not matter is gone: dimensions of one are
//! dropped, the target is walked upwards, its smallest step is innermost, and neighbours that run on in both
//! tensors are one dimension. A dense copy of any rank is then one loop. A nest can be cut into parts for
//! threads, and is walked as a [`Sweep`]: planes of two dimensions, inside outer loops. One of the two is the
//! target's innermost; the other is the one along which the source is closest together where that is a
//! different one, so that whoever handles a plane sees a transpose as what it is.

use smallvec::SmallVec;

/// One loop: how often, and how far each turn moves in the source and in the target, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) n: usize,
    pub(super) from: isize,
    pub(super) to: isize,
}

impl Axis {
    /// A loop that runs once.
    const ONCE: Self = Self { n: 1, from: 0, to: 0 };
}

type Axes = SmallVec<[Axis; 8]>;

/// Loops, outermost first, and where they start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nest {
    axes: Axes,
    from: isize,
    to: isize,
}

impl Nest {
    /// The nest over `shape` with these strides; the three are equally long and no dimension is zero.
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
                // Within a layout's extent, which fits; the lowest number there is would not.
                axis.from = axis.from.wrapping_neg();
                axis.to = axis.to.wrapping_neg();
            }
            nest.axes.push(axis);
        }
        nest.axes.sort_by_key(|axis| std::cmp::Reverse((axis.to, axis.from.unsigned_abs())));
        nest.merge();
        nest
    }

    /// Makes one loop of neighbours that run on in both tensors.
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

    /// How many elements there are.
    pub(super) fn count(&self) -> usize {
        self.axes.iter().map(|axis| axis.n).product()
    }

    /// Where to cut the nest into at most `parts` parts of about the same size.
    ///
    /// It is cut along the outermost loop that is long enough to come out even, or else along the longest. A
    /// cut through the innermost loop falls on a multiple of 64, so that two threads do not write the same
    /// cache line more than once; one through a long outer loop does too, so that the blocks of a transpose
    /// are whole.
    pub(super) fn cuts(&self, parts: usize) -> Cuts {
        let even = self.axes.iter().position(|axis| axis.n >= parts.saturating_mul(8));
        let longest = || (0..self.axes.len()).max_by_key(|&i| self.axes[i].n);
        let Some(axis) = even.or_else(longest).filter(|_| parts > 1) else {
            return Cuts { axis: 0, parts: 1, grain: 1 };
        };
        // In a transpose, so that each part reads lines of the source from end to end.
        let last = self.axes.len() - 1;
        let far = |axis: usize| self.axes[axis].from.unsigned_abs();
        let axis = if far(last) > far(axis) && self.axes[last].n / 64 >= parts { last } else { axis };
        let n = self.axes[axis].n;
        let innermost = axis + 1 == self.axes.len();
        let grain = if innermost || n / 64 >= parts { 64 } else { 1 };
        Cuts { axis, parts, grain }
    }

    /// One part of the nest; parts have no element in common, and none is missing from all of them. `None`
    /// where a part is empty.
    pub(super) fn part(&self, cuts: Cuts, part: usize) -> Option<Self> {
        let Cuts { axis, parts, grain } = cuts;
        let mut nest = self.clone();
        let Some(axis) = nest.axes.get_mut(axis).filter(|_| parts > 1) else { return Some(nest) };
        let n = axis.n;
        let bound = |part: usize| {
            // `n * part` in 128 bits: a long axis and many threads do not fit in 64.
            let even = (n as u128 * part as u128 / parts as u128) as usize;
            if part == parts { n } else { even - even % grain }
        };
        let (start, end) = (bound(part), bound(part + 1));
        nest.from += start as isize * axis.from;
        nest.to += start as isize * axis.to;
        axis.n = end - start;
        (start < end).then_some(nest)
    }

    /// The nest as planes.
    pub(super) fn sweep(&self) -> Sweep {
        let mut outer = self.axes.clone();
        let cols = outer.pop().unwrap_or(Axis::ONCE);
        let closer = (0..outer.len())
            .filter(|&i| outer[i].from != 0 && outer[i].from.unsigned_abs() < cols.from.unsigned_abs())
            .min_by_key(|&i| outer[i].from.unsigned_abs());
        let rows = match closer {
            Some(i) => outer.remove(i),
            None => outer.pop().unwrap_or(Axis::ONCE),
        };
        Sweep { outer, plane: Plane { rows, cols }, from: self.from, to: self.to }
    }
}

/// How a nest is cut: along which loop, into how many parts, at multiples of what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cuts {
    axis: usize,
    pub(super) parts: usize,
    grain: usize,
}

/// Two loops, the inner one along the target's smallest step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plane {
    pub(super) rows: Axis,
    pub(super) cols: Axis,
}

impl Plane {
    /// How many elements there are.
    pub(super) fn count(&self) -> usize {
        self.rows.n * self.cols.n
    }

    /// Whether the source is closer together down the rows than along them.
    pub(super) fn is_transposed(&self) -> bool {
        self.rows.n > 1
            && self.rows.from != 0
            && self.rows.from.unsigned_abs() < self.cols.from.unsigned_abs()
    }

    /// The same plane with a dense target, as a buffer is.
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

/// A plane at every turn of the outer loops.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    outer: Axes,
    pub(super) plane: Plane,
    from: isize,
    to: isize,
}

impl Sweep {
    /// Where each plane starts, in bytes from the data pointers.
    pub(super) fn starts(&self) -> Starts<'_> {
        let left = self.outer.iter().map(|axis| axis.n).product();
        Starts {
            outer: &self.outer,
            turns: SmallVec::from_elem(0, self.outer.len()),
            from: self.from,
            to: self.to,
            left,
        }
    }

    /// Whether visiting the planes one after the other, row by row, goes through the source without a gap.
    pub(super) fn is_dense_from(&self, item: usize) -> bool {
        self.is_dense(item, |axis| axis.from)
    }

    /// Whether it goes through the target without a gap.
    pub(super) fn is_dense_to(&self, item: usize) -> bool {
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

/// The places that [`Sweep::starts`] goes through; the state is small, so a clone remembers a place.
#[derive(Clone, Debug)]
pub(super) struct Starts<'a> {
    outer: &'a [Axis],
    turns: SmallVec<[usize; 8]>,
    from: isize,
    to: isize,
    left: usize,
}

impl Iterator for Starts<'_> {
    type Item = (isize, isize);

    fn next(&mut self) -> Option<(isize, isize)> {
        self.left = self.left.checked_sub(1)?;
        let place = (self.from, self.to);
        for (axis, turn) in self.outer.iter().zip(&mut self.turns).rev() {
            *turn += 1;
            if *turn < axis.n {
                self.from += axis.from;
                self.to += axis.to;
                break;
            }
            // The last turn is over: back to the start of this loop, and one step of the next.
            *turn = 0;
            let back = axis.n as isize - 1;
            self.from -= back * axis.from;
            self.to -= back * axis.to;
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn axes(list: &[(usize, isize, isize)]) -> Vec<Axis> {
        list.iter().map(|&(n, from, to)| Axis { n, from, to }).collect()
    }

    fn nest(list: &[(usize, isize, isize)]) -> Nest {
        Nest::new(axes(list).into_iter())
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

    fn split(nest: &Nest, parts: usize) -> Vec<Nest> {
        let cuts = nest.cuts(parts);
        (0..cuts.parts).filter_map(|part| nest.part(cuts, part)).collect()
    }

    fn visited(nest: &Nest) -> Vec<(isize, isize)> {
        let sweep = nest.sweep();
        let Plane { rows, cols } = sweep.plane;
        sweep
            .starts()
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
        // The same order in both, whatever it is.
        assert_eq!(nest(&[(4, 4, 4), (3, 16, 16), (2, 48, 48)]), dense);
        let sweep = dense.sweep();
        assert!(sweep.is_dense_from(4) && sweep.is_dense_to(4) && !sweep.is_dense_to(8));
    }

    #[test]
    fn both_backwards_is_forwards() {
        let nest = nest(&[(5, -4, -4)]);
        assert_eq!(nest.axes.as_slice(), axes(&[(5, 4, 4)]));
        assert_eq!((nest.from, nest.to), (-16, -16));
    }

    #[test]
    fn a_transpose_shows_in_its_plane() {
        // (n, h, w, c) to (n, c, h, w): height and width run on in both, channels are close together in the
        // source.
        let sweep = nest(&[(10, 2400, 2400), (20, 120, 40), (10, 12, 4), (3, 4, 800)]).sweep();
        assert_eq!(sweep.plane.cols, Axis { n: 200, from: 12, to: 4 });
        assert_eq!(sweep.plane.rows, Axis { n: 3, from: 4, to: 800 });
        assert!(sweep.plane.is_transposed() && !sweep.is_dense_from(4) && sweep.is_dense_to(4));
        assert_eq!(sweep.starts().count(), 10);
    }

    #[test]
    fn no_dimensions_is_one_element() {
        let nest = nest(&[]);
        assert_eq!((nest.count(), split(&nest, 4).len()), (1, 1));
        assert_eq!(visited(&nest), [(0, 0)]);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let nest = nest(&[(2, isize::MAX, isize::MAX), (2, isize::MIN + 1, 1)]);
        assert_eq!(nest.count(), 4);
        let long = Nest::new([Axis { n: isize::MAX as usize, from: 0, to: 1 }].into_iter());
        let parts = split(&long, 1000);
        assert_eq!(parts.iter().map(Nest::count).sum::<usize>(), isize::MAX as usize);
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 }, failure_persistence: None, ..ProptestConfig::default()
        })]

        #[test]
        fn every_element_is_visited_once(
            list in proptest::collection::vec((1usize..5, -40isize..40, -40isize..40), 0..6),
            parts in 1usize..6,
        ) {
            let expected = offsets(&axes(&list));
            let whole = nest(&list);
            prop_assert_eq!(whole.count(), expected.len());
            let mut seen = visited(&whole);
            seen.sort_unstable();
            prop_assert_eq!(&seen, &expected);
            let split = split(&whole, parts);
            prop_assert!(split.len() <= parts);
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
            let mut places = visited(&nest).into_iter().enumerate();
            let consecutive = places.all(|(i, place)| place.0 - nest.from == 4 * i as isize);
            prop_assert_eq!(nest.sweep().is_dense_from(4), consecutive);
        }

        #[test]
        fn long_loops_are_cut_at_lines(n in 1usize..100_000, parts in 1usize..20) {
            let whole = nest(&[(n, 1, 1)]);
            let split = split(&whole, parts);
            prop_assert!(split.iter().all(|part| part.to % 64 == 0 && part.to == part.from));
            prop_assert_eq!(split.iter().map(Nest::count).sum::<usize>(), n);
        }
    }
}

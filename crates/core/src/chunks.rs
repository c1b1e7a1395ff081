//! A tensor in pieces of about the same size, each of which is one run of the dense tensor that it becomes.
//!
//! Transfers go piece by piece: while one is on its way, the next is packed. A piece is a range of one loop of the
//! tensor, for one index of the loops around it and all of those within.

use crate::error::Result;
use crate::layout::Layout;
use smallvec::SmallVec;

/// How a tensor is cut.
#[derive(Clone, Debug)]
pub struct Chunks {
    item: usize,
    runs: SmallVec<[(i64, i64); 8]>,
    /// The loop that is cut, and how many of its steps are a piece.
    axis: usize,
    steps: i64,
    /// Elements in one step of that loop.
    within: i64,
    /// Pieces of that loop, and how often it is run through.
    each: i64,
    times: i64,
}

/// One piece.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Bytes from the tensor's first element to the piece's.
    pub offset: i64,
    /// Its layout, with the tensor's strides.
    pub layout: Layout,
    /// Elements of the tensor before it.
    pub first: usize,
}

impl Chunks {
    /// Cuts a tensor into pieces of at most so many elements, and at least one.
    pub fn new(layout: &Layout, elements: usize) -> Self {
        let mut runs = layout.runs();
        if runs.is_empty() {
            runs.push((1, layout.item() as i64));
        }
        let most = i64::try_from(elements).unwrap_or(i64::MAX).max(1);
        let inner = |axis: usize| runs[axis + 1..].iter().map(|run| run.0).product::<i64>();
        // The outermost loop of which a single step is small enough; the last one's always is.
        let axis = (0..runs.len()).find(|&axis| inner(axis) <= most).unwrap_or(runs.len() - 1);
        let within = inner(axis).max(1);
        let steps = (most / within).max(1);
        let each = if layout.is_empty() { 0 } else { (runs[axis].0 as u64).div_ceil(steps as u64) as i64 };
        // All about the same, rather than full ones and a small rest.
        let steps = if each == 0 { steps } else { (runs[axis].0 as u64).div_ceil(each as u64) as i64 };
        let times = runs[..axis].iter().map(|run| run.0).product();
        Self { item: layout.item(), axis, steps, within, each, times, runs }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        (self.each * self.times) as usize
    }

    /// Elements of the tensor before the piece of this number, and in it.
    pub fn span(&self, number: usize) -> (usize, usize) {
        let number = number as i64;
        let each = self.each.max(1);
        let length = self.runs[self.axis].0;
        let start = number % each * self.steps;
        let first = (number / each * length + start) * self.within;
        (first as usize, (self.steps.min(length - start) * self.within) as usize)
    }

    /// The piece of this number; they follow each other as in the dense tensor.
    ///
    /// # Errors
    /// None for a layout that was made by a constructor.
    pub fn get(&self, number: usize) -> Result<Chunk> {
        let number = number as i64;
        let each = self.each.max(1);
        let (mut time, part) = (number / each, number % each);
        let (length, stride) = self.runs[self.axis];
        let start = part * self.steps;
        let steps = self.steps.min(length - start);
        let first = (time * length + start) * self.within;
        let mut offset = start * stride;
        for &(length, stride) in self.runs[..self.axis].iter().rev() {
            offset += time % length * stride;
            time /= length;
        }
        let rest = &self.runs[self.axis + 1..];
        let shape: SmallVec<[i64; 8]> = [steps].into_iter().chain(rest.iter().map(|run| run.0)).collect();
        let strides: SmallVec<[i64; 8]> = [stride].into_iter().chain(rest.iter().map(|run| run.1)).collect();
        Ok(Chunk { offset, layout: Layout::strided(self.item, &shape, &strides)?, first: first as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every offset of a layout, in row-major order.
    fn offsets(layout: &Layout) -> Vec<i64> {
        let mut found = vec![0];
        for (length, stride) in layout.shape().iter().zip(layout.strides()) {
            found = found.iter().flat_map(|start| (0..*length).map(move |i| start + i * stride)).collect();
        }
        found
    }

    #[test]
    fn pieces_are_the_tensor_in_order() {
        let layouts = [
            Layout::dense(4, &[1000]).unwrap(),
            Layout::dense(4, &[7, 11, 13]).unwrap(),
            Layout::strided(4, &[7, 11, 13], &[4, 28, 308]).unwrap(),
            Layout::strided(2, &[5, 3, 4], &[-24, 8, 2]).unwrap(),
            Layout::strided(8, &[6, 5], &[0, 8]).unwrap(),
            Layout::strided(8, &[], &[]).unwrap(),
            Layout::strided(4, &[3, 0, 2], &[0, 8, 4]).unwrap(),
            Layout::strided(4, &[1, 1], &[99, 99]).unwrap(),
        ];
        for layout in &layouts {
            for most in [1, 2, 3, 10, 100, 143, 144, 100_000, usize::MAX] {
                let pieces = Chunks::new(layout, most);
                let mut found = Vec::new();
                for number in 0..pieces.count() {
                    let piece = pieces.get(number).unwrap();
                    assert_eq!(pieces.span(number), (piece.first, piece.layout.count()));
                    assert_eq!(piece.first, found.len(), "{layout:?} {most}");
                    assert!(piece.layout.count() <= most && piece.layout.count() > 0);
                    found.extend(offsets(&piece.layout).iter().map(|offset| piece.offset + offset));
                }
                assert_eq!(found, offsets(layout), "{layout:?} {most}");
            }
        }
    }

    #[test]
    fn pieces_are_not_much_smaller_than_asked_for() {
        let layout = Layout::strided(4, &[1000, 300, 700], &[4, 4_000, 1_200_000]).unwrap();
        let pieces = Chunks::new(&layout, 500_000);
        // Two steps of 210,000 elements each.
        assert_eq!((pieces.count(), pieces.get(0).unwrap().layout.count()), (500, 420_000));
    }
}

//! Divides a tensor into chunks of about the same size, each of which is a contiguous run of the dense result.
//!
//! A transfer packs the next chunk while it copies the previous one. A chunk is a range of one loop of the tensor, for one
//! index of the outer loops and all indices of the inner ones.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use smallvec::SmallVec;

/// The division of a tensor into chunks.
#[derive(Clone, Debug)]
pub struct Chunks {
    item: usize,
    runs: SmallVec<[(i64, i64); 8]>,
    /// The loop that is divided.
    axis: usize,
    /// The steps of that loop in a chunk.
    steps: i64,
    /// The elements in one step of that loop.
    step_elements: i64,
    /// The chunks in one run of that loop.
    chunks_per_loop: i64,
    /// The number of runs of that loop.
    loops: i64,
}

/// One chunk of a tensor.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The offset of its first element from that of the tensor, in bytes.
    pub offset: i64,
    /// Its layout, with the strides of the tensor.
    pub layout: Layout,
    /// The number of elements of the tensor before it.
    pub first: usize,
}

impl Chunks {
    /// Divides a tensor into chunks of at most `max_elements` elements, and at least one.
    pub fn new(layout: &Layout, max_elements: usize) -> Self {
        let mut runs = layout.runs();
        if runs.is_empty() {
            runs.push((1, layout.item() as i64));
        }
        let max_elements = i64::try_from(max_elements).unwrap_or(i64::MAX).max(1);
        let inner = |axis: usize| runs[axis + 1..].iter().map(|run| run.0).product::<i64>();
        // The outermost loop of which a single step is small enough. A step of the innermost loop is one element.
        let axis = (0..runs.len()).find(|&axis| inner(axis) <= max_elements).unwrap_or(runs.len() - 1);
        let step_elements = inner(axis).max(1);
        let steps = (max_elements / step_elements).max(1);
        let chunks_per_loop =
            if layout.is_empty() { 0 } else { (runs[axis].0 as u64).div_ceil(steps as u64) as i64 };
        // Chunks of about equal size instead of full ones and a small rest.
        let steps = if chunks_per_loop == 0 {
            steps
        } else {
            (runs[axis].0 as u64).div_ceil(chunks_per_loop as u64) as i64
        };
        let loops = runs[..axis].iter().map(|run| run.0).product();
        Self { item: layout.item(), axis, steps, step_elements, chunks_per_loop, loops, runs }
    }

    /// The number of chunks.
    pub fn count(&self) -> usize {
        (self.chunks_per_loop * self.loops) as usize
    }

    /// The number of elements before the chunk of this number, and in it.
    pub fn span(&self, number: usize) -> (usize, usize) {
        let number = number as i64;
        let per_loop = self.chunks_per_loop.max(1);
        let length = self.runs[self.axis].0;
        let start = number % per_loop * self.steps;
        let first = (number / per_loop * length + start) * self.step_elements;
        (first as usize, (self.steps.min(length - start) * self.step_elements) as usize)
    }

    /// The chunk of this number, in the order of the dense tensor.
    ///
    /// # Errors
    /// The number is not below the count of chunks.
    pub fn get(&self, number: usize) -> Result<Chunk> {
        if number >= self.count() {
            let fact = format!("a tensor of {} chunks has no chunk {number}", self.count());
            return Err(Error::new(ErrorKind::InvalidArgument, fact));
        }
        let number = number as i64;
        let per_loop = self.chunks_per_loop.max(1);
        let (mut run, chunk) = (number / per_loop, number % per_loop);
        let (length, stride) = self.runs[self.axis];
        let start = chunk * self.steps;
        let steps = self.steps.min(length - start);
        let first = (run * length + start) * self.step_elements;
        let mut offset = start * stride;
        for &(length, stride) in self.runs[..self.axis].iter().rev() {
            offset += run % length * stride;
            run /= length;
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
    fn chunks_cover_the_tensor_in_order() {
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
            for max_elements in [1, 2, 3, 10, 100, 143, 144, 100_000, usize::MAX] {
                let chunks = Chunks::new(layout, max_elements);
                let mut found = Vec::new();
                for number in 0..chunks.count() {
                    let chunk = chunks.get(number).unwrap();
                    assert_eq!(chunks.span(number), (chunk.first, chunk.layout.count()));
                    assert_eq!(chunk.first, found.len(), "{layout:?} {max_elements}");
                    assert!(chunk.layout.count() <= max_elements && chunk.layout.count() > 0);
                    found.extend(offsets(&chunk.layout).iter().map(|offset| chunk.offset + offset));
                }
                assert_eq!(found, offsets(layout), "{layout:?} {max_elements}");
                for number in [chunks.count(), usize::MAX] {
                    assert!(chunks.get(number).is_err(), "{layout:?} {max_elements} {number}");
                }
            }
        }
    }

    #[test]
    fn chunks_are_not_much_smaller_than_the_limit() {
        let layout = Layout::strided(4, &[1000, 300, 700], &[4, 4_000, 1_200_000]).unwrap();
        let chunks = Chunks::new(&layout, 500_000);
        // Two steps of 210,000 elements each.
        assert_eq!((chunks.count(), chunks.get(0).unwrap().layout.count()), (500, 420_000));
    }
}

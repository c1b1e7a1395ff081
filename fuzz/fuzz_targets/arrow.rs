//! Arbitrary schemas and arrays of Arrow. What is accepted is read by every method, and everything is released once.
#![no_main]

use tensorferry_arrow::{
    Array, Column, Field, Owned, PaddedLists, count_nulls, dense_lists, list_elements, write_offsets,
    write_validity, write_values,
};
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::CopyDestination;
use tensorferry_core::{DType, Layout};
use tensorferry_fuzz::arrow_structs::{Decisions, Node, Releases};

/// The limit of bytes of a tensor that is written.
const MAX_BYTES: usize = 1 << 20;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut decisions = Decisions(bytes);
    let cut = decisions.below(41);
    let node = Node::new(&mut decisions);
    let (schema_releases, array_releases) = (Releases::default(), Releases::default());
    let (mut schema, mut array) = (node.schema(&schema_releases), node.array(&array_releases));
    // SAFETY: both structs are new, nothing else uses them, and what they declare exists (`arrow_structs`).
    unsafe {
        let schema = Owned::take(&raw mut schema).expect("it is not released");
        let array = Owned::take(&raw mut array).expect("it is not released");
        if let Ok(field) = Field::from_schema(&schema)
            && let Ok(array) = Array::new(array, &field)
        {
            read(&field, &array, cut);
        }
    }
    assert_eq!((schema_releases.get(), array_releases.get()), (1, 1));
});

/// Reads a column, or the columns of a table, by every method.
fn read(field: &Field, array: &Array, cut: usize) {
    let chunks = [array.slice(0, cut), array.slice(cut, array.len())];
    assert_eq!(chunks[0].len() + chunks[1].len(), array.len());
    if let Column::Structs(fields) = &field.column {
        assert_eq!(fields.len(), array.columns().len());
        for (field, column) in fields.iter().zip(array.columns()) {
            assert_eq!(column.len(), array.len());
            read(field, column, cut);
        }
        return;
    }
    if let Column::Lists { child, .. } = &field.column {
        read_lists(child, array, &chunks, cut);
    }
    let _ = array.as_tensor();
    if let Ok((dense, one)) = dense_lists(field, vec![array.clone()])
        && let Ok((other, two)) = dense_lists(field, chunks.to_vec())
        && dense == other
        && let Some(dtype) = dense.dtype()
    {
        // A code of a dictionary that does not exist is an error of all.
        let whole = values(&dense, &one, dtype);
        assert_eq!(whole, values(&dense, &two, dtype));
        assert_eq!(count_nulls(&one).ok(), count_nulls(&two).ok());
    }
}

fn read_lists(child: &Field, array: &Array, chunks: &[Array], cut: usize) {
    let Ok(elements) = list_elements(std::slice::from_ref(array)) else { return };
    let mut offsets = vec![0i64; array.len() + 1];
    let mut of_chunks = offsets.clone();
    write_offsets(std::slice::from_ref(array), &mut offsets).expect("a place for each");
    write_offsets(chunks, &mut of_chunks).expect("a place for each");
    assert_eq!(offsets, of_chunks);
    assert_eq!(offsets[0], 0);
    assert!(offsets.is_sorted());
    assert_eq!(offsets.last(), Some(&(elements[0].len() as i64)));
    read(child, &elements[0], cut);
    let field = Field {
        name: String::new(),
        column: Column::Lists { child: Box::new(child.clone()), is_large: false },
    };
    let Ok(Some((lists, elements_field, elements))) = PaddedLists::new(&field, std::slice::from_ref(array))
    else {
        return;
    };
    let (Some(dtype), shape) = (elements_field.dtype(), lists.shape()) else { return };
    let Some((flat, _)) = values(&elements_field, &elements, dtype) else { return };
    let Ok(element) = Layout::dense(dtype.size(), &elements_field.row_shape()) else { return };
    let Ok(layout) = Layout::dense(element.bytes(), &shape) else { return };
    if layout.bytes() > MAX_BYTES {
        return;
    }
    let mut out = vec![0u8; layout.bytes()];
    let pad = vec![7u8; dtype.size()];
    // SAFETY: `flat` has the elements of all lists, and `out` is as large as the tensor.
    unsafe { lists.write(flat.as_ptr(), element.bytes(), &pad, out.as_mut_ptr(), 1) }.expect("memory");
}

/// The values of chunks, with zeros for nulls, and their mask; `None` for a tensor that is too large, or that is refused.
fn values(field: &Field, chunks: &[Array], dtype: DType) -> Option<(Vec<u8>, Vec<u8>)> {
    let rows: usize = chunks.iter().map(Array::len).sum();
    let shape = [vec![rows as i64], field.row_shape()].concat();
    let layout = Layout::dense(dtype.size(), &shape).ok().filter(|layout| layout.bytes() <= MAX_BYTES)?;
    let block = HostBlock::new(layout.bytes()).expect("memory");
    let to = CopyDestination { data: block.data(), dtype, layout: &layout };
    let mut mask = vec![9u8; layout.count()];
    // SAFETY: the block and the mask are as large as the tensor, and nothing else uses them.
    unsafe {
        let fill = vec![0; dtype.size()];
        let (kept, filled) = (write_values(chunks, &to, None, 1), write_values(chunks, &to, Some(&fill), 2));
        assert_eq!(kept.is_ok(), filled.is_ok());
        filled.ok()?;
        write_validity(chunks, mask.as_mut_ptr(), 2).expect("values were written");
        Some((std::slice::from_raw_parts(block.data(), layout.bytes()).to_vec(), mask))
    }
}

//! Imports of columns: what is read, what is rejected, and that everything is released once.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod producers;

use producers::{Produced, Releases, bytes_of};
use tensorferry_arrow::abi::{ArrowArray, ArrowSchema};
use tensorferry_arrow::{
    Array, Column, Field, Owned, PaddedLists, count_nulls, dense_lists, list_elements, write_offsets,
    write_validity, write_values,
};
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::CopyDestination;
use tensorferry_core::{DType, Error, Layout, Result};

/// Imports a column after changes to its structs, and checks that all structs are released once in the end.
fn import_changed<T>(
    produced: &Produced,
    change: impl FnOnce(&mut ArrowSchema, &mut ArrowArray),
    use_it: impl FnOnce(&Field, Array) -> T,
) -> Result<T> {
    let releases = Releases::default();
    let (mut schema, mut array) = (produced.schema(&releases), produced.array(&releases));
    change(&mut schema, &mut array);
    // SAFETY: the producer made both structs, and nothing else uses them.
    let result = unsafe {
        let schema = Owned::take(&raw mut schema);
        let array = Owned::take(&raw mut array);
        match (schema, array) {
            (Ok(schema), Ok(array)) => Field::from_schema(&schema)
                .and_then(|field| Array::new(array, &field).map(|array| (field, array)))
                .map(|(field, array)| use_it(&field, array)),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    };
    assert_eq!(releases.count(), 2 * produced.structs());
    result
}

fn import<T>(produced: &Produced, use_it: impl FnOnce(&Field, Array) -> T) -> Result<T> {
    import_changed(produced, |_, _| {}, use_it)
}

fn rejected(produced: &Produced, change: impl FnOnce(&mut ArrowSchema, &mut ArrowArray), words: &str) {
    let error: Error = import_changed(produced, change, |_, _| ()).unwrap_err();
    assert!(error.fact().contains(words), "{}", error.fact());
    assert!(error.hint().is_some(), "{}", error.fact());
}

/// The values of chunks in one dense tensor.
fn gathered<T: Copy>(field: &Field, chunks: &[Array], dtype: DType, fill: Option<&[u8]>) -> Vec<T> {
    assert_eq!(size_of::<T>(), dtype.size());
    let rows: usize = chunks.iter().map(Array::len).sum();
    let shape = [vec![rows as i64], field.row_shape()].concat();
    let layout = Layout::dense(dtype.size(), &shape).unwrap();
    let block = HostBlock::new(layout.bytes()).unwrap();
    let to = CopyDestination { data: block.data(), dtype, layout: &layout };
    // SAFETY: the block has the size of the layout, and nothing else uses it. `write_values` writes all of it.
    unsafe {
        write_values(chunks, &to, fill, 2).unwrap();
        std::slice::from_raw_parts(block.data().cast::<T>(), layout.count()).to_vec()
    }
}

fn validity(chunks: &[Array], count: usize) -> Vec<u8> {
    let mut bytes = vec![9; count];
    // SAFETY: callers pass the number of elements of the chunks.
    unsafe { write_validity(chunks, bytes.as_mut_ptr(), 2).unwrap() };
    bytes
}

#[test]
fn numbers_are_shared() {
    let column = Produced::numbers("i", &[1i32, 2, 3, 4]).named("a").slice(1, 2);
    import(&column, |field, array| {
        assert_eq!((field.name.as_str(), &field.column), ("a", &Column::Numbers(DType::Int32)));
        let tensor = array.as_tensor().unwrap().unwrap();
        assert_eq!(tensor.layout().shape(), [2]);
        drop(array);
        // SAFETY: the tensor keeps two elements alive.
        assert_eq!(unsafe { std::slice::from_raw_parts(tensor.data().cast::<i32>(), 2) }, [2, 3]);
    })
    .unwrap();
}

#[test]
fn nulls_are_counted_filled_and_masked() {
    let column = Produced::numbers("g", &[1.0, 2.0, 3.0, 4.0, 5.0]).with_validity(&[0b10101]).slice(1, 4);
    import(&column, |field, array| {
        assert_eq!(array.count_nulls(), 2);
        let chunks = [array.clone(), array.slice(1, 1), array.slice(0, 1)];
        assert_eq!(count_nulls(&chunks).unwrap(), 3);
        let fill = bytes_of(&[-1f32]);
        let values: Vec<f32> = gathered(field, &chunks, DType::Float32, Some(&fill));
        assert_eq!(values, [-1.0, 3.0, -1.0, 5.0, 3.0, -1.0]);
        assert_eq!(validity(&chunks, 6), [0, 1, 0, 1, 1, 0]);
    })
    .unwrap();
    let all_valid = Produced::numbers("i", &[1i32, 2]).with_validity(&[0b11]);
    import(&all_valid, |_, array| assert_eq!(count_nulls(&[array]).unwrap(), 0)).unwrap();
}

#[test]
fn booleans_are_unpacked() {
    let bits = Produced {
        format: "b",
        length: 9,
        offset: 3,
        buffers: vec![None, Some(vec![0b0101_1010, 0b1100_0011])],
        ..Produced::default()
    };
    import(&bits, |field, array| {
        let expected = [1u8, 1, 0, 1, 0, 1, 1, 0, 0];
        assert_eq!(gathered::<u8>(field, std::slice::from_ref(&array), DType::Bool, None), expected);
        assert_eq!(gathered::<f32>(field, &[array], DType::Float32, None), expected.map(f32::from));
    })
    .unwrap();
}

#[test]
fn tensors_have_axes() {
    let child = Produced::numbers("s", &(0..24i16).collect::<Vec<_>>());
    let lists = Produced::parent("+w:6", 3, vec![child]).slice(1, 3);
    import(&lists, |field, array| {
        assert_eq!(field.row_shape(), [6]);
        let tensor = array.as_tensor().unwrap().unwrap();
        assert_eq!((tensor.layout().shape(), tensor.layout().strides()), (&[3, 6][..], &[12, 2][..]));
        assert_eq!(gathered::<i16>(field, &[array], DType::Int16, None), (6..24).collect::<Vec<i16>>());
    })
    .unwrap();
    let permuted = lists.clone().with_extension(
        "arrow.fixed_shape_tensor",
        r#"{"shape": [2, 3], "permutation": [1, 0], "dim_names": ["a", "b"]}"#,
    );
    import(&permuted, |field, array| {
        assert_eq!(field.row_shape(), [3, 2]);
        let values = gathered::<i16>(field, &[array.slice(0, 1)], DType::Int16, None);
        assert_eq!(values, [6, 9, 7, 10, 8, 11]);
    })
    .unwrap();
    for (metadata, words) in [
        (r#"{"shape": [2, 2]}"#, "do not describe 6 elements"),
        (r#"{"shape": [2, 3], "permutation": [0, 0]}"#, "do not describe 6 elements"),
        (r#"{"shape": [-2, -3]}"#, "do not describe 6 elements"),
        (r#"{"shape": [9223372036854775807, 2]}"#, "do not describe 6 elements"),
        ("{", "cannot be parsed"),
    ] {
        let invalid = lists.clone().with_extension("arrow.fixed_shape_tensor", metadata);
        rejected(&invalid, |_, _| {}, words);
    }
}

#[test]
fn nulls_of_tensors_and_of_their_elements() {
    let child = Produced::numbers("i", &[1i32, 2, 3, 4, 5, 6]).with_validity(&[0b11_1101]);
    let mut lists = Produced::parent("+w:2", 3, vec![child]);
    lists = lists.with_validity(&[0b011]);
    import(&lists, |field, array| {
        let chunks = [array];
        assert_eq!(count_nulls(&chunks).unwrap(), 2);
        let fill = bytes_of(&[0i32]);
        assert_eq!(gathered::<i32>(field, &chunks, DType::Int32, Some(&fill)), [1, 0, 3, 4, 0, 0]);
        assert_eq!(validity(&chunks, 6), [1, 0, 1, 1, 0, 0]);
    })
    .unwrap();
}

#[test]
fn dictionaries_are_decoded() {
    let mut column = Produced::numbers("c", &[1i8, 0, 1, 100]).with_validity(&[0b0111]);
    column.dictionary = Some(Box::new(Produced::numbers("f", &[0.5f32, 1.5])));
    import(&column, |field, array| {
        assert_eq!(field.dtype(), Some(DType::Float32));
        let fill = bytes_of(&[-1f64]);
        // The code of a null may be any number.
        assert_eq!(gathered::<f64>(field, &[array], DType::Float64, Some(&fill)), [1.5, 0.5, 1.5, -1.0]);
    })
    .unwrap();
    let mut outside = Produced::numbers("i", &[0i32, 2]);
    outside.dictionary = column.dictionary.clone();
    import(&outside, |_, array| {
        let layout = Layout::dense(4, &[2]).unwrap();
        let block = HostBlock::new(8).unwrap();
        let to = CopyDestination { data: block.data(), dtype: DType::Float32, layout: &layout };
        // SAFETY: the block has the size of the layout.
        let error = unsafe { write_values(&[array], &to, None, 2) }.unwrap_err();
        assert!(error.fact().contains("a code is 2"), "{}", error.fact());
    })
    .unwrap();
    rejected(&column, |_, array| array.dictionary = std::ptr::null_mut(), "no dictionary");
}

#[test]
fn dictionaries_with_null_values() {
    let mut column = Produced::numbers("c", &[1i8, 0, 1]);
    column.dictionary = Some(Box::new(Produced::numbers("s", &[7i16, 8]).with_validity(&[0b01])));
    import(&column, |field, array| {
        let chunks = [array];
        assert_eq!(count_nulls(&chunks).unwrap(), 2);
        let fill = bytes_of(&[0i16]);
        assert_eq!(gathered::<i16>(field, &chunks, DType::Int16, Some(&fill)), [0, 7, 0]);
        assert_eq!(validity(&chunks, 3), [0, 1, 0]);
    })
    .unwrap();
}

#[test]
fn lists_have_offsets() {
    let child = Produced::numbers("i", &[1i32, 2, 3, 4, 5]);
    let mut lists = Produced::parent("+l", 3, vec![child]);
    lists.buffers.push(Some(bytes_of(&[0i32, 2, 2, 5])));
    import(&lists.clone().slice(1, 2), |field, array| {
        let error = dense_lists(field, vec![array.clone()]).unwrap_err();
        assert!(error.fact().contains("different lengths"), "{}", error.fact());
        let (field, chunks) = dense_lists(field, vec![array.slice(1, 1)]).unwrap();
        assert_eq!(gathered::<i32>(&field, &chunks, DType::Int32, None), [3, 4, 5]);
    })
    .unwrap();
    for (offsets, words) in [
        ([0i32, 2, 1, 5], "list 1 begins at 2 and ends at 1"),
        ([-1, 2, 2, 5], "begins at -1"),
        ([0, 2, 2, 6], "end at 6"),
    ] {
        let mut invalid = lists.clone();
        invalid.buffers[1] = Some(bytes_of(&offsets));
        rejected(&invalid, |_, _| {}, words);
    }
    let mut empty = lists.clone();
    empty.length = 0;
    empty.buffers[1] = None;
    import(&empty, |_, array| assert_eq!(array.len(), 0)).unwrap();
}

/// The lists `[1, 2]`, `[]` and `[3, 4, 5]`.
fn ragged() -> Produced {
    let mut lists = Produced::parent("+l", 3, vec![Produced::numbers("i", &[1i32, 2, 3, 4, 5])]);
    lists.buffers.push(Some(bytes_of(&[0i32, 2, 2, 5])));
    lists
}

#[test]
fn offsets_count_from_the_first_element_of_all_chunks() {
    import(&ragged(), |field, array| {
        let chunks = [array.slice(1, 2), array.slice(3, 0), array.slice(0, 2)];
        let mut offsets = [9i64; 5];
        write_offsets(&chunks, &mut offsets).unwrap();
        assert_eq!(offsets, [0, 0, 3, 5, 5]);
        let Column::Lists { child, .. } = &field.column else { panic!("{field:?}") };
        let elements = list_elements(&chunks).unwrap();
        assert_eq!(gathered::<i32>(child, &elements, DType::Int32, None), [3, 4, 5, 1, 2]);
        let mut none = [9i32];
        write_offsets(&[], &mut none).unwrap();
        assert_eq!(none, [0]);
        assert!(write_offsets(&chunks, &mut [0i64; 4]).is_err());
    })
    .unwrap();
}

#[test]
fn offsets_that_their_type_cannot_count() {
    let mut lists = Produced::parent("+l", 2, vec![Produced::numbers("c", &[1i8; 200])]);
    lists.buffers.push(Some(bytes_of(&[0i32, 127, 200])));
    import(&lists, |_, array| {
        let error = write_offsets(std::slice::from_ref(&array), &mut [0i8; 3]).unwrap_err();
        assert!(error.fact().contains("8-bit offsets"), "{}", error.fact());
        let mut offsets = [0u8; 3];
        write_offsets(&[array], &mut offsets).unwrap();
        assert_eq!(offsets, [0, 127, 200]);
    })
    .unwrap();
}

#[test]
fn lists_are_padded() {
    import(&ragged(), |field, array| {
        let chunks = [array.slice(2, 1), array.slice(0, 2)];
        let (lists, child, elements) = PaddedLists::new(field, &chunks).unwrap().unwrap();
        assert_eq!(lists.shape(), [3, 3]);
        let elements: Vec<i32> = gathered(&child, &elements, DType::Int32, None);
        let mut out = [9i32; 9];
        // SAFETY: the elements are those of the lists, and `out` has an element for each place of the shape.
        unsafe {
            lists
                .write(elements.as_ptr().cast(), 4, &(-1i32).to_ne_bytes(), out.as_mut_ptr().cast(), 2)
                .unwrap();
        }
        assert_eq!(out, [3, 4, 5, 1, 2, -1, -1, -1, -1]);
        assert!(PaddedLists::new(&child, &[]).unwrap().is_none());
    })
    .unwrap();
    let mut nulls = ragged();
    nulls.buffers[0] = Some(vec![0b101]);
    nulls.null_count = 1;
    import(&nulls, |field, array| {
        let error = PaddedLists::new(field, &[array]).unwrap_err();
        assert!(error.fact().contains("1 list is null"), "{}", error.fact());
    })
    .unwrap();
}

/// A batch of a large table has children as long as the table, of which only the rows of the batch are read.
#[test]
fn children_are_checked_where_they_are_used() {
    let mut inner = Produced::parent("+l", 4, vec![Produced::numbers("i", &[1i32, 2, 3, 4, 5, 6])]);
    inner.buffers.push(Some(bytes_of(&[99i32, 2, 4, 6, -7])));
    let mut outer = Produced::parent("+l", 3, vec![inner.clone()]);
    outer.buffers.push(Some(bytes_of(&[0i32, 1, 3, 4])));
    import(&outer.clone().slice(1, 1), |field, array| {
        let (field, chunks) = dense_lists(field, vec![array]).unwrap();
        assert_eq!(gathered::<i32>(&field, &chunks, DType::Int32, None), [3, 4, 5, 6]);
    })
    .unwrap();
    rejected(&outer.slice(1, 2), |_, _| {}, "ends at -7");

    let pairs = Produced::parent("+w:2", 2, vec![inner.clone()]);
    rejected(&pairs, |_, _| {}, "list 0 begins at 99");
    let table = Produced::parent("+s", 1, vec![inner.named("x")]);
    import(&table.clone().slice(1, 2), |_, array| assert_eq!(array.columns()[0].len(), 2)).unwrap();
    rejected(&table, |_, _| {}, "list 0 begins at 99");
}

#[test]
fn tables_are_structs() {
    let table = Produced::parent(
        "+s",
        2,
        vec![
            Produced::numbers("g", &[1f64, 2.0, 3.0]).named("x"),
            Produced { format: "u", length: 3, name: "text", buffers: vec![None; 3], ..Produced::default() },
        ],
    )
    .slice(1, 2);
    import(&table, |field, array| {
        let Column::Structs(fields) = &field.column else { panic!("{field:?}") };
        assert!(matches!(fields[1].column, Column::Unsupported { name: "string", .. }));
        assert_eq!(gathered::<f64>(&fields[0], &array.columns()[..1], DType::Float64, None), [2.0, 3.0]);
    })
    .unwrap();
    let short = Produced::parent("+s", 4, vec![Produced::numbers("g", &[1f64]).named("x")]);
    rejected(&short, |_, _| {}, "column 'x': a child has 1 elements");
}

#[test]
fn types_that_have_no_tensor_are_named() {
    for format in
        ["u", "U", "vu", "z", "Z", "vz", "w:4", "d:10,2", "tiM", "+vl", "+vL", "+m", "+r", "+ud:0,1", "+us:0"]
    {
        let column = Produced { format, buffers: vec![None; 3], ..Produced::default() };
        import(&column, |field, _| {
            assert!(matches!(field.column, Column::Unsupported { .. }), "{format}");
        })
        .unwrap();
    }
    for (format, dtype, text) in [
        ("tdD", DType::Int32, "date[days]"),
        ("tdm", DType::Int64, "date[ms]"),
        ("tts", DType::Int32, "time[s]"),
        ("ttn", DType::Int64, "time[ns]"),
        ("tsu:", DType::Int64, "timestamp[us]"),
        ("tsn:Europe/Berlin", DType::Int64, "timestamp[ns, Europe/Berlin]"),
        ("tDm", DType::Int64, "duration[ms]"),
    ] {
        let column = Produced { format, buffers: vec![None; 2], ..Produced::default() };
        let expected = Column::Temporal { dtype, unit: text.to_owned() };
        import(&column, |field, _| assert_eq!(field.column, expected)).unwrap();
    }
}

#[test]
fn extension_types() {
    let bytes = Produced::numbers("c", &[0i8, 1]).with_extension("arrow.bool8", "");
    import(&bytes, |field, _| assert_eq!(field.column, Column::Numbers(DType::Bool))).unwrap();
    rejected(&Produced::numbers("s", &[0i16]).with_extension("arrow.bool8", ""), |_, _| {}, "not int8");
    let halves = Produced::numbers("S", &[0u16]).with_extension("tensorferry.bfloat16", "");
    import(&halves, |field, _| assert_eq!(field.column, Column::Numbers(DType::BFloat16))).unwrap();
    let wide = Produced::numbers("I", &[0u32]).with_extension("tensorferry.bfloat16", "");
    rejected(&wide, |_, _| {}, "another size");
    let unknown = Produced::numbers("i", &[0i32]).with_extension("somebody.else", "");
    import(&unknown, |field, _| assert_eq!(field.column, Column::Numbers(DType::Int32))).unwrap();
}

#[test]
fn hostile_structs_are_rejected() {
    let numbers = Produced::numbers("i", &[1i32, 2]);
    let null: *mut u8 = std::ptr::null_mut();
    rejected(&numbers, |_, array| array.length = -1, "-1 elements");
    rejected(&numbers, |_, array| array.offset = -1, "at -1");
    rejected(&numbers, |_, array| (array.length, array.offset) = (i64::MAX, i64::MAX), "elements at");
    rejected(&numbers, |_, array| array.length = i64::MAX, "elements at");
    rejected(&numbers, |_, array| array.null_count = -2, "-2 nulls");
    rejected(&numbers, |_, array| array.n_buffers = 3, "3 buffers");
    rejected(&numbers, |_, array| array.n_buffers = -1, "-1 buffers");
    rejected(&numbers, |_, array| array.n_children = 1, "1 children");
    rejected(&numbers, |_, array| array.buffers = null.cast(), "null pointer");
    // SAFETY: the producer has two buffers.
    rejected(&numbers, |_, array| unsafe { *array.buffers.add(1) = null.cast() }, "null pointer");
    rejected(&numbers, |schema, _| schema.format = null.cast(), "format of the schema is a null pointer");
    rejected(&numbers, |_, array| array.null_count = 3, "3 nulls");
    rejected(&numbers, |_, array| array.null_count = 1, "no bitmap");
    rejected(&numbers, |schema, _| schema.format = c"\xff".as_ptr(), "not UTF-8");
    rejected(&numbers, |schema, _| schema.n_children = -1, "-1 children");
    rejected(&numbers, |schema, _| (schema.n_children, schema.children) = (1, null.cast()), "null pointer");
    let list = Produced::parent("+w:2", 1, vec![numbers.clone()]);
    rejected(&list, |_, array| array.length = 2, "too few");
    rejected(&list, |_, array| array.n_children = 0, "0 children");
    rejected(&list, |schema, _| schema.format = c"+w:3".as_ptr(), "too few");
    rejected(&list, |schema, _| schema.format = c"i".as_ptr(), "1 children");
    rejected(&list, |schema, _| schema.n_children = 0, "0 children");
}

unsafe extern "C" fn ignore_release(_: *mut ArrowArray) {}

#[test]
fn null_children_are_rejected() {
    let list = Produced::parent("+w:2", 1, vec![Produced::numbers("i", &[1i32, 2])]);
    let releases = Releases::default();
    let (mut schema, mut array) = (list.schema(&releases), list.array(&releases));
    // SAFETY: the producer has one child of each, which is put back before the release.
    unsafe {
        let (at_schema, schema_child) = (schema.children, *schema.children);
        *at_schema = std::ptr::null_mut();
        let mut no_child: *mut ArrowArray = std::ptr::null_mut();
        let owned = Owned::take(&raw mut schema).unwrap();
        assert!(Field::from_schema(&owned).unwrap_err().fact().contains("child 0"));
        *at_schema = schema_child;
        let field = Field::from_schema(&owned).unwrap();
        // The struct that is released has the child that the producer knows.
        let owned_array = Owned::take(&raw mut array).unwrap();
        let mut lying = ArrowArray { children: &raw mut no_child, ..ArrowArray::released() };
        (lying.length, lying.n_buffers, lying.n_children) = (1, 1, 1);
        lying.buffers = owned_array.get().buffers;
        lying.release = Some(ignore_release);
        let error = Array::new(Owned::take(&raw mut lying).unwrap(), &field).unwrap_err();
        assert!(error.fact().contains("child 0"));
    }
    assert_eq!(releases.count(), 4);
}

#[test]
fn deep_nesting_is_rejected() {
    let mut deep = Produced::numbers("i", &[1i32]);
    for _ in 0..70 {
        deep = Produced::parent("+w:1", 1, vec![deep]);
    }
    rejected(&deep, |_, _| {}, "64 levels");
}

#[test]
fn a_struct_is_taken_once() {
    let releases = Releases::default();
    let mut array = Produced::numbers("i", &[1i32]).array(&releases);
    // SAFETY: the producer made the struct, and nothing else uses it.
    unsafe {
        let first = Owned::take(&raw mut array).unwrap();
        assert!(Owned::take(&raw mut array).unwrap_err().fact().contains("released already"));
        assert!(Owned::<ArrowArray>::take(std::ptr::null_mut()).unwrap_err().fact().contains("null"));
        std::thread::scope(|scope| scope.spawn(|| drop(first)).join().unwrap());
    }
    assert_eq!(releases.count(), 1);
}

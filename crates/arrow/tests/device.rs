//! Arrays with a device: what is read without their buffers, what is refused, and that everything is released once.
//!
//! The buffers are in host memory here, and no test depends on what is in them.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod producers;

use producers::{Produced, Releases, bytes_of};
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use tensorferry_arrow::abi::{ArrowArray, ArrowDeviceArray};
use tensorferry_arrow::{
    Array, ColumnExport, DeviceArray, Field, MatrixColumn, Owned, TableExport, write_matrix, write_values,
};
use tensorferry_core::device::DeviceKind;
use tensorferry_core::host::HostBlock;
use tensorferry_core::pack::CopyDestination;
use tensorferry_core::{Access, ByteOrder, DType, Device, ErrorKind, Layout, Result, Tensor};

const CUDA: i32 = DeviceKind::Cuda as i32;

fn on_device(
    array: ArrowArray,
    device_type: i32,
    device_id: i64,
    sync_event: *mut c_void,
) -> ArrowDeviceArray {
    ArrowDeviceArray { array, device_id, device_type, sync_event, reserved: [0; 3] }
}

/// Imports a column on a device, and checks that all structs are released once in the end.
fn import<T>(
    produced: &Produced,
    (device_type, device_id, sync_event): (i32, i64, *mut c_void),
    use_it: impl FnOnce(&Field, Array) -> Result<T>,
) -> Result<T> {
    let releases = Releases::default();
    let mut schema = produced.schema(&releases);
    let mut struct_ = on_device(produced.array(&releases), device_type, device_id, sync_event);
    // SAFETY: the producer made both structs, and nothing else uses them. Events are null, or point to a number that lives.
    let result = unsafe {
        let field = Field::from_schema(&Owned::take(&raw mut schema).unwrap()).unwrap();
        DeviceArray::take(&raw mut struct_)
            .and_then(|taken| Array::on_device(taken.array, &field, taken.device))
            .and_then(|array| use_it(&field, array))
    };
    assert_eq!(releases.count(), 2 * produced.structs());
    result
}

fn import_on_gpu<T>(produced: &Produced, use_it: impl FnOnce(&Field, Array) -> Result<T>) -> Result<T> {
    import(produced, (CUDA, 1, ptr::null_mut()), use_it)
}

#[test]
fn numbers_and_tensors_stay_on_the_gpu() {
    let numbers = Produced::numbers("i", &[1i32, 2, 3, 4]).slice(1, 3);
    let lists = Produced::parent("+w:2", 2, vec![Produced::numbers("i", &[1i32, 2, 3, 4])]);
    for (produced, shape) in [(numbers, &[3][..]), (lists, &[2, 2])] {
        import_on_gpu(&produced, |_, array| {
            array.check_readable()?;
            let tensor = array.as_tensor()?.unwrap();
            assert_eq!((tensor.device(), array.device()), (Device::cuda(1), Device::cuda(1)));
            assert_eq!(tensor.layout().shape(), shape);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn host_memory_is_read() {
    let bits = Produced { format: "b", length: 3, buffers: vec![None, Some(vec![5])], ..Produced::default() };
    for kind in [DeviceKind::Cpu, DeviceKind::CudaHost] {
        import(&bits, (kind as i32, -1, ptr::null_mut()), |_, array| {
            assert!(array.device().is_host());
            array.check_readable()
        })
        .unwrap();
    }
}

#[test]
fn contents_that_the_host_would_read() {
    let numbers = || Produced::numbers("c", &[0i8, 1, 2]);
    let offsets = vec![None, Some(bytes_of(&[0i32, 1, 3]))];
    let child = vec![numbers().with_validity(&[7])];
    let cases = [
        (numbers().with_validity(&[7]), "values with nulls"),
        (numbers().with_extension("arrow.bool8", ""), "booleans"),
        (
            Produced { format: "b", length: 3, buffers: vec![None, Some(vec![5])], ..Produced::default() },
            "booleans",
        ),
        (Produced { buffers: offsets, ..Produced::parent("+l", 2, vec![numbers()]) }, "lists"),
        (Produced { dictionary: Some(Box::new(numbers())), ..numbers() }, "codes"),
        (Produced::parent("+w:3", 1, child), "values with nulls"),
        (Produced::parent("+s", 3, vec![numbers()]).with_validity(&[7]), "values with nulls"),
    ];
    for (produced, words) in cases {
        let error = import_on_gpu(&produced, |_, array| array.slice(0, 1).check_readable()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedDevice);
        assert!(error.fact().contains(words), "{}", error.fact());
        assert!(error.fact().contains("cuda:1"), "{}", error.fact());
        assert!(error.hint().is_some());
    }
    // A column of a table does not concern the others.
    let table = Produced::parent("+s", 3, vec![numbers().named("a"), numbers().with_validity(&[7])]);
    import_on_gpu(&table, |_, array| {
        array.check_readable()?;
        array.columns()[0].check_readable()?;
        assert!(array.columns()[1].check_readable().is_err());
        Ok(())
    })
    .unwrap();
}

#[test]
fn nothing_is_gathered_from_a_gpu() {
    let layout = Layout::dense(4, &[4]).unwrap();
    import_on_gpu(&Produced::numbers("i", &[1i32, 2, 3, 4]), |_, array| {
        let block = HostBlock::new(layout.bytes())?;
        let to = CopyDestination { data: block.data(), dtype: DType::Int32, layout: &layout };
        let chunks = [array];
        let columns = [MatrixColumn { chunks: &chunks, fill: None }];
        // SAFETY: the block has the size of the layout, and of a matrix of one column. Nothing else uses it.
        let written = unsafe {
            [write_values(&chunks, &to, None, 1), write_matrix(&columns, DType::Int32, block.data(), 1)]
        };
        for result in written {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::UnsupportedDevice);
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn devices_and_events() {
    let numbers = Produced::numbers("i", &[1i32, 2]);
    let (mut event, mut no_event) = (0xe000usize, 0usize);
    let pointer = |event: &mut usize| ptr::from_mut(event).cast::<c_void>();
    let rejected = |device: (i32, i64, *mut c_void), words: &str| {
        let error = import(&numbers, device, |_, _| Ok(())).unwrap_err();
        assert!(error.fact().contains(words), "{}", error.fact());
        assert!(error.hint().is_some());
    };
    rejected((99, 0, ptr::null_mut()), "device of type 99;");
    rejected((DeviceKind::Rocm as i32, 0, ptr::null_mut()), "type 10 (rocm)");
    rejected((CUDA, -1, ptr::null_mut()), "number -1");
    rejected((CUDA, i64::MAX, ptr::null_mut()), "number 9223372036854775807");
    rejected((CUDA, 0, pointer(&mut no_event)), "event is a null pointer");
    rejected((CUDA, 0, pointer(&mut event).wrapping_byte_add(1)), "not aligned");
    rejected((DeviceKind::Cpu as i32, 0, pointer(&mut event)), "CPUs do not have");
    let releases = Releases::default();
    let mut struct_ = on_device(numbers.array(&releases), CUDA, 1, pointer(&mut event));
    // SAFETY: the producer made the struct, nothing else uses it, and the event lives. The second call finds a released struct.
    unsafe {
        let taken = DeviceArray::take(&raw mut struct_).unwrap();
        assert_eq!((taken.device, taken.sync_event), (Device::cuda(1), Some(0xe000)));
        assert!(DeviceArray::take(&raw mut struct_).unwrap_err().fact().contains("released already"));
        assert!(DeviceArray::take(ptr::null_mut()).unwrap_err().fact().contains("null pointer"));
    }
    assert_eq!(releases.count(), 1);
}

fn tensor(device: Device) -> Tensor<Arc<HostBlock>> {
    let block = Arc::new(HostBlock::new(8).unwrap());
    let layout = Layout::dense(4, &[2]).unwrap();
    // SAFETY: the block has the size of the layout and is the owner. No function under test reads the memory.
    let tensor = unsafe {
        let (order, access) = (ByteOrder::Native, Access::ReadOnly);
        Tensor::new(block.data(), DType::Int32, layout, device, order, access, block)
    };
    tensor.unwrap()
}

#[test]
fn exports_name_their_device() {
    let pinned = Device { kind: DeviceKind::CudaHost, index: 0 };
    let managed = Device { kind: DeviceKind::CudaManaged, index: 1 };
    for (device, numbers) in
        [(Device::CPU, (1, -1)), (pinned, (1, -1)), (Device::cuda(1), (2, 1)), (managed, (13, 1))]
    {
        let owner = tensor(device);
        let weak = Arc::downgrade(owner.owner());
        let column = ColumnExport::new("x", owner).unwrap();
        let mut exported = column.device_array();
        assert_eq!((exported.device_type, exported.device_id), numbers);
        assert!(exported.sync_event.is_null());
        assert_eq!(exported.reserved, [0; 3]);
        let table = TableExport::new(vec![column]).unwrap();
        let mut whole = table.device_array();
        assert_eq!((whole.device_type, whole.device_id), numbers);
        drop(table);
        // SAFETY: the exports made the structs, and nothing else uses them.
        let taken =
            unsafe { (Owned::take(&raw mut exported).unwrap(), Owned::take(&raw mut whole).unwrap()) };
        assert!(weak.upgrade().is_some());
        drop(taken);
        assert!(weak.upgrade().is_none());
    }
}

#[test]
fn a_table_is_on_one_device() {
    let columns =
        [Device::cuda(0), Device::cuda(1)].map(|device| ColumnExport::new("x", tensor(device)).unwrap());
    let error = TableExport::new(columns.into()).unwrap_err();
    assert!(error.fact().contains("cuda:0") && error.fact().contains("cuda:1"), "{}", error.fact());
    let rocm = Device { kind: DeviceKind::Rocm, index: 0 };
    assert!(ColumnExport::new("x", tensor(rocm)).unwrap_err().fact().contains("CUDA GPU"));
    let gpu = ColumnExport::new("x", tensor(Device::cuda(0))).unwrap();
    assert!(gpu.with_validity(tensor(Device::CPU)).is_err());
}

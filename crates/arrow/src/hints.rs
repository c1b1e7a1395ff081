//! The hint keys of this crate, with the advice that is the same in every front end.

tensorferry_core::hint_keys! {
    /// A struct of a producer violates the interface.
    REPORT_INVALID_STRUCT = "arrow.report_invalid_struct"
        => "report this to the library that made the object";
    /// A stream of a producer failed.
    CHECK_PRODUCER = "arrow.check_producer" => "see the message of the library that produces the stream";
    /// The type of a column has no tensor; the value is what to do about it.
    CONVERT_COLUMN = "arrow.convert_column" => "{}";
    /// Lists have different lengths.
    PAD_LISTS = "arrow.pad_lists";
    /// Lists have more elements than offsets can count.
    SPLIT_LISTS = "arrow.split_lists";
    /// Lists or structs are null.
    DROP_NULLS = "arrow.drop_nulls";
    /// The type of a device is not supported.
    MOVE_TO_HOST = "arrow.move_to_host" => "copy it to host memory with the library that made it";
    /// A column in GPU memory would have to be read on the host.
    COPY_TO_HOST = "arrow.copy_to_host"
        => "copy it to host memory first, with the library that made it: on a GPU only columns of numbers without nulls are read";
    /// A tensor cannot be exported as rows.
    EXPORT_ROWS = "arrow.export_rows";
    /// A row has more elements than a list can have.
    EXPORT_ROW_SIZE = "arrow.export_row_size";
    /// The name of a column has a zero byte.
    EXPORT_NAME_BYTES = "arrow.export_name_bytes" => "remove the zero byte from the name";
    /// Two columns have the same name.
    EXPORT_UNIQUE_NAMES = "arrow.export_unique_names";
    /// Arrow lacks the type of a tensor.
    EXPORT_TYPE = "arrow.export_type" => "cast it first, or export its real and imaginary parts";
    /// The columns of a table have different numbers of rows.
    EXPORT_EQUAL_ROWS = "arrow.export_equal_rows" => "export tensors whose first axes have the same length";
    /// A column in GPU memory was exported through the interface for host memory.
    EXPORT_HOST_COPY = "arrow.export_host_copy";
    /// A tensor on a GPU is not dense.
    EXPORT_DENSE_COPY = "arrow.export_dense_copy";
    /// The columns of a table are on different devices.
    EXPORT_ONE_DEVICE = "arrow.export_one_device" => "move the columns to one device first";
}

//! The hint keys of this crate, with the advice that is the same in every front end.

tensorferry_core::hint_keys! {
    /// A file breaks the rules of its format, and nothing more specific is known.
    RECREATE_FILE = "files.recreate_file"
        => "fetch the file again, or write it again with the library that made it";
    /// A file is shorter than its header declares.
    FETCH_TRUNCATED_FILE = "files.fetch_truncated_file" => "fetch the file again: it is truncated";
    /// The data of a file does not match its checksum.
    FETCH_DAMAGED_FILE = "files.fetch_damaged_file" => "fetch the file again: it is damaged";
    /// The shards of an index come from different versions of a model.
    FETCH_ALL_SHARDS = "files.fetch_all_shards" => "fetch all files again: they belong to different versions";
    /// A shard of an index is a link to another folder.
    PUT_SHARD_BESIDE_INDEX = "files.put_shard_beside_index" => "put the file itself beside the index";
    /// The data of a .npy file is shorter or longer than its header declares.
    REWRITE_NPY = "files.rewrite_npy"
        => "write the file again: it was truncated, or bytes were appended to the array";
    /// The zip directory of a .npz file is invalid.
    REWRITE_NPZ = "files.rewrite_npz" => "fetch the file again, or write it again with numpy.savez";
    /// A file became shorter while it was open.
    REPLACE_INSTEAD_OF_OVERWRITING = "files.replace_instead_of_overwriting"
        => "replace the file instead of overwriting it: write a new file and rename it";
    /// A compressed file expands to more than the limit.
    RAISE_DECOMPRESSION_LIMIT = "files.raise_decompression_limit";

    /// A path does not exist.
    CHECK_PATH = "files.check_path" => "check the path";
    /// The folder of a new file does not exist; the value is the folder.
    CREATE_FOLDER = "files.create_folder" => "create the folder {} first";
    /// The system denied access to a file or its folder.
    CHECK_PERMISSIONS = "files.check_permissions" => "check the permissions of the file and its folder";
    /// The disk or the quota is full.
    FREE_DISK_SPACE = "files.free_disk_space" => "free some disk space; an existing file is unchanged";
    /// A file would exceed the limit on file sizes.
    RAISE_FILE_SIZE_LIMIT = "files.raise_file_size_limit";
    /// The operating system refused a call for another reason.
    CHECK_FILE_SYSTEM = "files.check_file_system" => "check the file system, or use another folder";
    /// The process has too many open files.
    CLOSE_FILES = "files.close_files" => "close some files, or raise the limit: ulimit -n";
    /// A path is a folder, a pipe or a device.
    PASS_REGULAR_FILE = "files.pass_regular_file" => "pass the path of a regular file";

    /// The format of a file cannot be detected.
    NAME_FORMAT = "files.name_format";
    /// The name and the content of a file disagree. The value is the format of the content.
    NAME_FORMAT_OR_RENAME = "files.name_format_or_rename";
    /// A file is a pickle as old versions of `torch.save` write it.
    LOAD_TORCH_PICKLE = "files.load_torch_pickle"
        => "load it with torch or pickle if you trust it, and save it as safetensors";
    /// A file is a pickle.
    LOAD_PICKLE = "files.load_pickle"
        => "load it with pickle if you trust it, and save it as .npy or safetensors";
    /// A file is a zip checkpoint of `torch.save`.
    LOAD_TORCH_CHECKPOINT = "files.load_torch_checkpoint"
        => "load it with torch.load(weights_only=True), and save it as safetensors";
    /// A file is HDF5.
    LOAD_WITH_H5PY = "files.load_with_h5py" => "read it with h5py";
    /// A file is compressed as a whole.
    DECOMPRESS_FIRST = "files.decompress_first" => "decompress it first";
    /// A file is encrypted.
    DECRYPT_FIRST = "files.decrypt_first" => "decrypt it first";
    /// A member of a .npz file is not an array.
    UNZIP_MEMBER = "files.unzip_member" => "unpack it with zipfile";

    /// An array holds Python objects.
    LOAD_OBJECT_ARRAY = "files.load_object_array"
        => "load it with numpy.load(allow_pickle=True) if you trust it, and save it with a numeric dtype";
    /// An array has a structured type.
    SAVE_FIELDS_SEPARATELY = "files.save_fields_separately"
        => "load it with NumPy, and save the fields one by one";
    /// An array holds strings.
    LOAD_WITH_NUMPY = "files.load_with_numpy" => "load it with NumPy";
    /// An array has floats wider than 64 bits.
    CONVERT_TO_FLOAT64 = "files.convert_to_float64" => "convert it to float64 or complex128 with NumPy";
    /// An array holds dates or durations.
    SAVE_DATES_AS_INT64 = "files.save_dates_as_int64" => "save .view(\"int64\") of the array";
    /// An array has a type that its file does not name.
    NAME_DTYPE = "files.name_dtype";
    /// A tensor has a packed type of safetensors.
    LOAD_WITH_SAFETENSORS = "files.load_with_safetensors" => "load it with the safetensors package";
    /// The convention for carried types contradicts the stored type.
    OPEN_AS_STORED = "files.open_as_stored"
        => "load it with the safetensors package, which returns the stored type";
    /// A TensorProto has a type that only its own library reads. The value is the library.
    LOAD_WITH_LIBRARY = "files.load_with_library" => "load it with {}";
    /// A TensorProto can be read in either dialect.
    NAME_DIALECT = "files.name_dialect";
    /// An ONNX tensor keeps its data in another file.
    EMBED_ONNX_DATA = "files.embed_onnx_data" => "load it with onnx, and save it with its data inside";
    /// An ONNX message is a part of a tensor.
    JOIN_ONNX_SEGMENTS = "files.join_onnx_segments" => "join the segments with onnx";
    /// Raw bytes were opened without an element type.
    DESCRIBE_RAW_BYTES = "files.describe_raw_bytes";
    /// The length of raw bytes is not a multiple of the element size.
    MATCH_RAW_DTYPE = "files.match_raw_dtype";
    /// The length of raw bytes contradicts the shape.
    MATCH_RAW_SHAPE = "files.match_raw_shape";

    /// A file has no tensor of that name.
    LIST_TENSORS = "files.list_tensors";
    /// An entry belongs to another file.
    PASS_ENTRY_OF_FILE = "files.pass_entry_of_file" => "pass a tensor of this file";
    /// A tensor is compressed or encoded and cannot be mapped.
    READ_INSTEAD_OF_MAPPING = "files.read_instead_of_mapping";
    /// A tensor is compressed or encoded and can only be read from its start.
    READ_AS_STREAM = "files.read_as_stream" => "read the tensor as a whole";
    /// A buffer differs in size from the tensor.
    PASS_BUFFER_OF_TENSOR_SIZE = "files.pass_buffer_of_tensor_size" => "pass a buffer of the tensor's size";
    /// A read extends past the end of a tensor.
    READ_WITHIN_TENSOR = "files.read_within_tensor" => "request no more bytes than the tensor has";

    /// A format holds one tensor.
    SAVE_AS_ARCHIVE = "files.save_as_archive" => "save them as .npz or safetensors";
    /// Only safetensors can hold the tensors.
    SAVE_AS_SAFETENSORS = "files.save_as_safetensors" => "save as safetensors";
    /// A format has no such type or size.
    SAVE_AS_NPY_OR_SAFETENSORS = "files.save_as_npy_or_safetensors" => "save it as .npy or safetensors";
    /// A tensor has too many dimensions. The value is the limit.
    RESHAPE_TENSOR = "files.reshape_tensor" => "reshape it to {} dimensions or fewer";
    /// A format has one byte order and one order of dimensions.
    CONVERT_ORDER_FIRST = "files.convert_order_first"
        => "convert it to a contiguous little-endian array first";
    /// A name is taken or reserved.
    RENAME_TENSOR = "files.rename_tensor" => "choose another name";
    /// A name cannot be the path of a .npz member.
    CHOOSE_MEMBER_PATH = "files.choose_member_path"
        => "choose a relative path without '..' and without backslashes";
    /// A metadata key is duplicated or reserved.
    REMOVE_METADATA_KEY = "files.remove_metadata_key" => "remove or rename the metadata key";
    /// The tensors or their names are too large for one file.
    SAVE_FEWER_TENSORS = "files.save_fewer_tensors"
        => "save fewer tensors per file, shorter names, or less text beside them";
    /// A tensor was begun twice, or not at all.
    BEGIN_EACH_TENSOR_ONCE = "files.begin_each_tensor_once" => "begin each tensor once, counting from zero";
    /// More or fewer bytes were written than the shape of a tensor takes.
    WRITE_TENSOR_SIZE = "files.write_tensor_size"
        => "write exactly as many bytes as the shape and dtype take";
    /// A tensor was never written.
    WRITE_ALL_TENSORS = "files.write_all_tensors" => "write all tensors before finishing the file";
    /// An earlier error left a file incomplete.
    SAVE_AGAIN = "files.save_again" => "save it again";
}

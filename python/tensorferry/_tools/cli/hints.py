"""Advice of the command line for errors of the library: its options instead of Python's arguments.

An error of the library carries the key of its hint, and the value that the advice contains, if
any. Keys that are not listed here keep the advice of the library.
"""

_ALLOW_COPY = "leave out --no-copy to allow the copy"

ADVICE = {
    "core.align_source": _ALLOW_COPY,
    "core.allow_copy": _ALLOW_COPY,
    "core.cast_to_supported_dtype": "write --to-dtype {}, or another type of the framework",
    "core.choose_read_only_framework": "choose numpy or jax as the target",
    "core.choose_writable_framework": "leave out --writable, or choose numpy or torch",
    "core.make_contiguous": f"{_ALLOW_COPY}, or write --layout dense",
    "core.omit_device": f"{_ALLOW_COPY}, or leave out --device",
    "core.omit_device_or_choose_gpu_framework": "leave out --device, or choose torch or cupy",
    "core.omit_device_or_choose_host_framework": "leave out --device, or choose numpy or torch",
    "core.omit_device_or_name_cpu": "leave out --device, or write --device {}",
    "core.omit_device_or_name_one": "leave out --device, or write --device cpu or --device cuda:0",
    "core.omit_dtype": f"{_ALLOW_COPY}, or leave out --to-dtype",
    "core.omit_writable": f"{_ALLOW_COPY}, or leave out --writable",
    "core.request_share_or_align": _ALLOW_COPY,
    "core.use_cpu_or_view_as_bytes": "write --device cpu",
    "core.use_default_dtype": "write --to-dtype default to get {}",
    "core.use_native_byte_order": _ALLOW_COPY,
    "core.use_writable_source": _ALLOW_COPY,
    "files.name_format": "write --format, and --dtype and --shape for raw bytes",
    "files.name_format_or_rename": "write --format {}, or rename the file",
    "files.name_dtype": "name the type, for example --dtype float8_e4m3fn",
    "files.describe_raw_bytes": "write --dtype and --shape",
    "files.match_raw_dtype": "write the --dtype that the file was written with",
    "files.match_raw_shape": "write the --shape and --dtype that the file was written with",
    "files.raise_decompression_limit": "if you trust it, load it in Python with a higher limit",
    "files.read_instead_of_mapping": "copy the file to a disk that supports memory maps",
    "files.name_dialect": "load it in Python, where the dialect can be passed",
    "files.list_tensors": "list the tensors with tensorferry inspect",
    "python.name_device": "write cpu, cuda:0 or default",
    "python.name_dtype": "write a name such as float32, bfloat16 or int64",
    "python.name_file_format": "write --to-format npy, npz, safetensors, tensorproto or raw",
    "python.name_framework": "write one of {}",
    "share.check_producer": "check whether the producer is stopped, or write a longer --timeout",
    "share.keep_publication": "keep tensorferry publish running, or publish again",
    "share.publish_read_only": "publish it with --read-only",
}


def advice(error: BaseException | str) -> str | None:
    """The advice for an error in terms of options, or None where the library's own fits."""
    text = ADVICE.get(getattr(error, "_hint_key", ""))
    return None if text is None else text.replace("{}", getattr(error, "_hint_value", None) or "")


def error_text(error: BaseException) -> str:
    """The message of an error, with the advice in terms of options."""
    fact, separator, own_hint = str(error).partition("\nhint: ")
    return fact + (f"\nhint: {advice(error) or own_hint}" if separator else "")

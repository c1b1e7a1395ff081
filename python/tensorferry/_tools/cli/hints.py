"""Advice of the command line for errors of the library: its options instead of Python's arguments.

An error of the library carries the key of its hint, and the value that the advice contains, if
any. Keys that are not listed here keep the advice of the library.
"""

ADVICE = {
    "core.use_default_dtype": "write --to-dtype with a type that the target has",
    "files.name_format": "write --format, and --dtype and --shape for raw bytes",
    "files.name_format_or_rename": "write --format {}, or rename the file",
    "files.name_dtype": "name the type, for example --dtype float8_e4m3fn",
    "files.describe_raw_bytes": "write --dtype and --shape",
    "files.match_raw_dtype": "write the --dtype that the file was written with",
    "files.match_raw_shape": "write the --shape and --dtype that the file was written with",
    "files.list_tensors": "list the tensors with tensorferry inspect",
    "share.publish_read_only": "publish it with --read-only",
}


def advice(error: BaseException | str) -> str | None:
    """The advice for an error in terms of options, or None where the library's own fits."""
    text = ADVICE.get(getattr(error, "_hint_key", ""))
    return None if text is None else text.replace("{}", getattr(error, "_hint_value", None) or "")

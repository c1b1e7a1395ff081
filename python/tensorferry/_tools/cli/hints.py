"""Advice of the command line for errors of the library: its options instead of Python's arguments.

An error of the library carries the key of its hint, and the value that the advice contains, if any.
`ADVICE` has the keys whose advice the command line words itself. The advice of other errors, and of
plans, is the library's, with each argument of Python replaced by the option of the command at hand.

Advice never names an option that the command does not have: its help is shown instead.
"""

import re
from dataclasses import dataclass

_ALLOW_COPY = "leave out --no-copy to allow the copy"

ADVICE = {
    "core.align_source": _ALLOW_COPY,
    "core.allow_copy": _ALLOW_COPY,
    "core.cast_to_supported_dtype": "write --to-dtype {}, or another type of the framework",
    "core.choose_read_only_framework": "choose numpy or jax as the target",
    "core.choose_writable_framework": "leave out --writable, or choose numpy or torch",
    "core.make_contiguous": f"{_ALLOW_COPY}, or write --layout dense",
    "core.omit_device": f"{_ALLOW_COPY}, or leave out --device",
    "core.omit_device_or_choose_gpu_framework": "leave out --device, or choose a build of torch, "
    "cupy, jax or tensorflow with CUDA",
    "core.omit_device_or_choose_host_framework": "leave out --device, or choose numpy or torch",
    "core.omit_device_or_name_cpu": "leave out --device, or write --device {}",
    "core.omit_device_or_name_one": "leave out --device, or write --device cpu or --device cuda:0",
    "core.omit_dtype": f"{_ALLOW_COPY}, or leave out --to-dtype",
    "core.omit_writable": f"{_ALLOW_COPY}, or leave out --writable",
    "core.raise_budget": "free some memory first",
    "core.request_share_or_align": _ALLOW_COPY,
    "core.take_real_part": "load it in Python, and save x.real",
    "core.use_cpu_or_view_as_bytes": "write --device cpu",
    "core.use_default_dtype": "write --to-dtype default to get {} (values that it cannot hold "
    "change), or set JAX_ENABLE_X64=1",
    "core.use_native_byte_order": _ALLOW_COPY,
    "core.use_writable_source": _ALLOW_COPY,
    "cuda.install_driver": "install the NVIDIA driver, or leave out --device",
    "cuda.raise_budget": "free some memory first",
    "files.describe_raw_bytes": "write --dtype and --shape",
    "files.list_tensors": "list the tensors with tensorferry inspect",
    "files.match_raw_dtype": "write the --dtype that the file was written with",
    "files.match_raw_shape": "write the --shape and --dtype that the file was written with",
    "files.name_dialect": "load it in Python, where the dialect can be passed",
    "files.name_dtype": "name the type, for example --dtype float8_e4m3fn",
    "files.name_format": "write --format, and --dtype and --shape for raw bytes",
    "files.name_format_or_rename": "write --format {}, or rename the file",
    "files.pass_regular_file": "write the path of a file",
    "files.raise_decompression_limit": "if you trust it, load it in Python with a higher limit",
    "files.read_instead_of_mapping": "copy the file to a disk that supports memory maps",
    "files.save_dates_as_int64": "convert it to int64 with NumPy, and save that",
    "python.name_device": "write cpu, cuda:0 or default",
    "python.suggest_dtype": "did you mean {}?",
    "python.name_dtype": "write a name such as float32, bfloat16 or int64",
    "python.name_file_format": "write --to-format npy, npz, safetensors, tensorproto or raw",
    "share.check_producer": "check whether the producer is stopped, or write a longer --timeout",
    "share.keep_publication": "keep tensorferry publish running, or publish again",
    "share.pass_ticket_unchanged": "write the whole line that tensorferry publish printed",
    "share.publish_copy": "publish it without --read-only",
    "share.publish_read_only": "publish it with --read-only",
}

# Arguments of the library, and the options that stand for them: the first that the command has.
OPTIONS = {
    "compression": ("--compression",),
    "copy": ("--copy",),
    "device": ("--device",),
    "dialect": ("--dialect",),
    "dtype": ("--to-dtype", "--dtype"),
    "format": ("--to-format", "--format"),
    "names": ("--names",),
    "shape": ("--shape",),
    "timeout": ("--timeout",),
    "writable": ("--writable",),
}
# An argument with its value, or one that is to be left out. Arguments of a call, such as those of
# numpy.load(allow_pickle=True), belong to that library.
_VALUE = r"""(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<word>True|False))?"""
_ARGUMENT = re.compile(rf"(?<![\w(.])(?P<name>[a-z_]+)={_VALUE}(?!\w)")
_OMISSION = re.compile(r"\bleave (?:out (?P<after>[a-z_]+)|(?P<before>[a-z_]+) out)(?![\w=])")


@dataclass(frozen=True)
class Command:
    """The command at hand: how it is called, and its options."""

    prog: str = "tensorferry"
    options: frozenset[str] = frozenset()

    @property
    def help(self) -> str:
        """The advice to read its help."""
        return f"run {self.prog} --help"


def advice(error: BaseException | str, command: Command) -> str | None:
    """The advice for an error in terms of options; None for an error without advice."""
    _, separator, own = str(error).partition("\nhint: ")
    if not separator:
        return None
    text = ADVICE.get(getattr(error, "_hint_key", ""), "")
    text = text.replace("{}", getattr(error, "_hint_value", None) or "")
    if text and _is_known(text, command):
        return text
    return in_options(own, command)


def in_options(text: str, command: Command) -> str:
    """Advice of the library with options of the command instead of Python's arguments."""

    def option(name: str) -> str:
        return next((one for one in OPTIONS.get(name, ()) if one in command.options), "")

    def replace_argument(found: re.Match[str]) -> str:
        name, value = found["name"], found["double"] or found["single"] or found["word"] or ""
        if name == "copy" and value == "False":
            return "--no-copy" if "--no-copy" in command.options else found[0]
        shown = option(name)
        if not shown or (name == "writable" and value == "False"):
            return found[0]
        return shown if value in ("", "True") else f"{shown} {value}"

    def replace_omission(found: re.Match[str]) -> str:
        shown = option(found["after"] or found["before"])
        return f"leave out {shown}" if shown else found[0]

    shown = _OMISSION.sub(replace_omission, _ARGUMENT.sub(replace_argument, text))
    if shown != text:
        shown = re.sub(r"\bpass (?=--)", "write ", shown)
    is_translated = not _ARGUMENT.search(shown) and all(
        (found["after"] or found["before"]) not in OPTIONS for found in _OMISSION.finditer(shown)
    )
    return shown if is_translated and _is_known(shown, command) else command.help


def _is_known(text: str, command: Command) -> bool:
    """Whether the command has all options that a text names."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) <= command.options

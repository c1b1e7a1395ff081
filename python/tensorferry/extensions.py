"""For extension modules: where the C header is."""

from pathlib import Path


def get_include() -> str:
    """The folder of `tensorferry.h` and `dlpack.h`, for the include path of a C or C++ compiler.

    Returns:
        The path of the folder.

    Example:
        >>> from pathlib import Path
        >>> sorted(path.name for path in Path(ferry.get_include()).iterdir())
        ['dlpack.h', 'tensorferry.h']
    """
    return str(Path(__file__).with_name("include"))

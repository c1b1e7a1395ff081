"""Which format a sparse tensor takes on its way, and what a format has no room for."""

from typing import Any

from tensorferry._native import InvalidArgumentError, UnsupportedDTypeError
from tensorferry.sparse.bundle import NEAREST, Bundle, Rules, refuse


def chosen(
    bundle: Bundle, name: str, target: Any, offered: dict[str, Rules], format: str | None
) -> tuple[str, str]:
    """The format of the result, and its full name."""
    if format is None:
        chosen = next(found for found in NEAREST[bundle.format] if found in offered)
    else:
        chosen = str(format).removesuffix("_array").removesuffix("_matrix")
        full = [chosen, f"{chosen}_array", f"{chosen}_matrix"]
        known = chosen in offered and (format == chosen or (name == "scipy" and format in full))
        if not known:
            raise InvalidArgumentError(
                f"{target.TITLE} has no sparse format {format!r} that tensorferry knows"
                f"\nhint: write one of {', '.join(offered)}"
            )
    matrix = name == "scipy" and (
        str(format).endswith("_matrix")
        if format is not None and format != chosen
        else bundle.name.endswith("_matrix")
    )
    return chosen, f"{chosen}_matrix" if matrix else chosen


def can_hold(bundle: Bundle, target: Any, format: str, rules: Rules) -> None:
    """Refuses what a format has no room for."""
    axes = len(bundle.sparse_shape)
    what = f"this {bundle.framework} {bundle.format} tensor"
    if bundle.batch and not (rules.batch and format == bundle.format):
        refuse(
            f"{what} has {bundle.batch} batch axes and {target.TITLE}'s {format} has none",
            "use ferry.sparse.to_dense, or pass the tensors of the batch one by one",
        )
    if bundle.dense and not rules.dense:
        refuse(
            f"{what} has {bundle.dense} dense axes (it is hybrid) and {target.TITLE}'s {format} "
            "has none",
            "use ferry.sparse.to_dense, or make every axis sparse where the tensor is made",
        )
    if axes == 0:
        refuse(
            f"{what} has no axis with coordinates", "use ferry.sparse.to_dense, or pass its values"
        )
    if not rules.fewest_axes <= axes <= rules.most_axes:
        refuse(
            f"{what} has {axes} axes and {target.TITLE}'s {format} has {rules.most_axes}",
            "reshape it to two axes first, or pass format='coo' where the target has more",
        )


def holds_type(dtype: str, rules: Rules, target: Any, format: str) -> None:
    """Refuses values of a type that a format does not hold."""
    if rules.dtypes is not None and dtype not in rules.dtypes:
        raise UnsupportedDTypeError(
            f"{target.TITLE}'s {format} holds no {dtype}\nhint: pass dtype='float32'"
        )

"""The list that `ferry.trace` fills."""

from tensorferry._native import Trip, _trips_html, _trips_text


class Trips(list[Trip]):
    """A list of finished conversions, whose text and card fold equal ones into one row."""

    def __init__(self) -> None:
        super().__init__()
        #: What concerns a tree and not one of its tensors, as in the notes of its plan.
        self.notes: list[str] = []

    def __str__(self) -> str:
        return _trips_text(self, self.notes)

    def _repr_html_(self) -> str:
        return _trips_html(self, self.notes)

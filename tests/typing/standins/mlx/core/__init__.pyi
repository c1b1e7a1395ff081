from typing import Any

class array:  # noqa: N801
    def __dlpack__(self, *, stream: object | None = ...) -> Any: ...

from typing import Any

class Tensor:
    def __dlpack__(self, *, stream: int | None = ...) -> Any: ...

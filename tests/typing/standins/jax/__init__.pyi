from typing import Any

class Array:
    def __dlpack__(self) -> Any: ...

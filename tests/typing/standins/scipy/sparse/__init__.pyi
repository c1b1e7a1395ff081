from typing import Any

class csr_array:  # noqa: N801
    def todense(self, order: Any = ..., out: Any = ...) -> Any: ...

"""`ferry.ray`: tensors of every framework through Ray, as fast as arrays of NumPy.

Ray pickles what it puts into its object store. `runtime_env` switches the pickling of tensorferry
on in the driver and, by a hook that Ray calls in each worker, in the cluster. `get` reads from the
object store straight to a framework and a device. Importing this module imports neither Ray nor a
framework.
"""

from tensorferry.ray.environment import runtime_env, setup_worker
from tensorferry.ray.reading import get

__all__ = ["get", "runtime_env", "setup_worker"]

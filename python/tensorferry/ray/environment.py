"""The runtime environment in which tensors travel by tensorferry, and the hook for workers.

Ray accepts one hook per job, so a hook of the user becomes part of ours. Ray's own switch for
tensors of PyTorch registers a reducer that takes precedence over ours and gives memory of the store
to be written; we warn about it and leave the decision to the user. Ray loads this module in workers
that may use no framework, so it imports none.
"""

import importlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from tensorferry import pickling
from tensorferry._native import InvalidArgumentError

# The field of a runtime environment that names the hook, and our hook as a string, which is the
# only form that `ray job submit` accepts.
HOOK_FIELD = "worker_process_setup_hook"
HOOK_NAME = "tensorferry.ray.setup_worker"

# Ray's switch for tensors of PyTorch that alias its object store.
ZERO_COPY_SWITCH = "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS"

# What `ray job submit` gives to the driver: the job's runtime environment, and whether the driver
# may replace fields of it.
JOB_CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
JOB_OVERRIDE_VARIABLE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"


def runtime_env(runtime_env: Mapping[str, Any] | None = None, /, **fields: Any) -> dict[str, Any]:
    """Returns a runtime environment for `ray.init` in which tensors travel by tensorferry.

    The pickling of tensorferry is switched on in this process, too. A hook in the given environment
    runs in each worker after ours. In the driver of a submitted job whose environment names our
    hook already, the result has no hook, because Ray refuses a field that the job has.

    Args:
        runtime_env: A runtime environment of Ray to start from; it stays unchanged.
        fields: Fields of a runtime environment, such as `env_vars`.

    Returns:
        A runtime environment with the field `worker_process_setup_hook`.

    Raises:
        InvalidArgumentError: A field is given twice, the hook cannot be called, or the job of this
            driver has a hook of its own, which Ray does not let us extend.

    Example:
        >>> ferry.ray.runtime_env(env_vars={"OMP_NUM_THREADS": "2"})["env_vars"]
        {'OMP_NUM_THREADS': '2'}
        >>> ferry.ray.runtime_env()["worker_process_setup_hook"]
        'tensorferry.ray.setup_worker'
    """
    merged = _merge(runtime_env, fields)
    hook = _inherit_job_hook(merged.pop(HOOK_FIELD, None))
    if hook is not None:
        merged[HOOK_FIELD] = hook
    if not _warn_of_zero_copy(os.environ):
        _warn_of_zero_copy(merged.get("env_vars") or {})
    pickling.enable()
    return merged


def setup_worker() -> None:
    """Switches the pickling of tensorferry on in this process; the hook for workers of Ray.

    `runtime_env` names this function as the hook. For `ray job submit`, name it yourself:
    `--runtime-env-json '{"worker_process_setup_hook": "tensorferry.ray.setup_worker"}'`. Such a
    hook does not run in the driver, which calls `runtime_env` or this function.

    Returns:
        None.

    Raises:
        FerryError: What `ferry.pickling.enable` raises.

    Example:
        >>> ferry.ray.setup_worker()
    """
    _warn_of_zero_copy(os.environ)
    pickling.enable()


class SetupHooks:
    """Our hook and a hook of the user, as one hook.

    An instance is pickled as a reference to this class and the user's hook; a function made at run
    time would be pickled as code. Ray shows `__name__` as the name of the hook.
    """

    def __init__(self, hook: str | Callable[[], object]) -> None:
        self.hook = hook
        name = hook if isinstance(hook, str) else getattr(hook, "__name__", type(hook).__name__)
        self.__name__ = f"{HOOK_NAME}, {name}"

    def __call__(self) -> None:
        """Runs both hooks."""
        setup_worker()
        if isinstance(self.hook, str):
            module, _, name = self.hook.rpartition(".")
            getattr(importlib.import_module(module), name)()
        else:
            self.hook()


def _merge(runtime_env: Mapping[str, Any] | None, fields: Mapping[str, Any]) -> dict[str, Any]:
    """One environment of both, in which `env_vars` is a copy: Ray adds to it."""
    merged = dict(runtime_env or {})
    twice = sorted(set(merged) & set(fields))
    if twice:
        raise InvalidArgumentError(
            f"the field {twice[0]!r} is in the runtime environment and among the arguments"
            "\nhint: give it once"
        )
    merged |= fields
    if merged.get("env_vars") is not None:
        merged["env_vars"] = dict(merged["env_vars"])
    return merged


def _inherit_job_hook(hook: Any) -> Any:
    """The hook of this driver, beside that of the job in which it runs; None if the job's does."""
    job_hook = _job_hook()
    # `RAY_RUNTIME_ENV_HOOK` calls `runtime_env` with an environment that has the job's fields.
    if job_hook is None or hook == job_hook:
        return _combine(hook)
    if os.environ.get(JOB_OVERRIDE_VARIABLE) == "1":
        return _combine(job_hook if hook is None else hook)
    if hook is None and job_hook == HOOK_NAME:
        return None
    raise InvalidArgumentError(
        f"the job of this driver has the hook {job_hook!r}, and Ray accepts one hook for a job"
        "\nhint: submit the job without a hook, and name yours in the driver: "
        f'ferry.ray.runtime_env({HOOK_FIELD}="module.function")'
    )


def _job_hook() -> str | None:
    """The hook of the submitted job in whose driver this is; `ray job submit` accepts strings."""
    config = json.loads(os.environ.get(JOB_CONFIG_VARIABLE) or "{}")
    hook = (config.get("runtime_env") or {}).get(HOOK_FIELD)
    return hook or None


def _combine(hook: Any) -> Any:
    """Our hook, and then the user's, unless that is ours."""
    if hook is None or hook == HOOK_NAME or hook is setup_worker:
        return HOOK_NAME
    if isinstance(hook, SetupHooks):
        return hook
    if isinstance(hook, str) and "." not in hook.strip("."):
        raise InvalidArgumentError(
            f"the hook {hook!r} has no module"
            '\nhint: write "module.function", with a dot, or pass the function'
        )
    if not isinstance(hook, str) and not callable(hook):
        raise InvalidArgumentError(
            f"{HOOK_FIELD} is an object of type {type(hook).__name__}"
            '\nhint: pass a function, or "module.function" as a string'
        )
    return SetupHooks(hook)


def _warn_of_zero_copy(environment: Mapping[str, str]) -> bool:
    """Warns if Ray's switch is on in an environment, and returns whether it is."""
    is_on = environment.get(ZERO_COPY_SWITCH, "").lower() in ("1", "true")
    if is_on:
        warnings.warn(
            f"{ZERO_COPY_SWITCH} is on: Ray pickles tensors of PyTorch itself, and a write to one "
            "that ray.get returned changes the stored object for every process"
            f"\nhint: unset {ZERO_COPY_SWITCH}, and pass writable=False to ferry.ray.get to share",
            UserWarning,
            stacklevel=3,
        )
    return is_on

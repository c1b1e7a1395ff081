"""How busy the machine was during a benchmark, by three independent signs.

Other processes on the same cores, time that a hypervisor took from this machine, and a control: the
same memcpy before and after the measurements. Load slows down both methods of a comparison, but not
equally, so a busy machine makes ratios doubtful. The reader is told, and nothing is left out.
"""

import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The least that counts as busy: the share of the cores' time that other processes used, the share
# that the hypervisor took, and the change of the control.
MAX_OTHERS, MAX_STEAL, MAX_CONTROL_RATIO = 0.10, 0.02, 1.25
# For results without these figures: load for each core, which includes the benchmark itself.
MAX_LOAD_PER_CORE = 1.0


class LoadMeter:
    """The load between its construction and `read`."""

    def __init__(self) -> None:
        self._start = _cpu_seconds(), _own_seconds()

    def read(self, control_ratio: float | None = None) -> dict[str, float | None]:
        """The shares of the cores' time, and the time of the control divided by its first time."""
        (busy, steal, total), own = _cpu_seconds(), _own_seconds()
        (old_busy, old_steal, old_total), old_own = self._start
        passed = total - old_total
        others = max(0.0, busy - old_busy - (own - old_own))
        return {
            "others": round(others / passed, 3) if passed > 0 else None,
            "steal": round((steal - old_steal) / passed, 3) if passed > 0 else None,
            "control": round(control_ratio, 3) if control_ratio else None,
        }


def _own_seconds() -> float:
    """The CPU time of this process and its children."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _cpu_seconds() -> tuple[float, float, float]:
    """Seconds of the cores that this process may use: busy, taken by the hypervisor, and in all."""
    names = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        lines = []
    busy = steal = total = 0
    for line in lines:
        name, *fields = line.split()
        if name in names:
            # Guests, which follow, are part of user and nice.
            user, nice, system, idle, wait, hard, soft, taken = map(int, fields[:8])
            busy += user + nice + system + hard + soft
            steal += taken
            total += user + nice + system + idle + wait + hard + soft + taken
    tick = os.sysconf("SC_CLK_TCK")
    return busy / tick, steal / tick, total / tick


def signs(result: Mapping[str, Any]) -> list[str]:
    """The signs that the machine was busy, in words; none if it was idle or nothing is known."""
    load = result.get("load")
    if not isinstance(load, Mapping):
        machine = result.get("machine") or {}
        average, cores = _number(machine.get("load")), _number(machine.get("cores"))
        if average is not None and cores is not None and average > cores * MAX_LOAD_PER_CORE:
            return [f"the load was {average:.1f} on {cores:.0f} core{'s' * (cores != 1)}"]
        return []
    found = []
    others, steal, control = (_number(load.get(key)) for key in ("others", "steal", "control"))
    if others is not None and others > MAX_OTHERS:
        found.append(f"other processes used {others:.0%} of the time of its cores")
    if steal is not None and steal > MAX_STEAL:
        found.append(f"the hypervisor took {steal:.0%} of it")
    if control is not None and control > 0 and max(control, 1 / control) > MAX_CONTROL_RATIO:
        slower = "slower" if control > 1 else "faster"
        factor = max(control, 1 / control)
        found.append(f"a memcpy was {factor:.1f} times {slower} after the measurements than before")
    return found


def _number(value: Any) -> float | None:
    """A number of a result, which may hold anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def join_signs(found: Sequence[str]) -> str:
    """Signs as one phrase."""
    *first, last = found
    return f"{', '.join(first)}{',' * (len(first) > 1)} and {last}" if first else last


def warning(result: Mapping[str, Any]) -> str:
    """A sentence about a busy machine; empty if it was idle."""
    found = signs(result)
    if not found:
        return ""
    return f"the machine was busy, so the ratios are doubtful: {join_signs(found)}"

"""The cells of the matrix: every source with every target, on every pair of devices."""

from collections.abc import Sequence

from tensorferry._tools.doctor.findings import Cell, Framework


def cells(frameworks: Sequence[Framework]) -> list[Cell]:
    """Cells on the host, on each GPU, and between the host and each GPU."""
    gpus = sorted(
        {
            device.name
            for framework in frameworks
            for device in framework.devices
            if device.name.startswith("cuda:")
        },
        key=lambda name: int(name.partition(":")[2]),
    )
    routes = [("cpu", "cpu")]
    for gpu in gpus:
        routes += [(gpu, gpu), ("cpu", gpu), (gpu, "cpu")]
    return [
        Cell(source.name, target.name, origin, destination)
        for origin, destination in routes
        for source in frameworks
        for target in frameworks
        if source.supports(origin) and target.supports(destination)
    ]

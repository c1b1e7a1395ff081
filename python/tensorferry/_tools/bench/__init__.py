"""The benchmark engine of `tensorferry bench`, which the suites in `benches/` use too.

- The engine: `measure` times methods in alternating rounds, `timings` has their statistics,
  `methods` the native one-liners, `check` compares results, and `limits` measures memcpy.
- The command: `run` measures conversions and returns a result, `results` reads and writes results,
  and `compare` compares two of them.
"""

"""The measurements of `tensorferry bench`: time and memory of conversions.

`methods` lists the native one-liners, `run` measures them and `ferry.to` and returns a result,
`results` reads and writes results, and `compare` compares two of them.
"""

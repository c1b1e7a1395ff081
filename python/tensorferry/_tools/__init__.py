"""The tools behind the command `tensorferry`: the command line, doctor, benchmark and its report.

The library never imports this package.
"""

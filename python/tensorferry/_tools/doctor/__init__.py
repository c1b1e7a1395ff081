"""The examination of `tensorferry doctor`: imports frameworks and converts tensors, and reports.

Everything that may hang or crash runs in a child process: one per framework that is imported, and
others that convert tensors. They report findings line by line; a crash or a hang is a finding, too.

The child processes import this package, so this file imports nothing: a framework must be the first
import of its process.
"""

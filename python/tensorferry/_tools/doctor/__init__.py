"""What works on this machine, found out by trying it: the examination behind `tensorferry doctor`.

Nothing that may hang or die is done in the process that asks. Each framework is imported in a child
of its own, and tensors are carried in others, which tell what they find line by line: what ends a
child is a finding like any other.

The children are started from here too, so this file imports nothing: what they import is what they
are to find out about.
"""

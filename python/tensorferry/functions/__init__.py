"""What a decorated function does when it is called.

`callables` says which functions can be decorated, `homes` whose the tensors are that they were
passed, `wrapping` is `@ferry.via`, `meeting` is `@ferry.agnostic`, and `leaves` takes trees apart
where `ferry.to` cannot do it alone.
"""

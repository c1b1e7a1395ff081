"""Tensors in files: `.npy`, `.npz`, safetensors, TensorProto and raw bytes.

The native module parses and writes the formats. `loading` and `saving` have the public functions,
`writing` writes tensors block by block, `trees` names tensors and records the tree around them, and
`shards` keeps several files behind one index.
"""

from tensorferry.files.loading import inspect, load, load_raw
from tensorferry.files.saving import named_leaves, save
from tensorferry.files.trees import is_tree

__all__ = ["inspect", "is_tree", "load", "load_raw", "named_leaves", "save"]

"""Tensors in files: `.npy`, `.npz`, safetensors, TensorProto and raw bytes."""

from tensorferry.files.loading import inspect, is_tree, load, load_raw, named, save

__all__ = ["inspect", "is_tree", "load", "load_raw", "named", "save"]

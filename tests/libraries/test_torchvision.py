"""Tensors of torchvision keep their class and metadata within PyTorch."""

from __future__ import annotations

import pytest
import torch
from torchvision import tv_tensors

import tensorferry as ferry


@pytest.mark.parametrize("options", [{"copy": True}, {"dtype": "float64"}])
def test_copies_keep_class_and_metadata(options):
    boxes = tv_tensors.BoundingBoxes(
        torch.tensor([[0.0, 1, 2, 3]]), format="XYWH", canvas_size=(20, 30)
    )
    image = tv_tensors.Image(torch.rand(3, 4, 4))
    mask = tv_tensors.Mask(torch.zeros(4, 4))
    result = ferry.to({"boxes": boxes, "image": image, "mask": mask}, "torch", **options)
    assert [type(value) for value in result.values()] == [type(boxes), type(image), type(mask)]
    assert (result["boxes"].format, result["boxes"].canvas_size) == (boxes.format, (20, 30))
    assert torch.equal(result["image"], image.to(result["image"].dtype))
    assert result["boxes"].data_ptr() != boxes.data_ptr()

# SPDX-License-Identifier: MIT
"""What torchvision and timm call the tensors of a model, and what they compute from them, for tests/program/torch_layout_test.cpp.

Values follow a formula of a tensor's name and its shape in PyTorch, so that no fixture has to carry them.
"""

import json
from functools import partial

import timm
import torch
import torchvision
from torch import nn

import formula_init
from models import torchvision_vgg11

CLASSES = 10
RESNETS = ["resnet18", "resnet34", "resnet50", "resnet101"]
VGGS = [f"vgg{layers}{norm}" for layers in (11, 13, 16, 19) for norm in ("", "_bn")]
VIT_HEADS = {"vit_ti_16": 3, "vit_s_16": 6, "vit_b_16": 12}
TIMM_VITS = {"vit_ti_16": "vit_tiny", "vit_s_16": "vit_small", "vit_b_16": "vit_base"}


def torchvision_model(name: str) -> nn.Module:
    if name in VIT_HEADS:
        return torchvision_vit(VIT_HEADS[name], 224)
    return torchvision.models.get_model(name, weights=None, num_classes=CLASSES)


def timm_model(name: str) -> nn.Module:
    return timm.create_model(f"{TIMM_VITS[name]}_patch16_224" if name in TIMM_VITS else name, num_classes=CLASSES)


def torchvision_vit(heads: int, image_size: int) -> nn.Module:
    return torchvision.models.VisionTransformer(
        image_size=image_size, patch_size=16, num_layers=12, num_heads=heads, hidden_dim=64 * heads,
        mlp_dim=4 * 64 * heads, num_classes=CLASSES, norm_layer=partial(nn.LayerNorm, eps=1e-6),
    )


def stored_tensors(model: nn.Module) -> dict:
    return {n: t for n, t in sorted(model.state_dict().items()) if not n.endswith("num_batches_tracked")}


def names_json() -> str:
    """{library: {model: {name: shape}}}; where timm's tensors are torchvision's, {"timm": {model: "torchvision"}}."""
    libraries = {"torchvision": {}, "timm": {}}
    with torch.device("meta"):
        for name in RESNETS + VGGS + list(VIT_HEADS):
            for library, make in (("torchvision", torchvision_model), ("timm", timm_model)):
                libraries[library][name] = {n: list(t.shape) for n, t in stored_tensors(make(name)).items()}
            if libraries["timm"][name] == libraries["torchvision"][name]:
                libraries["timm"][name] = "torchvision"
    dump = partial(json.dumps, separators=(",", ":"))
    return "{\n%s\n}\n" % ",\n".join(
        '"%s":{\n%s\n}' % (library, ",\n".join(f'"{name}":{dump(tensors)}' for name, tensors in models.items()))
        for library, models in libraries.items())


def formula_value(name: str, shape: tuple) -> torch.Tensor:
    """Matrices as formula_init.parameter(); vectors: a tenth of the formula, around 1 for norms and variances."""
    if len(shape) > 1:
        return torch.from_numpy(formula_init.parameter(name, shape))
    centre = 1.0 if name.endswith(("weight", "running_var")) else 0.0
    return centre + 0.1 * torch.from_numpy(formula_init.uniform(name, shape))


def logit_cases(out) -> None:
    """Logits of two images, in evaluation."""
    vit = dict(model="vit_ti_16", image_size=48, width=1 / 3)
    for library, o, model in [
        ("torchvision", dict(model="resnet18", image_size=64, width=1.0), torchvision_model("resnet18")),
        ("torchvision", dict(model="vgg11", image_size=64, width=0.125), torchvision_vgg11(0.125, CLASSES)),
        ("torchvision", vit, torchvision_vit(1, 48)),
        ("timm", dict(model="resnet18", image_size=64, width=1.0), timm_model("resnet18")),
        ("timm", vit, timm.models.VisionTransformer(img_size=48, embed_dim=64, num_heads=1, num_classes=CLASSES)),
    ]:
        values = {n: formula_value(n, tuple(t.shape)) for n, t in stored_tensors(model).items()}
        model.load_state_dict(values)
        model = model.double().eval()
        with torch.no_grad():
            logits = model(formula_init.images(2, o["image_size"]).double())
        out.add(f"{library}/{o['model']}", o | dict(classes=CLASSES), logits=logits)

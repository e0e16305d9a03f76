# SPDX-License-Identifier: MIT
"""The networks of layers/models in PyTorch, with the same parameter names and shapes.

resnet20, resnet56: the CIFAR form of He et al. 2016 (section 4.2) with projection shortcuts (option B).
vgg11_bn_cifar, vgg16_bn_cifar: Simonyan & Zisserman 2015 with batch norm, for 32x32 images: `features` ends at
1x1x512 and one linear layer classifies.
conv6_cifar: the network of airbench94 (Jordan 2024, arXiv 2404.00498) without the bias of its whitening layer, whose filters
are formula_init's.
resnet50, vgg11, vgg16_bn, vit_s_16, vit_b_16: torchvision's own without dropout; vgg11 and vit_s_16 with `width` times
the channels or heads.
"""

from functools import partial

import torch
import torchvision
from torch import nn

import formula_init

VGG_CHANNELS = {  # "M" is a 2x2 max pooling
    "vgg11_bn_cifar": [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    "vgg16_bn_cifar": [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"],
}
RESNET_BLOCKS_PER_STAGE = {"resnet20": 3, "resnet56": 9}
VGG11_CHANNELS = [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"]


class BasicBlock(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet(nn.Module):
    def __init__(self, blocks_per_stage: int, classes: int):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = self._stage(16, 16, 1, blocks_per_stage)
        self.layer2 = self._stage(16, 32, 2, blocks_per_stage)
        self.layer3 = self._stage(32, 64, 2, blocks_per_stage)
        self.fc = nn.Linear(64, classes)

    @staticmethod
    def _stage(channels_in: int, channels: int, stride: int, blocks: int) -> nn.Sequential:
        first = BasicBlock(channels_in, channels, stride)
        return nn.Sequential(first, *(BasicBlock(channels, channels, 1) for _ in range(blocks - 1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.layer3(self.layer2(self.layer1(y)))
        return self.fc(y.mean(dim=(2, 3)))


class Vgg(nn.Module):
    def __init__(self, channels: list, classes: int):
        super().__init__()
        layers, channels_in = [], 3
        for c in channels:
            if c == "M":
                layers.append(nn.MaxPool2d(2, 2))
            else:
                layers += [nn.Conv2d(channels_in, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(inplace=True)]
                channels_in = c
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels_in, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).flatten(1))


class Whitening(nn.Module):
    def __init__(self):
        super().__init__()
        filters = torch.from_numpy(formula_init.parameter("whiten.weight", (24, 2, 2, 3)))
        self.register_buffer("weight", filters.permute(0, 3, 1, 2).contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight)


class Conv6Block(nn.Module):
    def __init__(self, channels_in: int, channels: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
        for norm in (self.norm1, self.norm2):  # their scale stays at one
            del norm.weight
            norm.register_buffer("weight", torch.ones(channels), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = nn.functional.gelu(self.norm1(nn.functional.max_pool2d(self.conv1(x), 2)))
        return nn.functional.gelu(self.norm2(self.conv2(y)))


class Conv6(nn.Module):
    def __init__(self, width: float, classes: int):
        super().__init__()
        few, many = round(64 * width), round(256 * width)
        self.whiten = Whitening()
        self.block1, self.block2, self.block3 = Conv6Block(24, few), Conv6Block(few, many), Conv6Block(many, many)
        self.head = nn.Conv2d(many, classes, 1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.block3(self.block2(self.block1(nn.functional.gelu(self.whiten(x)))))
        return self.head(nn.functional.max_pool2d(y, 3)).flatten(1) / 9


def torchvision_vgg11(width: float, classes: int) -> nn.Module:
    channels = [c if c == "M" else round(c * width) for c in VGG11_CHANNELS]
    model = torchvision.models.VGG(torchvision.models.vgg.make_layers(channels), classes, init_weights=False, dropout=0)
    features, hidden = round(512 * width), round(4096 * width)
    model.classifier[0] = nn.Linear(features * 7 * 7, hidden)
    model.classifier[3] = nn.Linear(hidden, hidden)
    model.classifier[6] = nn.Linear(hidden, classes)
    return model


def torchvision_vit_s_16(width: float, image_size: int, classes: int) -> nn.Module:
    heads = round(6 * width)
    return torchvision.models.VisionTransformer(
        image_size=image_size, patch_size=16, num_layers=12, num_heads=heads, hidden_dim=64 * heads,
        mlp_dim=4 * 64 * heads, num_classes=classes, norm_layer=partial(nn.LayerNorm, eps=1e-6),
    )


def make_model(name: str, classes: int, image_size: int = 32, width: float = 1.0) -> nn.Module:
    if name == "resnet50":
        return torchvision.models.resnet50(num_classes=classes)
    if name == "vgg16_bn":
        return torchvision.models.vgg16_bn(num_classes=classes, dropout=0)
    if name == "vit_b_16":
        return torchvision.models.vit_b_16(num_classes=classes, image_size=image_size)
    if name == "conv6_cifar":
        return Conv6(width, classes)
    if name == "vgg11":
        return torchvision_vgg11(width, classes)
    if name == "vit_s_16":
        return torchvision_vit_s_16(width, image_size, classes)
    if name in RESNET_BLOCKS_PER_STAGE:
        return ResNet(RESNET_BLOCKS_PER_STAGE[name], classes)
    return Vgg(VGG_CHANNELS[name], classes)

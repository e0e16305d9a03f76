# SPDX-License-Identifier: MIT
"""The networks of layers/models in PyTorch, with the same parameter names and shapes.

resnet20, resnet56: the CIFAR form of He et al. 2016 (section 4.2) with projection shortcuts (option B).
vgg11_bn, vgg16_bn: Simonyan & Zisserman 2015 with batch norm, for 32x32 images: `features` ends at
1x1x512 and one linear layer classifies.
"""

import torch
from torch import nn

VGG_CHANNELS = {  # "M" is a 2x2 max pooling
    "vgg11_bn": [64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"],
    "vgg16_bn": [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"],
}
RESNET_BLOCKS_PER_STAGE = {"resnet20": 3, "resnet56": 9}
MODEL_NAMES = [*RESNET_BLOCKS_PER_STAGE, *VGG_CHANNELS]


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


def make_model(name: str, classes: int) -> nn.Module:
    if name in RESNET_BLOCKS_PER_STAGE:
        return ResNet(RESNET_BLOCKS_PER_STAGE[name], classes)
    return Vgg(VGG_CHANNELS[name], classes)

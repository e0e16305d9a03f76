#pragma once
// SPDX-License-Identifier: MIT
//
// The models of the program. Parameter names are torchvision's where it has the model. The first layer and
// the classifier have role always_sync: AB-training keeps them at full rank.

#include <memory>
#include <string>
#include <vector>

#include "layers/layer.h"
#include "layers/linear.h"

namespace ab {

/// Four linear layers over the flattened image.   [N, H, W, C] -> [N, classes]
std::unique_ptr<Layer> make_mlp(std::int64_t inputs, std::int64_t hidden, std::int64_t classes, const Build& build);

/// ResNet for 32×32 images (He et al. 2016, section 4.2): 6n + 2 layers of 16, 32 and 64 channels, with 1×1
/// convolutions where the shape changes. depth: 20, 56.
std::unique_ptr<Layer> make_resnet_cifar(int depth, std::int64_t classes, const Build& build);

/// VGG with batch norm for 32×32 images (Simonyan & Zisserman 2015): torchvision's `features`, then one
/// linear classifier on the 1×1×512 that is left. layers: 11, 16.
std::unique_ptr<Layer> make_vgg_bn_cifar(int layers, std::int64_t classes, const Build& build);

/// The names make_model() knows.
const std::vector<std::string>& model_names();
/// A model for 32×32×3 images by name; throws Error(config) that lists the names when there is none.
std::unique_ptr<Layer> make_model(const std::string& name, std::int64_t classes, std::uint64_t seed, Device device = {});

}  // namespace ab

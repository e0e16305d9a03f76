#pragma once
// SPDX-License-Identifier: MIT
//
// The models of the program. Architectures, parameter names and default initialisation are torchvision's where
// it has the model; names that end in _cifar and the resnets of 6n + 2 layers are for 32×32 images. The first
// layer and the classifier have role always_sync: AB-training keeps them at full rank.

#include <memory>
#include <string>
#include <vector>

#include "layers/init.h"
#include "layers/layer.h"

namespace ab {

/// The recipe of a model. A setting that a model does not have (drop_path of a VGG) must keep its default.
struct ModelSpec {
  std::string name = "resnet20";  ///< one of model_names()
  std::int64_t classes = 10;
  std::int64_t image_size = 32;  ///< height and width of the images
  double width = 1.0;            ///< multiplies the channels, the hidden units, or the heads of a transformer
  double dropout = 0.0;          ///< before the classifier; VGG: between its layers
  double drop_path = 0.0;        ///< stochastic depth: rate of the last residual branch, rising linearly from 0
  bool qkv_bias = true;          ///< of vision transformers
  std::uint64_t seed = 0;        ///< of the initial values
  bool draw = true;              ///< false: weights hold whatever was in memory, for those who fill them, or
                                 ///< only ask for names and shapes
  Init init = Init::drawn;       ///< how the initial values are changed
};

/// The names make_model() knows.
const std::vector<std::string>& model_names();
/// Builds a model: [N, image_size, image_size, 3] -> [N, classes]. Throws Error(config) that lists the names when
/// there is none of that name, and names the setting that does not fit the model.
std::unique_ptr<Layer> make_model(const ModelSpec& spec, Device device = {});

/// `channels` times the width of the spec, to the nearest whole number; throws Error(config) when none is left.
std::int64_t scaled(const ModelSpec& spec, std::int64_t channels);

/// Four linear layers over the flattened image.
std::unique_ptr<Layer> make_mlp(const ModelSpec& spec, const Build& build);

/// Six 3×3 convolutions of 64, 256 and 256 channels behind a whitening layer, for 32×32 images (Jordan 2024, arXiv 2404.00498:
/// the network of airbench94 without the bias of its first layer).
std::unique_ptr<Layer> make_conv6_cifar(const ModelSpec& spec, const Build& build);
/// ResNet for 32×32 images (He et al. 2016, section 4.2): 6n + 2 layers of 16, 32 and 64 channels, with 1×1
/// convolutions where the shape changes. depth: 20, 56.
std::unique_ptr<Layer> make_resnet_cifar(int depth, const ModelSpec& spec, const Build& build);
/// ResNet for ImageNet (He et al. 2016), in the form that strides in the 3×3 convolution of a bottleneck (v1.5).
/// depth: 18, 34, 50, 101.
std::unique_ptr<Layer> make_resnet(int depth, const ModelSpec& spec, const Build& build);

/// VGG with batch norm for 32×32 images (Simonyan & Zisserman 2015): torchvision's `features`, then one
/// linear classifier on the 1×1×512 that is left. layers: 11, 13, 16, 19.
std::unique_ptr<Layer> make_vgg_bn_cifar(int layers, const ModelSpec& spec, const Build& build);
/// VGG for ImageNet (Simonyan & Zisserman 2015). The first two layers of the classifier are convolutions, 7×7 and
/// 1×1 (timm's form): AB-training treats them as such, and their values are those of torchvision's linear layers.
/// layers: 11, 13, 16, 19.
std::unique_ptr<Layer> make_vgg(int layers, bool batch_norm, const ModelSpec& spec, const Build& build);

/// Vision transformer (Dosovitskiy et al. 2021) of 12 blocks on patches of 16×16, with 64 features per head.
/// heads: 3 (tiny), 6 (small), 12 (base).
std::unique_ptr<Layer> make_vit(int heads, const ModelSpec& spec, const Build& build);

}  // namespace ab

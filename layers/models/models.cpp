// SPDX-License-Identifier: MIT
#include "layers/models/models.h"

namespace ab {

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names{"mlp", "resnet20", "resnet56", "vgg11_bn", "vgg16_bn"};
  return names;
}

std::unique_ptr<Layer> make_model(const std::string& name, std::int64_t classes, std::uint64_t seed, Device device) {
  const Build build{seed, device};
  if (name == "mlp") return make_mlp(32 * 32 * 3, 512, classes, build);
  if (name == "resnet20") return make_resnet_cifar(20, classes, build);
  if (name == "resnet56") return make_resnet_cifar(56, classes, build);
  if (name == "vgg11_bn") return make_vgg_bn_cifar(11, classes, build);
  if (name == "vgg16_bn") return make_vgg_bn_cifar(16, classes, build);
  throw Error(ErrorKind::config,
              fmt::format("there is no model '{}'; the models are {}", name, fmt::join(model_names(), ", ")));
}

}  // namespace ab

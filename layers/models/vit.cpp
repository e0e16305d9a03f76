// SPDX-License-Identifier: MIT
#include <cmath>

#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"
#include "layers/conv2d.h"
#include "layers/dropout.h"
#include "layers/linear.h"
#include "layers/models/models.h"
#include "layers/norm.h"

namespace ab {
namespace {

constexpr std::int64_t kPatch = 16, kBlocks = 12, kHeadWidth = 64, kMlpRatio = 4;
constexpr float kEpsilon = 1e-6f;

/// Multi-head self-attention with its projections (Vaswani et al. 2017): x: [N, T, D] -> [N, T, D]
///   y = attention(x W_inᵀ + b_in) W_outᵀ + b_out      W_in: [3D, D], queries, keys and values in one matrix
/// Parameters are called as in torch.nn.MultiheadAttention: in_proj_weight, in_proj_bias, out_proj.*
class SelfAttention final : public Layer {
 public:
  SelfAttention(const std::string& name, std::int64_t features, std::int64_t heads, bool qkv_bias, const Build& build)
      : heads_(heads),
        in_weight_(name + ".in_proj_weight",
                   initial_value(name + ".in_proj_weight", {3 * features, features},
                                 xavier_uniform(features, 3 * features), build),
                   ParamRole::weight),
        in_bias_{name + ".in_proj_bias", qkv_bias ? Var(filled({3 * features}, 0.0f, build.device), true) : Var(),
                 ParamRole::vector},
        out_proj_(name + ".out_proj", features, features, build, ParamRole::weight,
                  LinearInit{.weight = uniform_fan_in(features), .bias = {}}) {}

  Var forward(const Var& x) override { return forward(x, {}); }
  /// y + addend      addend: [N, T, D] or undefined
  Var forward(const Var& x, const Var& addend) {
    return out_proj_.forward(attention(affine(x, in_weight_, in_bias_.value), heads_), addend);
  }
  void list(Inventory& inventory) override {
    inventory.weights.push_back(&in_weight_);
    in_weight_.list(inventory.params);
    if (in_bias_.value.defined()) inventory.params.push_back(&in_bias_);
    out_proj_.list(inventory);
  }

 private:
  std::int64_t heads_;
  Weight in_weight_;
  Param in_bias_;  // its value is undefined without a bias
  Linear out_proj_;
};

/// y = x + attention(ln_1(x)),  z = y + mlp(ln_2(y)): pre-norm, with drop path on both branches
class EncoderBlock final : public Composite {
 public:
  EncoderBlock(const std::string& name, std::int64_t heads, double drop_path, bool qkv_bias, const Build& build)
      : ln_1_(name + ".ln_1", heads * kHeadWidth, build, kEpsilon),
        attention_(name + ".self_attention", heads * kHeadWidth, heads, qkv_bias, build),
        drop_path_1_(name + ".drop_path_1", drop_path),
        ln_2_(name + ".ln_2", heads * kHeadWidth, build, kEpsilon),
        mlp_0_(name + ".mlp.0", heads * kHeadWidth, kMlpRatio * heads * kHeadWidth, build, ParamRole::weight,
               mlp_init(heads * kHeadWidth)),
        mlp_3_(name + ".mlp.3", kMlpRatio * heads * kHeadWidth, heads * kHeadWidth, build, ParamRole::weight,
               mlp_init(heads * kHeadWidth)),
        drop_path_2_(name + ".drop_path_2", drop_path) {}

  Var forward(const Var& x) override {
    const Var y = add_branch(x, drop_path_1_, attention_, ln_1_.forward(x));
    return add_branch(y, drop_path_2_, mlp_3_, mlp_0_.forward(ln_2_.forward(y), Activation::gelu));
  }

 private:
  /// x + drop_path(last(branch)), added by the last product of the branch itself unless it may be dropped.
  template <class Last> static Var add_branch(const Var& x, DropPath& drop_path, Last& last, const Var& branch) {
    return drop_path.active() ? add(x, drop_path.forward(last.forward(branch))) : last.forward(branch, x);
  }

  /// torchvision's, of both layers.
  static LinearInit mlp_init(std::int64_t features) {
    return {.weight = xavier_uniform(features, kMlpRatio * features), .bias = {Distribution::Kind::normal, 1e-6}};
  }

  std::vector<Layer*> parts() override {
    return {&ln_1_, &attention_, &drop_path_1_, &ln_2_, &mlp_0_, &mlp_3_, &drop_path_2_};
  }

  LayerNorm ln_1_;
  SelfAttention attention_;
  DropPath drop_path_1_;
  LayerNorm ln_2_;
  Linear mlp_0_, mlp_3_;
  DropPath drop_path_2_;
};

class VisionTransformer final : public Composite {
 public:
  VisionTransformer(std::int64_t heads, const ModelSpec& spec, const Build& build)
      : features_(heads * kHeadWidth),
        tokens_(spec.image_size / kPatch * (spec.image_size / kPatch) + 1),
        class_token_{"class_token", Var(filled({1, 1, features_}, 0.0f, build.device), true), ParamRole::always_sync},
        position_{"encoder.pos_embedding",
                  Var(initial_value("encoder.pos_embedding", {1, tokens_, features_},
                                    {Distribution::Kind::normal, 0.02}, build),
                      true),
                  ParamRole::always_sync},
        conv_proj_("conv_proj", 3, features_, kPatch, {.stride = kPatch}, true, build, ParamRole::always_sync,
                   patch_init()),
        ln_("encoder.ln", features_, build, kEpsilon),
        dropout_("dropout", spec.dropout),
        head_("heads.head", features_, spec.classes, build, ParamRole::always_sync, LinearInit{}) {
    for (std::int64_t i = 0; i < kBlocks; ++i)
      blocks_.push_back(std::make_unique<EncoderBlock>(
          fmt::format("encoder.layers.encoder_layer_{}", i), heads,
          spec.drop_path * static_cast<double>(i) / static_cast<double>(kBlocks - 1), spec.qkv_bias, build));
  }

  Var forward(const Var& x) override {
    const Var patches = conv_proj_.forward(x);
    AB_CHECK(patches.shape()[1] * patches.shape()[2] == tokens_ - 1,
             "the position embedding was built for {} patches, images {} have {}", tokens_ - 1, x.shape().str(),
             patches.shape()[1] * patches.shape()[2]);
    const DType dtype = patches.value().dtype();
    Var y = embed_tokens(reshape(patches, {x.shape()[0], tokens_ - 1, features_}), cast(class_token_.value, dtype),
                         cast(position_.value, dtype));
    for (const auto& block : blocks_) y = block->forward(y);
    // The norm of the other tokens would go nowhere.
    return head_.forward(dropout_.forward(ln_.forward(first_token(y))));
  }

  void list(Inventory& inventory) override {
    inventory.params.push_back(&class_token_);
    inventory.params.push_back(&position_);
    Composite::list(inventory);
  }

 private:
  /// torchvision's: LeCun's standard deviation, sqrt(1 / fan_in). It cuts the normal distribution at ±2, which is
  /// more than fifty deviations away.
  static Distribution patch_init() {
    return {Distribution::Kind::normal, std::sqrt(1.0 / static_cast<double>(3 * kPatch * kPatch))};
  }

  std::vector<Layer*> parts() override {
    std::vector<Layer*> all{&conv_proj_};
    for (const auto& block : blocks_) all.push_back(block.get());
    all.insert(all.end(), {&ln_, &dropout_, &head_});
    return all;
  }

  std::int64_t features_, tokens_;
  Param class_token_, position_;
  Conv2d conv_proj_;
  std::vector<std::unique_ptr<EncoderBlock>> blocks_;
  LayerNorm ln_;
  Dropout dropout_;
  Linear head_;
};

}  // namespace

std::unique_ptr<Layer> make_vit(int heads, const ModelSpec& spec, const Build& build) {
  AB_CHECK(spec.image_size % kPatch == 0, "{} takes images whose size is a multiple of {}, not {}×{}", spec.name,
           kPatch, spec.image_size, spec.image_size);
  return std::make_unique<VisionTransformer>(scaled(spec, heads), spec, build);
}

}  // namespace ab

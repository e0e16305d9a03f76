#pragma once
// SPDX-License-Identifier: MIT
//
// ScaleCom (Chen et al., NeurIPS 2020, arXiv 2104.11125): in turn, one rank chooses for all which elements are sent
// (cyclic local top-k, CLT-k), so that values can be summed; a low-pass filter keeps the ranks' memories alike, so that
// the choice suits all. On rank i at compressed step t, for every compressed layer in chunks of C elements:
//   p_i = m_i + g_i
//   I   = the largest |p_ℓ| of every chunk, ℓ = t mod p        offsets broadcast by rank ℓ
//   Ĝ   = mean over i of p_i[I], zero elsewhere                one all-reduce of a value per chunk
//   m_i ← (1−β)·m_i + β·(p_i less what it sent)
// β = 1 is ordinary error feedback. Σ_t β·(g − q) = m_T − m_0 for what each rank sent (q), so the filter delays and loses
// nothing. Layers that their model keeps at full rank (the first, the classifier), biases and norms go through ordinary
// buckets.

#include <charconv>

#include "engine/kernels/sparse.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/flat.h"

namespace ab {

struct ScaleComOptions {
  std::int64_t rate = 100;           ///< C: elements of which one is sent
  std::vector<std::string> rates{};  ///< "PREFIX=C" for parameters whose names begin so; the longest prefix counts
  double beta = 1;                   ///< β

  bool operator==(const ScaleComOptions&) const = default;
};

/// C of a parameter; 0: it is exchanged in full. Throws Error(config) for a rate that is none.
inline std::int64_t scalecom_rate(const Param& param, const ScaleComOptions& options) {
  std::int64_t chosen = param.role == ParamRole::weight || param.is_factor() ? options.rate : 0;
  std::size_t longest = 0;
  for (const std::string& text : options.rates) {
    const std::size_t at = text.rfind('=');
    const char* const end = text.data() + text.size();
    std::int64_t rate = 0;
    std::from_chars_result parsed{};
    if (at != std::string::npos) parsed = std::from_chars(text.data() + at + 1, end, rate);
    AB_CHECK(at != std::string::npos && at > 0 && parsed.ec == std::errc{} && parsed.ptr == end && rate >= 1 &&
                 rate <= kMostChunkRate,
             "--scalecom.rates: '{}' is not NAME=RATE with a rate from 1 to {}", text, kMostChunkRate);
    if (param.name.starts_with(text.substr(0, at)) && at >= longest) longest = at, chosen = rate;
  }
  return chosen;
}

class ScaleComStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "scalecom";

  ScaleComStrategy(Replica replica, Comm& world, const ScaleComOptions& options, const CompressionStart& start)
      : CompressedGradients(std::move(replica), world, start), options_(options), own_(device()) {}

 private:
  /// A compressed parameter, with its parts of the flat tensors.
  struct Layer {
    ChunkedVector size;
    Tensor p{}, memory{}, offsets{}, values{};
  };

  std::vector<Param*> begin(std::int64_t /*step*/) override {
    std::vector<Param*> rest, compressed;
    for (Param* param : trained_params()) (scalecom_rate(*param, options_) > 0 ? compressed : rest).push_back(param);
    gradients_ = std::make_unique<FlatGradients>(compressed, /*with_residual=*/true);
    std::int64_t bytes = 0, chunks = 0;
    layers_.clear();
    for (const Param* param : compressed) {
      layers_.push_back({.size = {.elements = param->numel(), .rate = scalecom_rate(*param, options_)}});
      bytes += layers_.back().size.offset_bytes();
      chunks += layers_.back().size.chunks();
    }
    offsets_ = Tensor({bytes}, DType::uint8, device());
    values_ = Tensor({chunks}, DType::float32, device());
    bytes = chunks = 0;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      Layer& layer = layers_[i];
      layer.p = gradients_->part(gradients_->work(), i);
      layer.memory = gradients_->part(gradients_->residual(), i);
      layer.offsets = offsets_.slice(bytes, bytes + layer.size.offset_bytes());
      layer.values = values_.slice(chunks, chunks + layer.size.chunks());
      bytes += layer.size.offset_bytes();
      chunks += layer.size.chunks();
    }
    return rest;
  }

  void exchange(std::int64_t step) override {
    const int leader = static_cast<int>((step - settings().dense_steps) % world().size());
    gradients_->gather();
    own_.reset();
    own_.add(gradients_->work());
    if (!layers_.empty()) {
      if (world().rank() == leader)
        for (const Layer& layer : layers_) largest_of_chunks(layer.size, layer.p, layer.offsets);
      world().broadcast(offsets_, leader);
      for (const Layer& layer : layers_) take_of_chunks(layer.size, layer.p, layer.offsets, own_, layer.values);
      reduce(values_, ReduceOp::mean);
    }
    finish_rest();
    for (const Layer& layer : layers_)
      settle_chunks(layer.size, layer.offsets, layer.values, options_.beta, check(), layer.memory, layer.p);
    gradients_->hand_over();
  }

  void save_compression(StateDict& state) const override { gradients_->save(state, kName); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved, kName); }

  ScaleComOptions options_;
  std::unique_ptr<FlatGradients> gradients_;
  std::vector<Layer> layers_;
  Tensor offsets_, values_;  // of all layers: what travels
  FiniteCheck own_;
};

}  // namespace ab

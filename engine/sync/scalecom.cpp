// SPDX-License-Identifier: MIT
#include "engine/sync/scalecom.h"

#include <charconv>

namespace ab {
namespace {

struct NamedRate {
  std::string_view prefix;
  std::int64_t rate = 0;
};

NamedRate parse(const std::string& text) {
  const std::size_t at = text.rfind('=');
  NamedRate named{std::string_view(text).substr(0, at)};
  const char* const end = text.data() + text.size();
  const auto parsed =
      at == std::string::npos ? std::from_chars_result{} : std::from_chars(text.data() + at + 1, end, named.rate);
  AB_CHECK(at != std::string::npos && at > 0 && parsed.ec == std::errc{} && parsed.ptr == end && named.rate >= 1 &&
               named.rate <= kMostChunkRate,
           "--scalecom.rates: '{}' is not NAME=RATE with a rate from 1 to {}", text, kMostChunkRate);
  return named;
}

}  // namespace

std::int64_t scalecom_rate(const Param& param, const ScaleComOptions& options) {
  std::int64_t rate = param.role == ParamRole::weight || param.is_factor() ? options.rate : 0;
  std::size_t longest = 0;
  for (const std::string& text : options.rates) {
    const NamedRate named = parse(text);
    if (!param.name.starts_with(named.prefix) || named.prefix.size() < longest) continue;
    longest = named.prefix.size();
    rate = named.rate;
  }
  return rate;
}

ScaleComStrategy::ScaleComStrategy(Replica replica, Comm& world, const ScaleComOptions& options,
                                   const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options), own_(device()) {}

std::vector<Param*> ScaleComStrategy::begin(std::int64_t) {
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
    const std::int64_t begin = gradients_->begin(i), end = begin + layer.size.elements;
    layer.p = gradients_->work().slice(begin, end);
    layer.memory = gradients_->residual().slice(begin, end);
    layer.offsets = offsets_.slice(bytes, bytes + layer.size.offset_bytes());
    layer.values = values_.slice(chunks, chunks + layer.size.chunks());
    bytes += layer.size.offset_bytes();
    chunks += layer.size.chunks();
  }
  return rest;
}

void ScaleComStrategy::exchange(std::int64_t step) {
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

}  // namespace ab

// SPDX-License-Identifier: MIT
#include "engine/sync/demo.h"

#include <algorithm>

#include "engine/kernels/elementwise.h"

namespace ab {

DemoStrategy::DemoStrategy(Replica replica, Comm& world, const DemoOptions& options, const LrSchedule& schedule,
                           const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options), schedule_(schedule), dct_(device()) {
  AB_CHECK(options_.topk >= 1 && options_.topk <= kTileSide * kTileSide,
           "DeMo sends 1 to {} coefficients of a tile, got {}", kTileSide * kTileSide, options_.topk);
  AB_CHECK(!trained_params().empty(), "DeMo: the model has nothing to train");
}

std::vector<Param*> DemoStrategy::begin(std::int64_t) {
  gradients_ = std::make_unique<FlatGradients>(trained_params(), /*with_residual=*/true);
  groups_[0] = {.size = kTileSide * kTileSide, .k = options_.topk};
  groups_[1] = {.size = kTileSide, .k = std::min(options_.topk, kTileSide)};
  layers_.clear();
  for (const Param* p : gradients_->params()) {
    layers_.push_back({.grid = tile_grid(p->value.shape())});
    groups_[layers_.back().grid.is_vector()].tiles += layers_.back().grid.tiles();
  }
  TileGroup &tiles = groups_[0], &runs = groups_[1];
  runs.first_element = tiles.elements(), runs.first_entry = tiles.entries();
  entries_ = {.entries = tiles.entries() + runs.entries(), .wire = settings().gradients.dtype};
  tiles_ = Tensor({(tiles.elements() + runs.elements()) / kTileSide, kTileSide}, DType::float32, device());
  scratch_ = Tensor(tiles_.shape(), DType::float32, device());
  payload_ = Tensor::zeros({entries_.bytes()}, DType::uint8, device());
  payloads_ = Tensor({world().size() * entries_.bytes()}, DType::uint8, device());
  const Tensor flat = tiles_.view({-1});
  std::int64_t next[] = {0, tiles.elements()};
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    std::int64_t& first = next[layer.grid.is_vector()];
    layer.work =
        gradients_->work().slice(gradients_->begin(i), gradients_->begin(i) + gradients_->params()[i]->numel());
    layer.tiles = flat.slice(first, first + layer.grid.elements());
    first += layer.grid.elements();
  }
  return {};
}

void DemoStrategy::exchange(std::int64_t step) {
  const FlatGradients& g = *gradients_;
  const double rate = options_.sign ? schedule_.at(step) : 1;
  g.gather();  // G + δ
  scale_in_place(g.work(), rate);
  axpy(options_.decay - rate, g.residual(), g.work());  // μ·δ + η·G
  for (const Layer& layer : layers_) to_tiles(layer.grid, layer.work, layer.tiles);
  dct_.forward(tiles_, groups_[0].tiles, scratch_);
  for (const TileGroup& group : groups_) select_of_tiles(entries_, group, tiles_, payload_);
  world().all_gather(payload_, payloads_);
  restore(payload_);
  for (const Layer& layer : layers_) subtract_tiles(layer.grid, layer.tiles, layer.work);
  restore(payloads_);
  check().add(tiles_);
  check().choose(g.residual(), g.work(), g.residual());  // δ stays where a rank's gradient was not finite
  for (const Layer& layer : layers_) from_tiles(layer.grid, layer.tiles, layer.work);
  if (options_.sign) sign_in_place(g.work());
  g.hand_over();
}

void DemoStrategy::restore(const Tensor& payloads) const {
  for (const TileGroup& group : groups_) mean_of_senders(entries_, group, payloads, tiles_, scratch_);
  dct_.inverse(tiles_, groups_[0].tiles, scratch_);
}

}  // namespace ab

#pragma once
// SPDX-License-Identifier: MIT
//
// DeMo, decoupled momentum (Peng, Quesnelle, Kingma 2024, arXiv 2411.19870): every rank keeps a momentum and sends the
// largest of its cosine coefficients. On rank w, for all parameters in tiles of 64×64, vectors in runs of 64 (tiles.h):
//   δ_w = μ·δ_w + η·G_w                        the rank's own momentum; η is the rate of the step
//   Q_w = the k largest |DCT(δ_w)| of a tile   all-gather of values and 16-bit places
//   δ_w = δ_w − IDCT(Q_w)                      as sent, so what rounding to the type of the wire takes off stays too
//   Ĝ   = sign(IDCT(mean of Q_w over the ranks that have sent a coefficient)), equal on all ranks; sign 0 = 0
// Ĝ is an update: the optimizer is to be SGD without momentum, whose weight decay is decoupled then. A tile that the
// tensor does not fill is padded with zeros: coefficients are those of the padded tile, and what they say of the padding is lost.
// Without signs Ĝ is a gradient, for any optimizer, and η stays out of δ. Where all coefficients travel then, δ is zero after
// every step and Ĝ the mean gradient, whatever μ is: data-parallel training to rounding.
// The authors' release also scales every rank's gradient down to norm 1 before it enters δ; here it enters as it is.
// An infinity fills all coefficients of its tile, of which some are sent, so every rank sees it.

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/backend/backend.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/tile_entries.h"
#include "engine/kernels/tiles.h"
#include "engine/optim/schedule.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/flat.h"

namespace ab {

struct DemoOptions {
  std::int64_t topk = 32;  ///< k, of the 4096 coefficients of a tile; all 64 of a run at most
  double decay = 0.999;    ///< μ
  bool sign = true;        ///< of the mean, or the mean itself

  bool operator==(const DemoOptions&) const = default;
};

/// The orthonormal cosine transform (DCT-II) of every tile of a buffer, in place, with
///   C[u, x] = sqrt((u = 0 ? 1 : 2) / 64) · cos(π (2x + 1) u / 128)
///   tile [64, 64]   Y = C·X·Cᵀ      X = Cᵀ·Y·C
///   run [64]        y = C·x         x = Cᵀ·y
class TileDct {
 public:
  explicit TileDct(Device device) {
    std::vector<float> c;
    for (int u = 0; u < kTileSide; ++u)
      for (int x = 0; x < kTileSide; ++x)
        c.push_back(static_cast<float>(std::sqrt((u == 0 ? 1.0 : 2.0) / kTileSide) *
                                       std::cos(std::numbers::pi * (2 * x + 1) * u / (2.0 * kTileSide))));
    cosines_ = Tensor::from(c, {kTileSide, kTileSide}, device);
  }

  /// buffer: [rows, 64] float32, of which the first 64·tiles rows are tiles and the others runs. scratch: the same size
  void forward(const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const {
    transform(true, buffer, tiles, scratch);
  }
  void inverse(const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const {
    transform(false, buffer, tiles, scratch);
  }

 private:
  void transform(bool is_forward, const Tensor& buffer, std::int64_t tiles, const Tensor& scratch) const {
    AB_ASSERT(buffer.rank() == 2 && buffer.dim(1) == kTileSide && buffer.shape() == scratch.shape());
    const std::int64_t rows = buffer.dim(0), tile_rows = tiles * kTileSide;
    if (rows == 0) return;
    Backend& math = backend(buffer.device());
    math.gemm({.transpose_b = is_forward}, buffer, cosines_, scratch);
    const MatrixGrid all{.row_stride = kTileSide, .inner_stride = kTileSide * kTileSide};
    if (tiles > 0)
      math.batched_gemm({.inner = tiles,
                         .m = kTileSide,
                         .n = kTileSide,
                         .k = kTileSide,
                         .transpose_a = !is_forward,
                         .a = {.row_stride = kTileSide},
                         .b = all,
                         .c = all},
                        cosines_, scratch, buffer);
    if (rows > tile_rows) buffer.slice(tile_rows, rows).copy_from(scratch.slice(tile_rows, rows));
  }

  Tensor cosines_;  // C
};

class DemoStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "demo";

  DemoStrategy(Replica replica, Comm& world, const DemoOptions& options, const LrSchedule& schedule,
               const CompressionStart& start)
      : CompressedGradients(std::move(replica), world, start), options_(options), schedule_(schedule), dct_(device()) {
    AB_CHECK(options_.topk >= 1 && options_.topk <= kTileSide * kTileSide,
             "DeMo sends 1 to {} coefficients of a tile, got {}", kTileSide * kTileSide, options_.topk);
    AB_CHECK(!trained_params().empty(), "DeMo: the model has nothing to train");
  }

 private:
  /// A parameter, with its parts of the flat tensors.
  struct Layer {
    TileGrid grid;
    Tensor work{}, tiles{};
  };

  std::vector<Param*> begin(std::int64_t /*step*/) override {
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
      layer.work = gradients_->part(gradients_->work(), i);
      layer.tiles = flat.slice(first, first + layer.grid.elements());
      first += layer.grid.elements();
    }
    return {};
  }

  void exchange(std::int64_t step) override {
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

  void save_compression(StateDict& state) const override { gradients_->save(state, kName); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved, kName); }

  /// Tiles = IDCT(mean of what the payloads hold).
  void restore(const Tensor& payloads) const {
    for (const TileGroup& group : groups_) mean_of_senders(entries_, group, payloads, tiles_, scratch_);
    dct_.inverse(tiles_, groups_[0].tiles, scratch_);
  }

  DemoOptions options_;
  LrSchedule schedule_;
  std::unique_ptr<FlatGradients> gradients_;
  std::vector<Layer> layers_;
  TileGroup groups_[2];  // tiles, then runs
  TileEntries entries_;
  Tensor tiles_, scratch_;  // [rows, 64]
  Tensor payload_, payloads_;
  TileDct dct_;
};

}  // namespace ab

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

#include "engine/kernels/tile_entries.h"
#include "engine/optim/schedule.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/flat.h"
#include "engine/sync/tile_dct.h"

namespace ab {

struct DemoOptions {
  std::int64_t topk = 32;  ///< k, of the 4096 coefficients of a tile; all 64 of a run at most
  double decay = 0.999;    ///< μ
  bool sign = true;        ///< of the mean, or the mean itself

  bool operator==(const DemoOptions&) const = default;
};

class DemoStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "demo";

  DemoStrategy(Replica replica, Comm& world, const DemoOptions& options, const LrSchedule& schedule,
               const CompressionStart& start);

 private:
  /// A parameter, with its parts of the flat tensors.
  struct Layer {
    TileGrid grid;
    Tensor work{}, tiles{};
  };

  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  void save_compression(StateDict& state) const override { gradients_->save(state, kName); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved, kName); }

  /// Tiles = IDCT(mean of what the payloads hold).
  void restore(const Tensor& payloads) const;

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

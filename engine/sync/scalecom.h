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
std::int64_t scalecom_rate(const Param& param, const ScaleComOptions& options);

class ScaleComStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "scalecom";

  ScaleComStrategy(Replica replica, Comm& world, const ScaleComOptions& options, const CompressionStart& start);

 private:
  /// A compressed parameter, with its parts of the flat tensors.
  struct Layer {
    ChunkedVector size;
    Tensor p{}, memory{}, offsets{}, values{};
  };

  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  void save_compression(StateDict& state) const override { gradients_->save(state, kName); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved, kName); }

  ScaleComOptions options_;
  std::unique_ptr<FlatGradients> gradients_;
  std::vector<Layer> layers_;
  Tensor offsets_, values_;  // of all layers: what travels
  FiniteCheck own_;
};

}  // namespace ab

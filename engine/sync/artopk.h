#pragma once
// SPDX-License-Identifier: MIT
//
// AR-Topk (Tyagi & Swany, IEEE BigData 2023, arXiv 2312.02493): top-k by magnitude over all parameters together, such that
// values can be summed, as one rank chooses for all. On rank i at compressed step t, of G elements:
//   M_i = G_i + E_i      k = max(1, ⌊c·G⌋)
//   I   = the k largest |M_ℓ|                           indices broadcast by rank ℓ, 4 bytes each
//   Ĝ   = mean over i of M_i[I], zero elsewhere         one all-reduce of k values
//   E_i = M_i with zeros at I
//   star        ℓ = t mod N: only ℓ selects
//   var         ℓ has the largest Σ|M_ℓ[I_ℓ]|² (of equal ones the lowest): all select, and one float of each is gathered
//   gather      every rank sends its own k values with their indices (sparse_average.h)
//   layerwise   the same with k_l = max(1, ⌊c·G_l⌋) of every parameter l (LW-Topk)
//   automatic   star by ring, star by tree or gather, whichever artopk_switch.h finds fastest; if asked, with the ratio
//               between two bounds that it chooses
// A residual starts as zeros. The leader's turn is counted from the first compressed step.

#include <optional>

#include "engine/sync/artopk_switch.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/flat.h"
#include "engine/sync/sparse_average.h"

namespace ab {

struct ArtopkOptions {
  enum class Mode : std::uint8_t { star, var, gather, layerwise, automatic };

  double ratio = 0.01;  ///< c: share of elements that are sent
  Mode mode = Mode::star;
  std::int64_t probe_every = 100;  ///< automatic: steps of a period
  double least_ratio = 0;          ///< automatic, above 0: c is chosen for every period, from least_ratio to ratio

  bool adapts() const { return least_ratio > 0; }

  bool operator==(const ArtopkOptions&) const = default;
};

/// How many elements are sent of parameters of these sizes, in all.
std::int64_t artopk_elements(const ArtopkOptions& options, const std::vector<std::int64_t>& sizes);

/// The numbers of elements that steps may send, the most first: one, unless the ratio adapts.
std::vector<std::int64_t> artopk_choices(const ArtopkOptions& options, const std::vector<std::int64_t>& sizes);

/// The leader by variance: the rank of the largest, of equal ones the lowest.
int leader_by_variance(const std::vector<double>& energies);

class ArtopkStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "artopk";

  /// `network_is_given`: the figures of the ledger's links are those of the network.
  ArtopkStrategy(Replica replica, Comm& world, const ArtopkOptions& options, const CompressionStart& start,
                 bool network_is_given = false);

  bool follows_epochs() const override { return switch_ && switch_->steps() > 0; }
  std::map<std::string, std::int64_t> decision() const override { return switch_->decision(); }

 private:
  using Mode = ArtopkOptions::Mode;

  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  std::int64_t compressed_kind(std::int64_t step) const override {
    return switch_ ? switch_->kind(step - settings().dense_steps) : 0;
  }
  void save_compression(StateDict& state) const override;
  void load_compression(const StateDict& saved) override;

  /// Makes what a step needs that sends k elements.
  void make_room(std::int64_t k);
  int elect();
  void sum_what_one_selects(int leader, bool has_selected);
  void gather_what_each_selects();
  /// Fills `indices` with the largest of every parameter of x.
  void select_by_layer(const Tensor& x, std::uint32_t* indices);
  std::uint32_t* indices() const { return reinterpret_cast<std::uint32_t*>(indices_.data<std::uint8_t>()); }

  ArtopkOptions options_;
  bool network_is_given_;
  std::unique_ptr<FlatGradients> gradients_;
  std::int64_t k_ = 0;
  std::unique_ptr<SparseAverage> average_;      // of gather and layerwise
  std::map<std::int64_t, Selector> selectors_;  // by elements
  Tensor indices_, values_;                     // of star and var: what travels
  FiniteCheck own_;
  std::optional<ArtopkSwitch> switch_;
};

}  // namespace ab

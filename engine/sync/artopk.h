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

#include <algorithm>
#include <numeric>
#include <optional>

#include "engine/kernels/reduce.h"
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
inline std::int64_t artopk_elements(const ArtopkOptions& options, const std::vector<std::int64_t>& sizes) {
  if (options.mode != ArtopkOptions::Mode::layerwise)
    return elements_of_density(options.ratio, std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
  std::int64_t all = 0;
  for (const std::int64_t size : sizes) all += elements_of_density(options.ratio, size);
  return all;
}

/// The numbers of elements that steps may send, the most first: one, unless the ratio adapts.
inline std::vector<std::int64_t> artopk_choices(const ArtopkOptions& options, const std::vector<std::int64_t>& sizes) {
  if (!options.adapts()) return {artopk_elements(options, sizes)};
  return adaptive_elements(options.least_ratio, options.ratio,
                           std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}));
}

/// The leader by variance: the rank of the largest, of equal ones the lowest.
inline int leader_by_variance(const std::vector<double>& energies) {
  return static_cast<int>(std::ranges::max_element(energies) - energies.begin());
}

class ArtopkStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "artopk";

  /// `network_is_given`: the figures of the ledger's links are those of the network.
  ArtopkStrategy(Replica replica, Comm& world, const ArtopkOptions& options, const CompressionStart& start,
                 bool network_is_given = false)
      : CompressedGradients(std::move(replica), world, start),
        options_(options),
        network_is_given_(network_is_given),
        own_(device()) {
    AB_CHECK(!options_.adapts() || (options_.mode == Mode::automatic && options_.least_ratio <= options_.ratio),
             "AR-Topk: a ratio that adapts needs mode auto and a least ratio in (0, ratio], not {}",
             options_.least_ratio);
  }

  bool follows_epochs() const override { return switch_ && switch_->steps() > 0; }
  std::map<std::string, std::int64_t> decision() const override { return switch_->decision(); }

 private:
  using Mode = ArtopkOptions::Mode;

  std::vector<Param*> begin(std::int64_t /*step*/) override {
    gradients_ = std::make_unique<FlatGradients>(trained_params(), /*with_residual=*/true);
    std::vector<std::int64_t> sizes;
    for (const Param* param : gradients_->params()) sizes.push_back(param->numel());
    const std::int64_t n = gradients_->elements();
    const std::vector<std::int64_t> choices = artopk_choices(options_, sizes);
    selectors_.clear();
    switch_.reset();
    if (options_.mode == Mode::layerwise)
      for (const std::int64_t size : sizes) selectors_.try_emplace(size, size, device());
    else if (options_.mode != Mode::gather) selectors_.try_emplace(n, n, device());
    make_room(choices.front());
    if (options_.mode == Mode::automatic)
      switch_.emplace(world(), device(),
                      ArtopkSwitch::Options{choices, static_cast<std::int64_t>(size_of(settings().gradients.dtype)),
                                            options_.probe_every, network_is_given_});
    return {};
  }

  void exchange(std::int64_t step) override {
    const std::int64_t turn = step - settings().dense_steps;
    const int in_turn = static_cast<int>(turn % world().size());
    gradients_->gather();
    switch (options_.mode) {
      case Mode::star: sum_what_one_selects(in_turn, false); break;
      case Mode::var: sum_what_one_selects(elect(), true); break;
      case Mode::gather:
      case Mode::layerwise: gather_what_each_selects(); break;
      case Mode::automatic: {
        const ArtopkWay way = switch_->next(turn, [this] { return gains_of(gradients_->work(), switch_->choices()); });
        make_room(switch_->elements());
        const AllReduceScope scope(world().ledger(), way == ArtopkWay::tree ? AllReduce::tree : AllReduce::ring);
        if (way == ArtopkWay::gather) gather_what_each_selects();
        else sum_what_one_selects(in_turn, false);
      }
    }
    gradients_->hand_over();
  }

  std::int64_t compressed_kind(std::int64_t step) const override {
    return switch_ ? switch_->kind(step - settings().dense_steps) : 0;
  }
  void save_compression(StateDict& state) const override {
    gradients_->save(state, kName);
    if (switch_) switch_->save(state, kName);
  }
  void load_compression(const StateDict& saved) override {
    gradients_->load(saved, kName);
    if (!switch_) return;
    switch_->load(saved, kName);
    make_room(switch_->elements());
  }

  /// Makes what a step needs that sends k elements.
  void make_room(std::int64_t k) {
    if (k == k_) return;
    k_ = k;
    const bool may_gather = options_.mode != Mode::star && options_.mode != Mode::var;
    const bool may_sum = options_.mode != Mode::gather && options_.mode != Mode::layerwise;
    if (may_gather) average_ = std::make_unique<SparseAverage>(gradients_->elements(), k, world(), device());
    if (may_sum) {
      indices_ = Tensor::zeros({4 * k}, DType::uint8, device());
      values_ = Tensor({k}, DType::float32, device());
    }
  }

  int elect() {
    const Tensor& m = gradients_->work();
    const FiniteCheck unmarked(device());
    selectors_.at(m.numel()).exact(m, k_, indices());
    take_values(m, {k_, values_.data<float>(), indices()}, k_, unmarked);
    const Tensor own = Tensor::scalar(sum_of_squares(values_), DType::float32, device()).view({1});
    const Tensor all({world().size()}, DType::float32, device());
    world().all_gather(own, all);
    return leader_by_variance(all.to_doubles(0));
  }

  void sum_what_one_selects(int leader, bool has_selected) {
    const Tensor &m = gradients_->work(), &residual = gradients_->residual();
    const SparseView entries{k_, values_.data<float>(), indices()};
    if (world().rank() == leader && !has_selected) selectors_.at(m.numel()).exact(m, k_, indices());
    own_.reset();
    own_.add(m);
    world().broadcast(indices_, leader);
    take_values(m, entries, k_, own_);
    reduce(values_, ReduceOp::mean);
    check().choose(residual, m, residual);
    clear_taken(residual, entries, k_, check());
    m.set_zero();
    add_values(entries, 1, m);
  }

  void gather_what_each_selects() {
    const auto select = [this](const Selector& of_all, const Tensor& x, std::int64_t count, std::uint32_t* indices) {
      if (options_.mode == Mode::layerwise) select_by_layer(x, indices);
      else of_all.exact(x, count, indices);
    };
    average_->run(gradients_->work(), gradients_->residual(), 1.0 / world().size(), select, check());
  }

  /// Fills `indices` with the largest of every parameter of x.
  void select_by_layer(const Tensor& x, std::uint32_t* indices) {
    for (std::size_t i = 0; i < gradients_->params().size(); ++i) {
      const std::int64_t begin = gradients_->begin(i), size = gradients_->params()[i]->numel();
      const std::int64_t k = elements_of_density(options_.ratio, size);
      selectors_.at(size).exact(x.slice(begin, begin + size), k, indices);
      shift_indices(x.device(), indices, k, begin);
      indices += k;
    }
  }

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

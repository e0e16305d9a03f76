// SPDX-License-Identifier: MIT
#include "ablowrank/late_cut.h"

#include "ablowrank/moments.h"
#include "engine/kernels/elementwise.h"

namespace ab {

LateCutStrategy::LateCutStrategy(Layer& model, Comm& world, const LateCutOptions& options, CutSchedule schedule,
                                 std::unique_ptr<SyncStrategy> full_rank, Average low_rank)
    : model_(model),
      world_(world),
      options_(options),
      schedule_(std::move(schedule)),
      now_(std::move(full_rank)),
      low_rank_(std::move(low_rank)) {
  options_.validate();
  for (Weight* weight : eligible_weights(model_)) weight->set_execution(options.execution);
}

std::string LateCutStrategy::phase_name(std::size_t index, std::size_t cuts) {
  return cuts == 1 ? "low-rank" : fmt::format("low-rank-{}", index + 1);
}

std::string LateCutStrategy::phase() const {
  return cuts_ == 0 ? now_->phase() : phase_name(cuts_ - 1, schedule_.cuts().size());
}

void LateCutStrategy::start(TrainState& state) {
  now_->start(state);
  observe(0);
}

double LateCutStrategy::learning_rate(double scheduled, std::int64_t step) const {
  return now_->learning_rate(scheduled, step);
}

bool LateCutStrategy::has_transition(std::int64_t step) const {
  return now_->has_transition(step) || schedule_.cuts_at(step) ||
         schedule_.observes_at(step) != schedule_.observes_at(step - 1);
}

void LateCutStrategy::after_step(TrainState& state) {
  now_->after_step(state);
  if (schedule_.cuts_at(state.step)) cut(schedule_.cuts_until(state.step) - 1, state);
  observe(state.step);
}

/// Whether the next update is observed.
void LateCutStrategy::observe(std::int64_t step) {
  if (!schedule_.observes_at(step)) observers_.reset();
  else if (!observers_) observers_ = std::make_unique<CutObservers>(eligible_weights(model_));
}

void LateCutStrategy::cut(std::size_t index, TrainState& state) {
  if (!now_->replicas_agree()) now_->finish(state);
  world_.ledger().set_phase("split");
  const std::vector<Weight*> weights = eligible_weights(model_);
  std::map<Weight*, EarlierFactors> earlier;
  std::vector<std::int64_t> earlier_ranks;
  for (Weight* weight : weights) {
    earlier_ranks.push_back(weight->factored() ? weight->r() : 0);
    if (!weight->factored()) continue;
    earlier[weight] = take_factors(*weight, state.optimizer);
    weight->restore(product(weight->outer_matrix(), weight->inner_matrix()));
  }
  const std::vector<Param*> biases = biases_of(weights, model_);
  const std::vector<CutResult> results = cut_all(weights, earlier_ranks, biases, *observers_, options_, index, world_);
  observers_.reset();
  state.sensitivity.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const CutResult& result = results[i];
    state.sensitivity[weights[i]->name()] = result.sensitivity;
    if (!result.parts.sigma.defined()) continue;
    FactorPair pair = apply_gauge(result.parts, Gauge::split_sigma, true);
    weights[i]->factorise(std::move(pair.outer), std::move(pair.inner), Weight::Mode::train_both);
    if (const auto before = earlier.find(weights[i]); before != earlier.end())
      project_moments(before->second, *weights[i], state.optimizer);
    else project_moments(*weights[i], state.optimizer);
    if (biases[i] && result.bias_change.defined()) {
      const Tensor bias = biases[i]->value.value();
      add_in_place(bias, result.bias_change.to(bias.device()));
    }
  }
  train_factors(state);
  now_->start(state);
}

/// From here on what parameters there are now are trained.
void LateCutStrategy::train_factors(TrainState& state) {
  cuts_ = schedule_.cuts_until(state.step);
  const Inventory inventory = inventory_of(model_);
  state.optimizer.set_params(inventory.params);
  Replica replica{.params = inventory.params, .buffers = moving_buffers(inventory), .equal = true};
  if (options_.sync_bn != SyncBn::off) replica.batch_norms = inventory.batch_norms;
  now_.reset();  // the old hooks go before the new ones come
  now_ = low_rank_(std::move(replica));
}

void LateCutStrategy::save(StateDict& state) const {
  now_->save(state);
  if (observers_) observers_->save(state);
}

void LateCutStrategy::load(const StateDict& saved, TrainState& state) {
  if (schedule_.cuts_until(state.step) > 0) train_factors(state);
  now_->load(saved, state);
  observe(state.step);
  if (observers_) observers_->load(saved);
}

}  // namespace ab

// SPDX-License-Identifier: MIT
#include "ablowrank/groups/ab_strategy.h"

#include "ablowrank/split.h"
#include "engine/kernels/elementwise.h"
#include "engine/sync/flat.h"
#include "engine/sync/replica_strategy.h"
#include "engine/sync/unknowns.h"

namespace ab {

void keep_at_full_rank(const std::vector<std::string>& names, Layer& model) {
  if (names.empty()) return;
  const Inventory inventory = inventory_of(model);
  for (const std::string& name : names) {
    const auto is_it = [&](const Param* p) { return p->name == name; };
    AB_CHECK(std::any_of(inventory.params.begin(), inventory.params.end(), is_it),
             "AB-training keeps '{}' at full rank, but the model has no parameter of that name", name);
  }
  const auto is_dense_weight = [&](const Param* p) {
    return std::any_of(inventory.weights.begin(), inventory.weights.end(), [&](Weight* w) { return &w->dense() == p; });
  };
  const auto listed = [&](const Param* p) { return std::find(names.begin(), names.end(), p->name) != names.end(); };
  for (Param* p : inventory.params) {
    if (listed(p)) p->role = ParamRole::always_sync;
    else if (p->role == ParamRole::always_sync) p->role = is_dense_weight(p) ? ParamRole::weight : ParamRole::vector;
  }
}

AbStrategy::AbStrategy(Layer& model, Comm& world, const AbOptions& options, const LrSchedule& schedule)
    : model_(model), world_(world), options_(options), schedule_(schedule) {
  options_.validate();
  groups_ = make_groups(world.size(), options.group_size, options.sync == SyncMode::only_b);
  const auto group = [this](int rank) { return group_of(groups_, rank); };
  group_ = world.split(group, "group");
  batch_norms_ = std::make_unique<BatchNormSync>(options.sync_bn, inventory_of(model).batch_norms, world, group);
  keep_at_full_rank(options_.always_sync, model_);
  std::vector<Tensor> values = shared_values();
  for (const Tensor& filters : frozen_buffers(inventory_of(model))) values.push_back(filters);
  for (Weight* w : eligible_weights(model_)) {
    w->set_execution(options.execution);
    values.push_back(w->dense().value.value());
  }
  broadcast_flat(world_, values, 0);
}

void AbStrategy::start(TrainState& state) {
  enter(Phase::warmup, state);
  if (options_.schedule.first_split == 0) split(state, options_.schedule.cut_at_warmup);
}

double AbStrategy::learning_rate(double scheduled, std::int64_t step) const {
  const std::int64_t transition = options_.schedule.last_transition(step);
  return rebound_learning_rate(options_.schedule, scheduled, schedule_.at(std::max<std::int64_t>(transition, 0)), step);
}

std::string AbStrategy::role(int rank) const {
  const RankGroup& group = groups_[static_cast<std::size_t>(group_of(groups_, rank))];
  return group.alternates ? "" : group.trains == Factor::a ? "A" : "B";
}

void AbStrategy::set_gradient_exchange(bool on) {
  AB_CHECK(buckets_, "AbStrategy: call start() before the first step");
  buckets_->set_exchange(on);
}

void AbStrategy::finish_grads(TrainState&) { buckets_->finish(); }

/// At its end a run takes no cut that nothing trains any more: not its first, which would lose most of W, nor one of a model that
/// is left dense. (An LrSchedule whose length nobody gave has one step.)
Transition AbStrategy::transition_at(std::int64_t step) const {
  const Transition transition = options_.schedule.transition_at(step);
  const bool splits = transition == Transition::split || transition == Transition::split_uncut;
  const bool is_end = step > 1 && step == schedule_.total_steps;
  const bool is_idle = step == options_.schedule.first_split || options_.final_model == FinalModel::dense;
  return splits && is_end && is_idle ? Transition::none : transition;
}

bool AbStrategy::has_transition(std::int64_t step) const { return transition_at(step) != Transition::none; }

void AbStrategy::after_step(TrainState& state) {
  switch (transition_at(state.step)) {
    case Transition::none:
    case Transition::restart_rebound: return;
    case Transition::split: return split(state, true);
    case Transition::split_uncut: return split(state, false);
    case Transition::sync: sync(state); return enter(Phase::rebound, state);
  }
}

void AbStrategy::split(TrainState& state, bool cut) {
  world_.ledger().set_phase("split");
  ++cycle_;
  const std::vector<Weight*> weights = eligible_weights(model_);
  std::vector<LowRank> parts = decompose_all(weights, cut ? &options_.rank_policy : nullptr, world_, cycle_);
  const Weight::Mode mode = trained_factor() == Factor::a ? Weight::Mode::train_a : Weight::Mode::train_b;
  splits_.clear();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    Weight& weight = *weights[i];
    FactorPair pair = apply_gauge(parts[i], options_.gauge, weight.trains_outer(mode));
    const Tensor rest = options_.rest == Rest::keep ? rest_of(weight.matrix(), parts[i]) : Tensor();
    weight.factorise(std::move(pair.outer), std::move(pair.inner), mode, rest);
    carry_moments_to_factors(weight, options_.moments, state.optimizer);
    splits_.push_back({&weight, options_.sync == SyncMode::tangent ? std::move(parts[i]) : LowRank{}});
  }
  enter(Phase::low_rank, state);
}

namespace {

/// W as rejoined, plus what the split had left over.
Tensor with_rest(const Tensor& low_rank, const Weight& weight) {
  return weight.rest().defined() ? add(low_rank, weight.rest()) : low_rank;
}

std::vector<Join> join_weights(const std::vector<SplitWeight>& splits, SyncMode mode, const Trainers& trainers,
                               WeightedSum& sum) {
  std::vector<Join> joins;
  for (const SplitWeight& split : splits)
    joins.emplace_back(split, split.weight->outer_matrix(), split.weight->inner_matrix(), mode, trainers, sum);
  return joins;
}

}  // namespace

void AbStrategy::sync(TrainState& state) {
  world_.ledger().set_phase("sync");
  // What the groups trained side by side becomes its mean, optimizer state included: ranks that continued with
  // different momentum would drift apart.
  std::vector<Tensor> shared = shared_values();
  for (const Param* p : inventory_of(model_).params) {
    if (p->is_factor()) continue;
    for (const Tensor& moment : {state.optimizer.state(*p).first_moment, state.optimizer.state(*p).second_moment})
      if (moment.defined()) shared.push_back(moment);
  }
  WeightedSum sum;
  for (const Tensor& t : shared) sum.add(t, 1.0 / world_.size());
  const std::vector<Join> weights = join_weights(splits_, options_.sync, trainers(), sum);
  std::vector<std::pair<std::size_t, Join>> moments;
  for (std::size_t i = 0; i < splits_.size(); ++i)
    if (moments_can_join(options_, splits_[i], state.optimizer))
      moments.emplace_back(i, join_moments(splits_[i], options_, trainers(), state.optimizer, sum));
  sum.run(world_);

  for (std::size_t i = 0; i < shared.size(); ++i) shared[i].copy_from(sum.result(i));
  std::vector<Tensor> dense_moments(splits_.size());
  for (const auto& [i, join] : moments) dense_moments[i] = join.dense(sum);
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    splits_[i].weight->restore(with_rest(weights[i].dense(sum), *splits_[i].weight));
    carry_moments_to_dense(*splits_[i].weight, options_.moments, dense_moments[i], state.optimizer);
    shared.push_back(splits_[i].weight->dense().value.value());
    if (dense_moments[i].defined()) shared.push_back(dense_moments[i]);
  }
  splits_.clear();
  check_replicas(world_, shared, "after a synchronisation");
}

void AbStrategy::enter(Phase phase, TrainState& state) {
  phase_ = phase;
  std::vector<Param*> params = inventory_of(model_).params;
  state.optimizer.set_params(params);
  std::erase_if(params, [](const Param* p) { return !p->trainable(); });
  batch_norms_->enter(phase == Phase::low_rank);
  buckets_.reset();  // the old hooks go before the new ones come
  buckets_ = std::make_unique<GradientBuckets>(params, phase == Phase::low_rank ? *group_ : world_, ReduceOp::mean,
                                               options_.gradients);
}

void AbStrategy::average_buffers() { all_reduce_flat(world_, moving_buffers(inventory_of(model_)), ReduceOp::mean); }

void AbStrategy::begin_evaluation(TrainState&) {
  if (phase_ != Phase::low_rank) return average_buffers();

  WeightedSum sum;
  const std::vector<Tensor> shared = shared_values();
  for (const Tensor& t : shared) sum.add(t, 1.0 / world_.size());
  const std::vector<Join> joins = join_weights(splits_, options_.sync, trainers(), sum);
  sum.run(world_);
  trained_ = {};
  for (std::size_t i = 0; i < shared.size(); ++i) {
    trained_.shared.push_back(shared[i].clone());
    shared[i].copy_from(sum.result(i));
  }
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    Weight& weight = *splits_[i].weight;
    trained_.factors.push_back({weight.outer().value.value(), weight.inner().value.value()});
    trained_.rests.push_back(weight.rest());
    weight.restore(with_rest(joins[i].dense(sum), weight));
  }
}

void AbStrategy::end_evaluation(TrainState&) {
  if (phase_ != Phase::low_rank) return;
  const Weight::Mode mode = trained_factor() == Factor::a ? Weight::Mode::train_a : Weight::Mode::train_b;
  for (std::size_t i = 0; i < splits_.size(); ++i)
    splits_[i].weight->factorise(trained_.factors[i].outer, trained_.factors[i].inner, mode, trained_.rests[i]);
  const std::vector<Tensor> shared = shared_values();
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i].copy_from(trained_.shared[i]);
  trained_ = {};
}

void AbStrategy::finish(TrainState& state) {
  if (phase_ != Phase::low_rank) return average_buffers();
  sync(state);
  state.optimizer.set_params(inventory_of(model_).params);
}

/// Splits the rejoined model once more, into the same factors on every rank; a weight that would not get smaller
/// stays dense.
void AbStrategy::leave(TrainState& state) {
  if (phase_ != Phase::low_rank || options_.final_model != FinalModel::factors) return;
  world_.ledger().set_phase("split");
  const std::vector<Weight*> weights = eligible_weights(model_);
  const std::vector<LowRank> parts =
      decompose_all(weights, &options_.rank_policy, world_, Unknowns::kAtTheEnd, factors_are_smaller);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (!parts[i].outer.defined()) continue;
    Weight& weight = *weights[i];
    FactorPair pair = apply_gauge(parts[i], Gauge::split_sigma, true);
    weight.factorise(std::move(pair.outer), std::move(pair.inner), Weight::Mode::train_a);
  }
  state.optimizer.set_params(inventory_of(model_).params);
}

void AbStrategy::save(StateDict& state) const {
  state.put("ab.phase", std::string(name_of(phase_)));
  state.put("ab.cycle", cycle_);
  for (const SplitWeight& split : splits_) {
    if (!split.origin.sigma.defined()) continue;
    const std::string name = "ab.origin." + split.weight->name();
    state.put(name + ".outer", split.origin.outer);
    state.put(name + ".sigma", split.origin.sigma);
    state.put(name + ".inner", split.origin.inner);
  }
}

void AbStrategy::load(const StateDict& saved, TrainState& state) {
  cycle_ = saved.integer("ab.cycle");
  splits_.clear();
  for (Weight* weight : eligible_weights(model_)) {
    if (!weight->factored()) continue;
    LowRank origin;
    if (options_.sync == SyncMode::tangent) {
      const std::string name = "ab.origin." + weight->name();
      const Device device = weight->outer().value.value().device();
      origin = {saved.tensor(name + ".outer").to(device), saved.tensor(name + ".sigma").to(device),
                saved.tensor(name + ".inner").to(device)};
    }
    splits_.push_back({weight, std::move(origin)});
  }
  for (const Phase phase : {Phase::warmup, Phase::low_rank, Phase::rebound})
    if (saved.text("ab.phase") == name_of(phase)) return enter(phase, state);
  throw Error(ErrorKind::checkpoint,
              fmt::format("the checkpoint is in a phase '{}' that AB-training does not have", saved.text("ab.phase")));
}

/// Everything that is not a factorised weight: biases, norms, always-sync parameters and running statistics.
std::vector<Tensor> AbStrategy::shared_values() const {
  const Inventory inventory = inventory_of(model_);
  const std::vector<Weight*> eligible = eligible_weights(model_);
  std::vector<Tensor> values;
  for (const Param* p : inventory.params) {
    const auto owns = [&](Weight* w) { return p == &w->dense() || p == &w->a() || p == &w->b(); };
    if (std::none_of(eligible.begin(), eligible.end(), owns)) values.push_back(p->value.value());
  }
  for (const Tensor& statistic : moving_buffers(inventory)) values.push_back(statistic);
  return values;
}

Trainers AbStrategy::trainers() const {
  return {trainers_of(groups_, Factor::a, cycle_), trainers_of(groups_, Factor::b, cycle_), world_.size()};
}

Factor AbStrategy::trained_factor() const {
  return groups_[static_cast<std::size_t>(group_of(groups_, world_.rank()))].trained_in_cycle(cycle_);
}

}  // namespace ab

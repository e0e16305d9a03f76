// SPDX-License-Identifier: MIT
#include "apps/plan/rehearsal.h"

#include <algorithm>
#include <limits>
#include <set>

#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "apps/train/train_loop.h"
#include "engine/core/hash.h"
#include "engine/core/memory.h"
#include "engine/device/shapes/shapes.h"
#include "layers/model_state.h"
#include "layers/weight.h"

namespace ab {
namespace {

/// Images that nobody looks at.
class UnseenImages final : public Dataset {
 public:
  UnseenImages(const DataShape& shape, std::int64_t images) {
    name = "images";
    count = images;
    height = width = static_cast<int>(shape.image_size);
    classes = static_cast<int>(shape.classes);
  }
  int label(std::int64_t i) const override { return static_cast<int>(i % classes); }
  ImageView read(std::int64_t, Image&, const ChoosePart&) const override {
    throw Bug("bug in abtrain: a rehearsal read an image");
  }
  std::uint64_t fingerprint() const override { return 0; }
};

/// All that decides about a model's work beside its images: shapes, what trains, what is observed.
std::uint64_t form_of(Layer& model) {
  std::vector<std::int64_t> form;
  const Inventory inventory = inventory_of(model);
  for (const Param* p : inventory.params) {
    form.insert(form.end(), p->value.shape().begin(), p->value.shape().end());
    form.push_back(p->trainable() ? -1 : -2);
  }
  for (const Weight* weight : inventory.weights) form.push_back(weight->observer() != nullptr);
  return hash64(form.data(), form.size() * sizeof(form[0]), 0);
}

std::int64_t taken(const Tensor& t) {
  return t.defined() ? static_cast<std::int64_t>(block_bytes(t.device(), t.bytes())) : 0;
}

/// Memory held now, at the end of a step whose gradients are still there.
MemoryUse memory_by_owner(Learner& learner) {
  MemoryUse use;
  for (Param* p : inventory_of(*learner.model).params) {
    use.weights += taken(p->value.value());
    use.gradients += taken(p->value.grad());
  }
  for (const Param* p : all_params(*learner.model)) {
    const ParamState& state = learner.optimizer->state(*p);
    use.optimizer += taken(state.first_moment) + taken(state.second_moment);
  }
  for (const Tensor& buffer : learner.buffers()) use.buffers += taken(buffer);
  if (learner.average) {
    const Inventory average = inventory_of(learner.average->model(*learner.model));
    for (const Param* p : average.params) use.average += taken(p->value.value());
    for (const Buffer& buffer : average.buffers) use.average += taken(buffer.value);
  }
  return use;
}

/// Takes a part of each sort and counts how often it comes.
class Walk final : public Repetition {
 public:
  Walk(RehearsalComm& world, Device device, std::int64_t in_flight)
      : world_(world), memory_(memory(device)), in_flight_(in_flight) {
    restart_shapes(device);
    live_before_ = memory_.stats().live_bytes;
    memory_.restart_peak();
    begin({.ledger = empty()});
  }

  bool leaves_out(const Part& part, bool may, Learner& learner) override {
    if (roles_.empty()) {
      form_ = form_of(*learner.model);
      for (int rank = 0; rank < world_.size(); ++rank) roles_.push_back(learner.strategy->role(rank));
    }
    if (may) {
      const auto known = taken_.find({part, form_});
      if (known != taken_.end()) {
        ++parts_[known->second].times;
        note(known->second);
        return true;
      }
    }
    end();
    may_come_again_ = may && (part.micro_batches == 0 || (steps_ >= in_flight_ && steps_of_form_ > 0));
    part_ = part;
    begin({.phase = part.phase, .micro_batches = part.micro_batches, .image_side = part.image_side, .ledger = empty()});
    return false;
  }

  void ends(Learner& learner) override {
    RehearsedPart& part = parts_.back();
    part.memory = memory_by_owner(learner);
    const MemoryStats stats = memory_.stats();
    part.memory.method = stats.live_bytes - live_before_ - part.memory.total();
    part.memory.activations = stats.peak_bytes - stats.live_bytes;
    steps_ += part.micro_batches > 0, steps_of_form_ += part.micro_batches > 0;
    if (may_come_again_) taken_[{part_, form_}] = parts_.size() - 1;
    const std::uint64_t form = form_of(*learner.model);
    if (std::exchange(form_, form) != form) steps_of_form_ = 0;
    end();
    begin({.ledger = empty()});
  }

  /// After the end of the run. What follows the last validation is not of the run: summaries, a check of replicas.
  void finish(RehearsedRank& rank) {
    end();
    parts_.pop_back();
    order_.pop_back();
    rank.ledger = empty();
    for (const RehearsedPart& part : parts_) rank.ledger.merge(part.ledger, part.times);
    rank.parts = std::move(parts_);
    rank.order = std::move(order_);
    rank.peak_bytes = peak_;
    rank.partitions = world_.record().partitions;
    rank.roles = roles_;
  }

 private:
  Ledger empty() {
    Ledger none = world_.ledger();
    none.take();
    return none;
  }

  void note(std::size_t part) {
    if (order_.empty() || order_.back().first != part) order_.emplace_back(part, 0);
    ++order_.back().second;
  }

  void begin(RehearsedPart part) {
    note(parts_.size());
    part.times = 1;
    part.flops_before = shapes_flops();
    parts_.push_back(std::move(part));
    memory_.restart_peak();
  }

  void end() {
    RehearsedPart& part = parts_.back();
    part.ledger = world_.ledger().take();
    part.events = std::exchange(world_.record().events, {});
    part.flops = shapes_flops() - part.flops_before;
    peak_ = std::max(peak_, memory_.stats().peak_bytes - live_before_);
  }

  RehearsalComm& world_;
  Memory& memory_;
  std::int64_t live_before_, peak_ = 0;
  std::vector<RehearsedPart> parts_;
  std::vector<std::string> roles_;
  std::map<std::pair<Part, std::uint64_t>, std::size_t> taken_;  // of parts_
  std::uint64_t form_ = 0;                                       // of the model, which changes at transitions alone
  Part part_;
  bool may_come_again_ = false;
  std::int64_t steps_ = 0, in_flight_;  // steps taken, and of how many the first start what later ones wait for
  std::int64_t steps_of_form_ = 0;      // the first of them makes optimizer state
  std::vector<std::pair<std::size_t, std::int64_t>> order_;
};

/// The groups of a rank, by how they lie on nodes; and what it does that others do not.
using Sort = std::pair<std::string, std::vector<Route>>;

std::vector<Sort> sorts_of_ranks(const RehearsedRank& rank) {
  std::vector<Sort> sorts;
  for (const std::string& role : rank.roles) sorts.push_back({role, {}});
  std::set<Partition> known;
  for (const Partition& partition : rank.partitions) {
    if (!known.insert(partition).second) continue;
    for (const auto& [colour, members] : groups_of(partition)) {
      const Route route = route_of(Collective::all_reduce, AllReduce::direct, rank.ledger.layout_of(members));
      for (const int member : members) sorts[static_cast<std::size_t>(member)].second.push_back(route);
    }
  }
  return sorts;
}

}  // namespace

Device shapes_for(const TrainConfig& config) { return config.device == "cpu" ? kShapesOfCpu : kShapesOfGpu; }

std::map<int, std::vector<int>> groups_of(const Partition& partition) {
  std::map<int, std::vector<int>> groups;
  for (std::size_t r = 0; r < partition.group_of.size(); ++r)
    groups[partition.group_of[r]].push_back(static_cast<int>(r));
  return groups;
}

std::map<std::string, std::int64_t> RehearsedRank::times() const {
  std::map<std::string, std::int64_t> times;
  for (const RehearsedPart& part : parts) {
    std::set<std::string> waited_in;
    for (const CommEvent& event : part.events)
      if (!event.starts && event.phase != part.phase) waited_in.insert(event.phase);
    for (const std::string& phase : waited_in) times[phase] += part.times;
  }
  return times;
}

RehearsedRank rehearse_rank(const TrainConfig& asked, const DataShape& data, int rank, int world_size,
                            const Unknowns& unknowns) {
  TrainConfig config = asked;
  config.out.clear(), config.resume.clear();
  config.save_every = 0;
  config.cuda_graph = "off";  // shapes cannot be captured
  config.log_every = std::numeric_limits<std::int64_t>::max();
  const Unknowns::Scope scope(unknowns);
  RehearsalComm world(rank, world_size, {.ranks_per_node = config.ranks_per_node, .wiring = planned_wiring(config)});
  const Device device = shapes_for(config);
  Walk walk(world, device, world_size > 1 ? StopAgreement::lag(config.accumulate) : 0);
  RehearsedRank result{.rank = rank, .ledger = world.ledger()};
  // As the program does, ranks compare settings and images.
  for (int i = 0; i < 2; ++i) world.all_gather(Tensor::zeros({1}, DType::int64), Tensor({world.size()}, DType::int64));
  ModelSpec spec = make_model_spec(config, data.classes, data.image_size);
  spec.draw = false;
  TrainListener listener;
  listener.repetition = &walk;
  listener.on_split = [&](const SplitMetrics& cut) { result.cut_r = cut.layers; };
  const TrainAndTest images{std::make_shared<UnseenImages>(data, data.train),
                            std::make_shared<UnseenImages>(data, data.test)};
  result.summary = train(config, world, images, listener, {}, make_model(spec, device)).summary;
  walk.finish(result);
  return result;
}

RehearsedRun rehearse(const TrainConfig& config, const DataShape& data, int world_size, const Unknowns& unknowns) {
  RehearsedRun run;
  RehearsedRank first = rehearse_rank(config, data, 0, world_size, unknowns);
  const std::vector<Sort> sorts = sorts_of_ranks(first);
  std::map<Sort, int> known;
  for (int rank = 0; rank < world_size; ++rank) {
    const Sort& sort = sorts[static_cast<std::size_t>(rank)];
    const auto [at, is_new] = known.try_emplace(sort, static_cast<int>(run.classes.size()));
    if (is_new)
      run.classes.push_back(
          {.role = sort.first,
           .rank = rank == 0 ? std::move(first) : rehearse_rank(config, data, rank, world_size, unknowns)});
    ++run.classes[static_cast<std::size_t>(at->second)].count;
    run.class_of_rank.push_back(at->second);
  }
  return run;
}

Summary summary_of(const RehearsedRun& run) {
  std::vector<std::vector<double>> row_of_class;
  for (const RehearsedClass& ranks : run.classes) row_of_class.push_back(traffic_row(ranks.rank.ledger));
  std::vector<double> rows;
  for (const int index : run.class_of_rank) {
    const std::vector<double>& row = row_of_class[static_cast<std::size_t>(index)];
    rows.insert(rows.end(), row.begin(), row.end());
  }
  const RehearsedRank& first = run.classes.front().rank;
  std::vector<std::string> phases;
  for (const auto& [phase, entry] : first.ledger.by_phase()) phases.push_back(phase);
  Summary summary = first.summary;
  set_traffic(rows, phases, summary);
  return summary;
}

}  // namespace ab

#pragma once
// SPDX-License-Identifier: MIT
//
// A tour of low-rank training: four processes, threads of this one, train a small network on drawn pictures, and its one large
// weight W goes through a method as it does in a real run. ablowrank/README.md explains the lines that it prints.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "data/shape_images.h"
#include "engine/comm/comm.h"
#include "engine/optim/optimizer.h"
#include "engine/sync/sync_strategy.h"
#include "layers/linear.h"

namespace ab::tour {

inline constexpr int kProcesses = 4, kBatch = 32, kSide = 16, kPixels = kSide * kSide, kHidden = 256;
inline constexpr int kLowRankSteps = 80, kReboundSteps = 20, kLastSteps = 60;
inline constexpr int kNoteSteps = 20;  ///< from one note of the losses to the next
inline constexpr double kRate = 0.05;

struct Flags {
  std::string method = "ab";
  int r = 0;         ///< 0: 64 for AB-training, and as the loss asks for the late cut
  int warmup = 400;  ///< steps at full rank before the first split, or the cut
  std::uint64_t seed = 0;
  std::string html{};  ///< the page to write; empty: none

  int kept() const { return r > 0 ? r : 64; }
  int steps() const { return warmup + kLowRankSteps + kReboundSteps + kLastSteps; }
};

/// logits = C gelu(W x + b) + c.   x: [N, 256], W: [256, 256], C: [10, 256], which stays whole
class Network final : public Composite {
 public:
  explicit Network(std::uint64_t seed)
      : hidden_("hidden", kPixels, kHidden, {.seed = seed}),
        classifier_("classifier", kHidden, 10, {.seed = seed}, ParamRole::always_sync) {}

  Var forward(const Var& x) override { return classifier_.forward(hidden_.forward(x, Activation::gelu)); }
  Weight& weight() { return *inventory_of(*this).weights[0]; }
  Param& bias();

 private:
  std::vector<Layer*> parts() override { return {&hidden_, &classifier_}; }
  Linear hidden_, classifier_;
};

struct Pictures {
  Tensor x, labels;  ///< [N, 256] grey values around 0; [N] int64

  Pictures batch(std::int64_t step, int process) const;
};
/// Shapes of ten kinds, 32×32 pixels in colour, made 16×16 in grey.
Pictures draw(Split split, int count, std::uint64_t seed);

struct Score {
  double loss = 0, top1 = 0;
};
/// On pictures that no process trains on.
Score score(Network& model, const Pictures& test);

/// W at one moment, on one process.
struct Moment {
  int step = 0, process = 0;
  std::string phase{};
  std::vector<double> sigma{};  ///< [256], descending
  Score score{};
  double sent_bytes = 0;  ///< by this process until then
};

/// One gradient of W, and the share of it that PowerSGD sends.
struct OneGradient {
  static constexpr int kStep = 100, kRank = 8;
  std::vector<double> sigma{};                         ///< [256]
  double best = 0, from_random_q = 0, from_old_q = 0;  ///< shares of its square that rank 8 holds
};

/// A training as the page shows it.
using Story = std::vector<Moment>;

/// W after training, cut to r by its singular values and by the loss.
struct CutAtRank {
  int r = 0;
  Score by_sigma{}, by_loss{};
};
struct TrainedWeight {
  Tensor w;                         ///< [256, 256]
  std::vector<double> sensitivity;  ///< by how much the loss rises without each direction, descending
  std::vector<CutAtRank> cuts;
};

struct Tour {
  explicit Tour(const Flags& given);

  Flags flags;
  Pictures train, test;
  std::map<int, Score> dense;  ///< dense training, by step
  std::map<int, double> dense_sent;
  OneGradient gradient{};
  TrainedWeight trained{};
  Story ab{}, late_cut{};
  std::array<Tensor, kProcesses> apart{};  ///< W of each process before AB-training rejoins them
  int cut_r = 0;                           ///< of the late cut
};

/// One process's part of a training: its replica, and the words for what becomes of W.
class Guide {
 public:
  Guide(Tour& tour, Comm& world, Story& story);

  Network model;
  std::unique_ptr<Optimizer> optimizer;
  TrainState state;

  /// One update of this process's replica, on its own pictures.
  void train_step(SyncStrategy& strategy);
  /// Process 0 prints a line.
  void say(const std::string& line) const;
  void say_columns() const;
  /// One line from `process`: some singular values of W, the share of the first in the sum of their squares, how many are not 0,
  /// the loss on pictures that training never sees, and that of dense training after as many steps. Collective.
  void show(const std::string& words, const std::string& phase, int process = 0);
  /// The same for the story alone, every so many steps, from the processes whose W differ.
  void note(const std::string& phase, bool apart);

 private:
  Moment moment(const std::string& phase) const;

  Tour& tour_;
  Comm& world_;
  Story& story_;
};

/// Prints the bytes that process 0 has sent, by phase.
void show_traffic(Comm& world);

void train_dense(Tour& tour, Comm& world);
void train_ab(Tour& tour, Comm& world);
void train_late_cut(Tour& tour, Comm& world);

/// The page of all three trainings: one file that needs nothing else.
std::string page(const Tour& tour);

}  // namespace ab::tour

// SPDX-License-Identifier: MIT
//
// lowrank_tour: low-rank training told by one run. Seconds on a CPU.
#include "apps/tour/tour.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "ablowrank/factorise.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/ops/loss.h"

namespace ab::tour {

Param& Network::bias() {
  for (Param* param : inventory_of(*this).params)
    if (param->name == "hidden.bias") return *param;
  throw Error(ErrorKind::config, "the hidden layer has no bias");
}

Pictures Pictures::batch(std::int64_t step, int process) const {
  const std::int64_t begin = (step * kProcesses + process) * kBatch % x.dim(0);
  return {x.slice(begin, begin + kBatch), labels.slice(begin, begin + kBatch)};
}

Pictures draw(Split split, int count, std::uint64_t seed) {
  Pictures all{Tensor::zeros({count, kPixels}), Tensor({count}, DType::int64)};
  std::array<std::uint8_t, kShapeImageBytes> planes;
  for (int i = 0; i < count; ++i) {
    draw_shape_image(seed, split, i, planes);
    all.labels.data<std::int64_t>()[i] = shape_label(i);
    float* x = all.x.data<float>() + i * kPixels;
    for (int p = 0; p < static_cast<int>(planes.size()); ++p) {
      const int row = p / kShapeImageSide % kShapeImageSide, column = p % kShapeImageSide;
      x[row / 2 * kSide + column / 2] += (planes[static_cast<std::size_t>(p)] - 110.0f) / (12 * 50);
    }
  }
  return all;
}

Score score(Network& model, const Pictures& test) {
  const NoGradScope no_grad;
  const Var logits = model.forward(Var(test.x));
  const std::int64_t count = test.x.dim(0), classes = logits.value().dim(1);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const float* row = logits.value().data<float>() + i * classes;
    right += std::max_element(row, row + classes) - row == test.labels.data<std::int64_t>()[i];
  }
  return {softmax_cross_entropy(logits, test.labels).value().item(),
          static_cast<double>(right) / static_cast<double>(count)};
}

Tour::Tour(const Flags& given)
    : flags(given), train(draw(Split::train, 16384, given.seed)), test(draw(Split::test, 1024, given.seed)) {}

Guide::Guide(Tour& tour, Comm& world, Story& story)
    : model(tour.flags.seed),
      optimizer(make_sgd(inventory_of(model).params, {.momentum = 0.9})),
      state{0, *optimizer},
      tour_(tour),
      world_(world),
      story_(story) {}

void Guide::train_step(SyncStrategy& strategy) {
  const Pictures batch = tour_.train.batch(state.step, world_.rank());
  world_.ledger().set_phase(strategy.phase());
  optimizer->clear_grads();
  backward(softmax_cross_entropy(model.forward(Var(batch.x)), batch.labels));
  strategy.finish_grads(state);
  optimizer->step(strategy.learning_rate(kRate, state.step));
  ++state.step;
}

void Guide::say(const std::string& line) const {
  if (world_.rank() == 0) std::puts(line.c_str());
}

void Guide::say_columns() const {
  say(fmt::format("{:<23}   s_1   s_2   s_4   s_8  s_16  s_32  s_64 s_128 {:>8} {:>6} {:>6} {:>6}", "W [256 x 256]",
                  fmt::format("first {}", tour_.flags.kept()), "rank", "loss", "dense"));
}

Moment Guide::moment(const std::string& phase) const {
  auto& network = const_cast<Network&>(model);
  const Tensor w = network.weight().formed().value();
  return {.step = static_cast<int>(state.step),
          .process = world_.rank(),
          .phase = phase,
          .sigma = decompose(w, nullptr).sigma.to_doubles(),
          .score = score(network, tour_.test),
          .sent_bytes = static_cast<double>(world_.ledger().total().wire_bytes())};
}

void Guide::show(const std::string& words, const std::string& phase, int process) {
  world_.ledger().set_phase("shown");
  if (world_.rank() == process) {
    const Moment now = moment(phase);
    double all = 0, first = 0;
    int rank = 0;
    for (std::size_t i = 0; i < now.sigma.size(); ++i) {
      all += now.sigma[i] * now.sigma[i];
      if (i < static_cast<std::size_t>(tour_.flags.kept())) first = all;
      rank += now.sigma[i] > 1e-5 * now.sigma[0];
    }
    std::string line = fmt::format("{:<23}", words);
    for (const std::size_t i : {1, 2, 4, 8, 16, 32, 64, 128}) line += fmt::format(" {:5.2f}", now.sigma[i - 1]);
    std::puts(fmt::format("{} {:6.0f} % {:6} {:6.2f} {:6.2f}", line, 100 * first / all, rank, now.score.loss,
                          tour_.dense.at(now.step).loss)
                  .c_str());
    story_.push_back(now);
  }
  world_.barrier();
}

void Guide::note(const std::string& phase, bool apart) {
  if (state.step % kNoteSteps != 0) return;
  world_.ledger().set_phase("shown");
  for (const int process : {0, kProcesses / 2}) {
    if (world_.rank() == process && (process == 0 || apart)) story_.push_back(moment(phase));
    world_.barrier();
  }
}

void show_traffic(Comm& world) {
  if (world.rank() != 0) return;
  std::puts("\nProcess 0 sent  collectives       kB  kB each");
  for (const auto& [phase, sent] : world.ledger().by_phase())
    if (sent.wire_bytes() > 0)
      std::puts(fmt::format("{:<15} {:11} {:8.0f} {:8.1f}", phase, sent.calls, sent.wire_bytes() / 1e3,
                            sent.wire_bytes() / 1e3 / static_cast<double>(sent.calls))
                    .c_str());
}

namespace {

void take(const Flags& flags) {
  Tour tour(flags);
  const auto train = [&](void (*training)(Tour&, Comm&)) {
    run_thread_ranks(kProcesses, {}, [&](Comm& world) { training(tour, world); });
  };
  const bool all = !flags.html.empty();
  train(train_dense);
  if (all || flags.method == "ab") train(train_ab);
  if (all) std::puts("");
  if (all || flags.method == "late-cut") train(train_late_cut);
  if (!all) return;
  write_file_atomically(flags.html, page(tour));
  std::printf("\nThe page: %s\n", flags.html.c_str());
}

}  // namespace
}  // namespace ab::tour

int main(int argc, char** argv) {
  using namespace ab::tour;
  Flags flags;
  CLI::App app(
      "A tour of low-rank training: four processes train a small network on drawn pictures, and one weight W, 256 x 256, "
      "goes through a method. ablowrank/README.md explains the lines.");
  app.add_option("--method", flags.method, "ab: AB-training by groups. late-cut: one cut, ranks from the loss")
      ->check(CLI::IsMember({"ab", "late-cut"}))
      ->capture_default_str();
  app.add_option("--r", flags.r, "directions that a cut keeps [default: 64; of a late cut as the loss asks]")
      ->check(CLI::Range(1, kHidden / 2 - 1));
  app.add_option("--warmup", flags.warmup, "steps at full rank before it, a multiple of 20")
      ->check(CLI::Range(40, 10000))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "of weights and pictures")->capture_default_str();
  app.add_option("--html", flags.html, "writes a page of both methods, which needs nothing but itself");
  try {
    app.parse(argc, argv);
    AB_CHECK(flags.html.empty() || app.count("--method") == 0, "--html takes both methods: leave --method away");
    AB_CHECK(flags.warmup % kNoteSteps == 0, "--warmup {} is not a multiple of {}", flags.warmup, kNoteSteps);
    take(flags);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ab::ErrorKind::config);
  } catch (const ab::Error& error) {
    std::fprintf(stderr, "lowrank_tour: %s\n", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lowrank_tour: %s\n", error.what());
    return 1;
  }
}

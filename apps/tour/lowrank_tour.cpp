// SPDX-License-Identifier: MIT
//
// lowrank_tour: low-rank training told by one run. Seconds on a CPU.

#include <CLI/CLI.hpp>
#include <cstdio>

#include "apps/tour/tour.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"

namespace {

using namespace ab::tour;

void take(const Flags& flags) {
  Tour tour(flags);
  const auto train = [&](void (*training)(Tour&, ab::Comm&)) {
    ab::run_thread_ranks(kProcesses, {}, [&](ab::Comm& world) { training(tour, world); });
  };
  const bool all = !flags.html.empty();
  train(train_dense);
  if (all || flags.method == "ab") train(train_ab);
  if (all) std::puts("");
  if (all || flags.method == "late-cut") train(train_late_cut);
  if (!all) return;
  ab::write_file_atomically(flags.html, page(tour));
  std::printf("\nThe page: %s\n", flags.html.c_str());
}

}  // namespace

int main(int argc, char** argv) {
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

// SPDX-License-Identifier: MIT
//
// A rank that fails in the middle of a step, for every method of apps/methods and every kind of its steps: between two
// collectives of the exchange. The others end as soon as they hear of it, or once they have waited long enough, with
// one sentence and the exit code of the failure; nobody hangs, and nothing in flight keeps anybody. A new row of
// method_laws.h is held to this by threads without a line here; processes do it for methods whose exchanges are least alike.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <list>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

#include "apps/commands/commands.h"
#include "engine/comm/launcher.h"
#include "engine/core/threads.h"
#include "tests/method_steps.h"
#include "tests/program_test.h"
#include "tests/watched_comm.h"

namespace ab {
namespace {

using test::all_variants, test::AtCollective, test::kSteps, test::small_run, test::Steps, test::Variant,
    test::WatchedComm;
using namespace std::chrono_literals;

constexpr int kRanks = 3, kFailing = 1;

/// The small run on this rank, up to `fault` at its collective number `at`.
void train_rank(const TrainConfig& config, Comm& transport, std::int64_t at, const AtCollective& fault) {
  set_compute_threads(1);
  std::int64_t number = 0;
  WatchedComm world(transport, [&] {
    if (number++ == at) fault();
  });
  Steps steps(config, world);
  while (steps.done() < kSteps) steps.step();
  steps.strategy().finish(steps.state());
  steps.strategy().leave(steps.state());
}

/// The phase of every collective that the rank which is to fail starts in the small run.
std::vector<std::string> collectives_of(const TrainConfig& config) {
  std::vector<std::string> phases;
  run_thread_ranks(kRanks, {}, [&](Comm& transport) {
    set_compute_threads(1);
    Ledger* books = nullptr;
    WatchedComm world(transport, [&] {
      if (transport.rank() == kFailing) phases.push_back(books->phase());
    });
    books = &world.ledger();
    Steps steps(config, world);
    while (steps.done() < kSteps) steps.step();
    steps.strategy().finish(steps.state());
    steps.strategy().leave(steps.state());
  });
  return phases;
}

/// First, middle and last collective of every phase.
std::set<std::int64_t> places_of(const std::vector<std::string>& phases) {
  std::map<std::string, std::vector<std::int64_t>> by_phase;
  for (std::size_t i = 0; i < phases.size(); ++i) by_phase[phases[i]].push_back(static_cast<std::int64_t>(i));
  std::set<std::int64_t> places;
  for (const auto& [phase, all] : by_phase) places.insert({all.front(), all[all.size() / 2], all.back()});
  return places;
}

/// Three quarters through the collectives of the run: among its last kind of steps, in most methods.
std::int64_t last_quarter(const TrainConfig& config) {
  return static_cast<std::int64_t>(collectives_of(config).size() * 3 / 4);
}

constexpr const char* kFault = "a fault in the middle of a step";
void fail() { throw Error(ErrorKind::numerics, kFault); }

class MethodFault : public testing::TestWithParam<Variant> {};

INSTANTIATE_TEST_SUITE_P(Methods, MethodFault, testing::ValuesIn(all_variants()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(MethodFault, AThreadThatThrowsEndsAllWithItsOwnError) {
  constexpr std::chrono::seconds kTimeout{300};
  const TrainConfig config = small_run(*GetParam().method, GetParam().laws->small);
  const std::vector<std::string> phases = collectives_of(config);
  const auto start = std::chrono::steady_clock::now();
  for (const std::int64_t place : places_of(phases)) {
    SCOPED_TRACE(
        fmt::format("collective {} of {}, phase {}", place, phases.size(), phases[static_cast<std::size_t>(place)]));
    std::mutex mutex;
    std::map<int, std::string> of_others;
    const auto body = [&](Comm& transport) {
      const bool fails = transport.rank() == kFailing;
      try {
        train_rank(config, transport, fails ? place : -1, fail);
      } catch (const Error& error) {
        if (fails) throw;
        EXPECT_EQ(error.kind(), ErrorKind::communication) << error.what();
        const std::lock_guard lock(mutex);
        of_others[transport.rank()] = error.what();
        throw;
      }
    };
    const std::string told =
        test::message_of(ErrorKind::numerics, [&] { run_thread_ranks(kRanks, {.timeout = kTimeout}, body); });
    EXPECT_EQ(told, kFault);
    // Others may have been done already when it failed at the very end.
    for (const auto& [rank, error] : of_others) {
      EXPECT_TRUE(test::contains(error, kFault)) << rank << ": " << error;
      EXPECT_EQ(error.find('\n'), std::string::npos) << error;
    }
    const bool is_last = place == static_cast<std::int64_t>(phases.size()) - 1;
    EXPECT_TRUE(is_last || of_others.size() == kRanks - 1) << of_others.size();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, kTimeout) << "somebody has waited for the one that failed";
}

// All methods at once, since each only waits.
TEST(SilentThread, IsMissedInTime) {
  struct Job {
    Job(const Variant& of, TrainConfig run) : variant(of), config(std::move(run)) {}
    Variant variant;
    TrainConfig config;
    std::int64_t place = 0;
    std::vector<std::string> told{};
    std::atomic<int> ended = 0;
  };
  std::list<Job> jobs;
  for (const Variant& variant : all_variants()) {
    Job& job = jobs.emplace_back(variant, small_run(*variant.method, variant.laws->small));
    job.place = last_quarter(job.config);
  }
  std::vector<std::jthread> started;
  for (Job& job : jobs)
    started.emplace_back([&job] {
      std::mutex mutex;
      const auto fall_silent = [&] {
        while (job.ended < kRanks - 1) std::this_thread::sleep_for(10ms);
      };
      const auto body = [&](Comm& transport) {
        const bool silent = transport.rank() == kFailing;
        try {
          train_rank(job.config, transport, silent ? job.place : -1, fall_silent);
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          if (!silent) job.told.push_back(error.what());
        }
        if (!silent) ++job.ended;
      };
      EXPECT_THROW(run_thread_ranks(kRanks, {.timeout = 1s}, body), Error) << job.variant.name();
    });
  started.clear();
  for (const Job& job : jobs) {
    EXPECT_EQ(job.told.size(), kRanks - 1) << job.variant.name();
    for (const std::string& sentence : job.told)
      EXPECT_TRUE(test::contains(sentence, "waited 1 s on rank")) << job.variant.name() << ": " << sentence;
  }
}

#ifdef AB_MPIEXEC
// --- Processes. The test starts itself under mpirun; these variables say what shall happen there.

constexpr const char *kMethodVariable = "AB_FAULT_METHOD", *kPlaceVariable = "AB_FAULT_PLACE",
                     *kSilentVariable = "AB_FAULT_SILENT";

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

/// Does what the program does with an error (apps/commands/train_command.cpp).
TEST(FailingJob, TrainsUntilARankFails) {
  if (variable(kMethodVariable).empty()) GTEST_SKIP() << "runs under mpirun, started by another test";
  const bool silent = variable(kSilentVariable) == "1";
  const std::unique_ptr<Comm> transport = make_mpi_comm({.timeout = silent ? 1s : 300s});
  const std::vector<Variant> all = all_variants();
  const auto variant =
      std::find_if(all.begin(), all.end(), [](const Variant& v) { return v.name() == variable(kMethodVariable); });
  ASSERT_NE(variant, all.end());
  const TrainConfig config = small_run(*variant->method, variant->laws->small);
  const AtCollective fault = silent ? [] { std::this_thread::sleep_for(300s); } : fail;
  try {
    const bool fails = transport->rank() == kFailing;
    train_rank(config, *transport, fails ? std::stoll(variable(kPlaceVariable)) : -1, fault);
  } catch (const std::exception& error) {
    transport->abort(error.what(), report_error(error, fmt::format("rank {}: ", transport->rank())));
  }
}

class FailingProcesses : public test::ProgramTest, public testing::WithParamInterface<Variant> {
 protected:
  test::Outcome run_job(bool silent) const {
    const std::int64_t place = last_quarter(small_run(*GetParam().method, GetParam().laws->small));
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    return run_command(
        fmt::format("env OMP_NUM_THREADS=1 {}={} {}={} {}={} {} --oversubscribe --allow-run-as-root -np {} {} "
                    "--gtest_filter=FailingJob.TrainsUntilARankFails",
                    kMethodVariable, GetParam().name(), kPlaceVariable, place, kSilentVariable, silent ? 1 : 0,
                    AB_MPIEXEC, kRanks, self.string()));
  }
  /// What ranks have said.
  static std::vector<std::string> sentences(const std::string& err) {
    std::vector<std::string> found;
    std::istringstream lines(err);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("abtrain: ")) found.push_back(line);
    return found;
  }
};

/// Groups, collectives that are in flight over several steps, parts of unequal size, parameters instead of gradients.
std::vector<Variant> unlike_variants() {
  std::vector<Variant> some = all_variants();
  std::erase_if(some, [](const Variant& variant) {
    return std::set<std::string>{"ab", "diloco", "scalecom", "local"}.count(variant.name()) == 0;
  });
  return some;
}

INSTANTIATE_TEST_SUITE_P(Methods, FailingProcesses, testing::ValuesIn(unlike_variants()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(FailingProcesses, ARankThatFailsEndsTheJobWithItsCode) {
  const test::Outcome job = run_job(false);
  EXPECT_EQ(job.exit_code, static_cast<int>(ErrorKind::numerics)) << job.err;
  EXPECT_EQ(sentences(job.err), std::vector<std::string>{fmt::format("abtrain: rank {}: {}", kFailing, kFault)});
}

TEST_P(FailingProcesses, ARankThatFallsSilentIsMissedInTime) {
  const test::Outcome job = run_job(true);
  EXPECT_EQ(job.exit_code, static_cast<int>(ErrorKind::communication)) << job.err;
  const std::vector<std::string> told = sentences(job.err);
  EXPECT_TRUE(told.size() == 1 || told.size() == kRanks - 1) << job.err;
  for (const std::string& sentence : told) EXPECT_TRUE(test::contains(sentence, "waited 1 s on rank")) << sentence;
}
#endif

}  // namespace
}  // namespace ab

// SPDX-License-Identifier: MIT
//
// Training on a GPU follows training on the CPU: losses stay close, while ranks r, phases and traffic are the same. On the
// GPU of tests/ptx they stay closer, and code that touches device memory from the host dies.
#include <gtest/gtest.h>

#include <filesystem>
#include <mutex>

#include "apps/methods/ab.h"
#include "apps/methods/late_cut.h"
#include "apps/plan/plan.h"
#include "apps/settings/hardware.h"
#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"
#include "apps/train/train_loop.h"
#include "engine/backend/backend.h"
#include "engine/backend/low_rank.h"
#include "engine/core/threads.h"
#include "engine/device/device.h"
#include "engine/kernels/orthonormal_rows.h"
#include "engine/kernels/random.h"
#include "engine/optim/optimizer.h"
#include "layers/models/models.h"
#include "layers/weight.h"
#include "tests/program_test.h"
#include "tests/ptx_gpu.h"
#include "tests/striped_images.h"
#include "tests/tensor_values.h"
#include "tests/watched_comm.h"

namespace ab {
namespace {

/// Few, as kernels are interpreted.
TrainAndTest images() { return test::striped_sets(43, 11); }

/// In float32.
double loss_tolerance() { return on_ptx_gpu() ? 1e-5 : 1e-3; }
/// What a cut drops lets rounding grow.
double loss_tolerance(const std::string& method) { return (method == "late-cut" ? 10 : 1) * loss_tolerance(); }

struct DeviceOutcome {
  bool stopped = false;
  std::vector<double> losses;
  std::vector<std::string> phases;
  std::vector<std::pair<std::string, std::int64_t>> ranks_r;  ///< of every split, weight by weight
  std::map<std::string, double> bytes_by_phase;
  double val_loss = 0;
  std::vector<double> model;  ///< parameters but factors, buffers and averaged weights of rank 0
};

/// Trains on from what config.out holds, if anything; tells the run to stop after `stop_after` steps.
DeviceOutcome train_on(const std::string& device, TrainConfig config, int ranks, std::int64_t stop_after = -1) {
  config.device = device;
  if (device == "cpu") config.cuda_graph = "auto";
  DeviceOutcome outcome;
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) {
    outcome.losses.push_back(m.loss);
    outcome.phases.push_back(m.phase);
    if (m.step == stop_after) request_stop();
  };
  listener.on_split = [&](const SplitMetrics& m) {
    for (const LayerRank& layer : m.layers) outcome.ranks_r.emplace_back(layer.name, layer.r);
  };
  clear_stop_request();
  run_thread_ranks(ranks, {.ranks_per_node = 2}, [&](Comm& world) {
    set_compute_threads(1);
    std::optional<Checkpoint> checkpoint;
    const std::string folder = in_folder(config.out, kCheckpointFolder);
    if (std::filesystem::exists(folder)) checkpoint = load_newest_checkpoint(folder, world);
    const TrainResult result = train(config, world, images(), listener, std::move(checkpoint));
    if (world.rank() != 0) return;
    if (!result.stopped) remove_last_checkpoint(config, result.summary.steps);
    outcome.stopped = result.stopped;
    outcome.bytes_by_phase = result.summary.wire_bytes_per_rank_by_phase;
    outcome.val_loss = result.summary.final_val_loss;
    for (Layer* model : {result.model.get(), result.average.get()}) {
      if (!model) continue;
      for (const Param* p : inventory_of(*model).params) {
        EXPECT_EQ(p->value.value().device(), choose_device(device)) << p->name;
        if (p->role == ParamRole::factor_a || p->role == ParamRole::factor_b) continue;  // signs are an SVD's own
        for (double v : p->value.value().to_doubles()) outcome.model.push_back(v);
      }
      for (const Buffer& buffer : inventory_of(*model).buffers)
        for (double v : buffer.value.to_doubles()) outcome.model.push_back(v);
    }
  });
  clear_stop_request();
  return outcome;
}

/// `first`: how many losses of `cpu` came before the first of `device`.
void expect_same_training(const DeviceOutcome& cpu, const DeviceOutcome& device, double tolerance,
                          std::size_t first = 0) {
  ASSERT_EQ(cpu.losses.size(), first + device.losses.size());
  for (std::size_t i = 0; i < device.losses.size(); ++i)
    EXPECT_NEAR(cpu.losses[first + i], device.losses[i], tolerance) << "step " << first + i + 1;
  EXPECT_EQ(std::vector<std::string>(cpu.phases.begin() + static_cast<std::ptrdiff_t>(first), cpu.phases.end()),
            device.phases);
  EXPECT_EQ(cpu.bytes_by_phase, device.bytes_by_phase);
  EXPECT_NEAR(cpu.val_loss, device.val_loss, tolerance);
  ASSERT_EQ(cpu.model.size(), device.model.size());
  const double of_model = tolerance < 1e-3 ? 1e-3 : 100 * tolerance;
  for (std::size_t i = 0; on_ptx_gpu() && i < cpu.model.size(); ++i)
    ASSERT_NEAR(cpu.model[i], device.model[i], of_model * (1 + std::abs(cpu.model[i]))) << "of the model: " << i;
}

class DeviceTest : public test::ProgramTest {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  }

  /// 14 steps through every phase, with epochs that end within them.
  TrainConfig short_run(const std::string& method) const {
    TrainConfig config;
    config.model = "vgg11_bn_cifar";
    config.width = 0.0625;
    config.method = method;
    config.steps = 14;
    config.batch_size = 4;
    config.lr = 1e-3;  // a larger one lets differences of rounding grow, and a real GPU rounds otherwise
    config.log_every = 1;
    ab_settings(config).schedule.first_split = 3;
    ab_settings(config).schedule.cycle_steps = 6;
    ab_settings(config).schedule.full_rank_steps = 2;
    ab_settings(config).schedule.rebound_steps = 2;
    config.rank_multiple = 1;  // on both devices, as is
    config.execution = Execution::factors;
    late_cut_settings(config).rank_policy = RanksBy::ratio;  // by the loss r would follow rounding
    config.out = path("run");
    return config;
  }

  void expect_same_on_both(const TrainConfig& config, int ranks, double tolerance = loss_tolerance()) const {
    const DeviceOutcome on_cpu = train_on("cpu", config, ranks), on_device = train_on("cuda", config, ranks);
    expect_same_training(on_cpu, on_device, tolerance);
    EXPECT_EQ(on_cpu.ranks_r, on_device.ranks_r);
    EXPECT_EQ(on_device.ranks_r.empty(), !find_method(config.method).has_ranks);
  }

  /// The end of a run on one device from a checkpoint of the other, after a stop among factors if there are any.
  void expect_resumes(TrainConfig config, const std::string& from, const std::string& to) const {
    config.ema_decay = 0.8;
    config.cuda_graph = "on";
    std::filesystem::remove_all(config.out);
    const DeviceOutcome whole = train_on("cpu", config, 2);
    constexpr std::size_t kStop = 11;
    ASSERT_TRUE(train_on(from, config, 2, kStop).stopped);
    const DeviceOutcome rest = train_on(to, config, 2);
    expect_same_training(whole, rest, loss_tolerance(config.method), whole.losses.size() - rest.losses.size());
    EXPECT_LE(rest.losses.size(), config.steps - kStop);
  }
};

TEST_F(DeviceTest, TheHostCannotTouchItsMemory) {
  if (!on_ptx_gpu()) GTEST_SKIP() << "a real GPU's addresses mean nothing to the host";
  const Tensor t({4}, DType::float32, {DeviceKind::cuda, 0});
  EXPECT_DEATH(*static_cast<volatile float*>(t.raw()) = 1, "");
}

// Every row of the list, as it is set to by itself.
TEST_F(DeviceTest, EveryMethodTrainsAsOnTheCpu) {
  for (const Method& method : methods()) {
    SCOPED_TRACE(method.name);
    TrainConfig config = short_run(method.name);
    config.cuda_graph = "on";
    config.eval_every = 1;
    if (!method.has_ranks) config.steps = 7;  // more than an epoch
    expect_same_on_both(config, 2, loss_tolerance(method.name));
  }
}

// One rank, so that no other rank's kernels hide a stray access to device memory.

TEST_F(DeviceTest, DenseOnOneRank) {
  TrainConfig config = short_run("dense");
  config.max_grad_norm = 1;
  config.mixup = 0.2;
  config.label_smoothing = 0.1;
  config.ema_decay = 0.8;
  config.init = Init::ortho;
  config.cuda_graph = "on";
  expect_same_on_both(config, 1);
}

constexpr const char* kNotCounted = "the GPU of tests/ptx counts that";

// What a longer run waits for more often than a shorter one, it waits for in every step.
TEST_F(DeviceTest, AStepDoesNotWaitForTheGpu) {
  if (!on_ptx_gpu()) GTEST_SKIP() << kNotCounted;
  const auto waits = [&](std::int64_t steps, TrainConfig config) {
    config.steps = steps;
    const std::int64_t before = host_waits();
    train_on("cuda", config, 1);
    return host_waits() - before;
  };
  TrainConfig config = short_run("dense");
  config.log_every = 100;
  EXPECT_EQ(waits(4, config), waits(10, config));
  config.max_grad_norm = 1;
  config.accumulate = 2;
  config.mixup = 0.2;
  config.ema_decay = 0.8;
  EXPECT_EQ(waits(2, config), waits(5, config));
  config.precision = "fp16";
  EXPECT_EQ(waits(2, config), waits(5, config));
  config.precision = "fp32";
  config.log_every = 1;  // a line of metrics has to wait, once
  EXPECT_EQ(waits(2, config) + 3, waits(5, config));
}

TEST_F(DeviceTest, AStepWithCompressedGradientsDoesNotWaitForTheGpu) {
  if (!on_ptx_gpu()) GTEST_SKIP() << kNotCounted;
  const auto waits = [&](std::int64_t steps, TrainConfig config) {
    config.steps = steps;
    const std::int64_t before = host_waits();
    train_on("cuda", config, 1);
    return host_waits() - before;
  };
  for (const char* method : {"powersgd", "acpsgd", "scalecom", "mstopk", "hitopk"}) {
    TrainConfig config = short_run(method);
    config.model = "mlp", config.width = 0.04;
    config.log_every = 100;
    EXPECT_EQ(waits(8, config), waits(10, config)) << method;
  }
}
TEST_F(DeviceTest, AmongProcessesAGraphHoldsStepsWhoseGradientsDoNotTravelMeanwhile) {
  if (!on_ptx_gpu()) GTEST_SKIP() << kNotCounted;
  struct Trained {
    std::vector<double> losses;
    std::int64_t launches = 0;
  };
  const auto train_as_processes = [&](const std::string& method, double bucket_mb, const std::string& cuda_graph) {
    TrainConfig config = short_run(method);
    config.model = "mlp", config.width = 0.04, config.steps = find_method(method).has_ranks ? 10 : 6;
    config.device = "cuda", config.cuda_graph = cuda_graph, config.bucket_mb = bucket_mb, config.accumulate = 2;
    Trained trained;
    TrainListener listener;
    listener.on_step = [&](const StepMetrics& m, std::int64_t) { trained.losses.push_back(m.loss); };
    trained.launches = -graph_launches();
    run_thread_ranks(2, {}, [&](Comm& threads) {
      set_compute_threads(1);
      test::WatchedComm world(threads, [] {});
      world.set_runs_beside_computation();
      train(config, world, images(), listener);
    });
    trained.launches += graph_launches();
    return trained;
  };
  constexpr double kSmall = 0.02;  // several buckets, but for vectors alone
  for (const char* method : {"dense", "powersgd", "local", "ab"}) {
    SCOPED_TRACE(method);
    const Trained plain = train_as_processes(method, 25, "off"), one_bucket = train_as_processes(method, 25, "auto"),
                  many = train_as_processes(method, kSmall, "auto"), asked = train_as_processes(method, kSmall, "on");
    EXPECT_EQ(plain.launches, 0);
    EXPECT_GT(one_bucket.launches, 0);
    EXPECT_EQ(asked.launches, one_bucket.launches);
    if (method == std::string("dense")) EXPECT_EQ(many.launches, 0);
    else if (method == std::string("local")) EXPECT_EQ(many.launches, asked.launches);
    else EXPECT_TRUE(0 < many.launches && many.launches < asked.launches) << "whole gradients travel in the warm-up";
    for (const Trained* trained : {&one_bucket, &many, &asked}) EXPECT_EQ(trained->losses, plain.losses);
  }
}

TEST_F(DeviceTest, TransitionsAndEvaluationsFindNoMemoryKeptForAGraph) {
  const auto live_bytes = [&](const std::string& cuda_graph) {
    TrainConfig config = short_run("ab");
    config.device = "cuda";
    config.cuda_graph = cuda_graph;
    std::vector<std::int64_t> bytes;
    const auto note = [&](const auto&) { bytes.push_back(memory({DeviceKind::cuda, 0}).stats().live_bytes); };
    TrainListener listener;
    listener.on_split = note, listener.on_epoch = note;
    run_thread_ranks(1, {}, [&](Comm& world) {
      set_compute_threads(1);
      train(config, world, images(), listener);
    });
    return bytes;
  };
  const std::vector<std::int64_t> with_graphs = live_bytes("on");
  EXPECT_GT(with_graphs.size(), 2u);
  EXPECT_EQ(with_graphs, live_bytes("off"));
}

TEST_F(DeviceTest, TheProgramSaysThatAGraphKeepsMemory) {
  if (!on_ptx_gpu()) GTEST_SKIP() << "a real GPU has too much of it";
  const std::string memory = "env PTX_BYTES=32000000";
  EXPECT_EQ(run(tiny_train("plain", "--device cuda --cuda-graph off"), memory).exit_code, 0);
  const test::Outcome graph = run(tiny_train("graph", "--device cuda --cuda-graph on"), memory);
  EXPECT_EQ(graph.exit_code, 6) << graph.err;
  EXPECT_TRUE(test::contains(graph.err, "or give --cuda-graph off, as a graph keeps its memory"));
}
TEST_F(DeviceTest, LossesAreLookedAtOneStepLater) {
  const auto loss = [](double value) { return Tensor::scalar(value, DType::float32, {DeviceKind::cuda, 0}); };
  TrainConfig config = short_run("dense");
  config.log_every = 2;
  std::vector<double> told;
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) { told.push_back(m.loss); };
  const auto model = make_model({.name = "mlp", .width = 0.1});
  const auto world = make_self_comm();
  TrainRecord record(config, config.method, *world, *model, listener, 20);
  record.loss(loss(1), 1, 4, 0);
  record.step(1, 0, "full", 0.1);
  record.loss(loss(2), 1, 4, 1);
  record.step(2, 0, "full", 0.1);
  EXPECT_EQ(told, std::vector<double>{1.5});
  record.loss(loss(kNaN), 0.5, 4, 2);
  record.loss(loss(3), 0.5, 4, 2);
  record.step(3, 0, "full", 0.1);
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::numerics, [&] { record.loss(loss(4), 1, 4, 3); }),
                             "nan at step 2 on rank 0"));
}

TEST_F(DeviceTest, GradientNormsAreLookedAtOneStepLater) {
  const Device gpu{DeviceKind::cuda, 0};
  Param param{"p", Var(Tensor::scalar(1, DType::float32, gpu), true)};
  const auto optimizer = make_sgd({&param}, {.momentum = 0, .weight_decay = 0});
  optimizer->set_max_grad_norm(1);
  const auto step = [&](double gradient) {
    param.value.set_grad(Tensor::scalar(gradient, DType::float32, gpu));
    optimizer->step(0.5);
  };
  step(0.5);
  step(kNaN);
  EXPECT_EQ(param.value.value().item(), 0.75) << "an update that is not finite is left out";
  EXPECT_THROW(step(0.5), Error);
  optimizer->check_grad_norm();  // each is looked at once
  step(kNaN);
  EXPECT_THROW(optimizer->check_grad_norm(), Error);
}

TEST_F(DeviceTest, AbOnOneRankWithoutAProductOfFactors) {
  TrainConfig config = short_run("ab");
  config.model = "resnet20";
  config.width = 0.25;
  config.steps = 12;
  ab_settings(config).group_size = 1;
  ab_settings(config).sync = SyncMode::with_stale;
  ab_settings(config).gauge = Gauge::split_sigma;
  ab_settings(config).moments = MomentCarry::truncate;
  ab_settings(config).rank_policy.ratio = 0;
  config.cuda_graph = "off";
  expect_same_on_both(config, 1);
}

TEST_F(DeviceTest, AbTransformerWithNoise) {
  TrainConfig config = short_run("ab");
  config.model = "vit_ti_16";
  config.width = 0.34;
  config.steps = 8;
  config.optimizer = "adamw";
  config.lr = 1e-3;
  config.dropout = 0.1;
  config.drop_path = 0.1;
  config.cuda_graph = "on";
  expect_same_on_both(config, 1);
}

constexpr const char* kNotMeasured = "how far short types let a real GPU and a CPU drift apart has not been measured";

TEST_F(DeviceTest, AbInBfloat16) {
  if (!on_ptx_gpu()) GTEST_SKIP() << kNotMeasured;
  TrainConfig config = short_run("ab");
  config.precision = "bf16";
  config.max_grad_norm = 1;
  config.cuda_graph = "on";
  expect_same_on_both(config, 2, 0.05);  // AMX sums in another order than AVX512-BF16: 0.022
}

// Heads of 32 elements, whose attention a GPU fuses in 16 bits, and so rounds otherwise.
TEST_F(DeviceTest, TransformerInBfloat16) {
  TrainConfig config = short_run("dense");
  config.model = "vit_ti_16";
  config.width = 0.5;
  config.steps = 3;
  config.optimizer = "adamw";
  config.precision = "bf16";
  config.cuda_graph = "on";
  const DeviceOutcome on_cpu = train_on("cpu", config, 1), on_device = train_on("cuda", config, 1);
  ASSERT_EQ(on_cpu.losses.size(), on_device.losses.size());
  for (std::size_t i = 0; i < on_cpu.losses.size(); ++i) EXPECT_NEAR(on_cpu.losses[i], on_device.losses[i], 5e-2) << i;
  EXPECT_TRUE(backend({DeviceKind::cuda, 0}).has_fused_attention({2, 3, 5, 8, DType::bfloat16}))
      << "needs cuDNN 9.15.1 or newer";
}

// Batch norms take the sums that come with convolutions there. (On a real GPU: if that is faster.)
TEST_F(DeviceTest, AutotunedInBfloat16) {
  if (!on_ptx_gpu()) GTEST_SKIP() << kNotMeasured;
  TrainConfig config = short_run("ab");
  config.model = "resnet20";
  config.width = 0.25;
  config.steps = 8;  // through the first phase of factors
  config.precision = "bf16";
  config.autotune = true;
  config.cuda_graph = "on";
  const DeviceOutcome on_cpu = train_on("cpu", config, 2), on_device = train_on("cuda", config, 2);
  ASSERT_EQ(on_cpu.losses.size(), on_device.losses.size());
  for (std::size_t i = 0; i < on_cpu.losses.size(); ++i)
    EXPECT_NEAR(on_cpu.losses[i], on_device.losses[i], 0.02) << "step " << i + 1;
}

TEST_F(DeviceTest, DenseInFloat16WithOverflows) {
  if (!on_ptx_gpu()) GTEST_SKIP() << kNotMeasured;
  TrainConfig config = short_run("dense");
  config.precision = "fp16";
  config.batch_size = 2;
  config.optimizer = "adamw";
  config.lr = 1e-3;
  config.cuda_graph = "on";
  expect_same_on_both(config, 2, 0.05);
}

TEST_F(DeviceTest, ARankWithoutMemoryEndsAllRanks) {
  const Device gpu{DeviceKind::cuda, 0};
  const auto run_out = [&](Comm& world) {
    const Tensor t = Tensor::zeros({4}, DType::float32, gpu);
    if (world.rank() == 1) Tensor({std::int64_t{1} << 48}, DType::float32, gpu);
    world.all_reduce(t, ReduceOp::sum);
  };
  EXPECT_TRUE(test::contains(
      test::message_of(ErrorKind::communication, [&] { run_thread_ranks(3, {}, run_out); }),
      "bytes are in use and 1125899906842624 more were asked for; lower the batch size or the number of ranks"));
}

TEST_F(DeviceTest, ALossThatIsNotFiniteIsNamedByItsStep) {
  TrainConfig config = short_run("dense");
  config.lr = 1e30;
  config.log_every = 100;
  const auto message = [&](const std::string& device, int ranks) {
    return test::message_of(ErrorKind::numerics, [&] { train_on(device, config, ranks); });
  };
  EXPECT_TRUE(test::contains(message("cuda", 1), "at step 1 on rank 0"));
  EXPECT_EQ(message("cuda", 1), message("cpu", 1));
  EXPECT_TRUE(test::contains(message("cuda", 2), "at step 1 on rank "));
}

TEST_F(DeviceTest, TheProgramSaysThatMemoryIsShort) {
  if (!on_ptx_gpu()) GTEST_SKIP() << "a real GPU has too much of it";
  // Enough for the model, not for training it; and not enough for the model.
  for (const int bytes : {20000000, 1000}) {
    const test::Outcome outcome = run(tiny_train("short", "--device cuda --overwrite --ranks 3 --ignore-memory"),
                                      fmt::format("env PTX_BYTES={}", bytes));
    EXPECT_EQ(outcome.exit_code, 6) << outcome.out;
    EXPECT_TRUE(outcome.err.starts_with("abtrain: GPU 0 is out of memory: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

TEST_F(DeviceTest, DenseOnThreeRanks) {
  TrainConfig config = short_run("dense");
  config.steps = 8;
  config.sync_bn = SyncBn::world;
  config.bucket_mb = 0.05;
  expect_same_on_both(config, 3);
}

TEST_F(DeviceTest, AbOnFourRanksInTwoGroups) {
  TrainConfig config = short_run("ab");
  config.batch_size = 2;
  config.accumulate = 2;
  config.optimizer = "adamw";
  config.lr = 1e-3;
  config.sync_bn = SyncBn::group;
  config.ema_decay = 0.8;
  ab_settings(config).group_size = 2;
  ab_settings(config).rest = Rest::keep;
  ab_settings(config).final_model = FinalModel::dense;
  expect_same_on_both(config, 4);
}

TEST_F(DeviceTest, AbOnThreeRanksAsGraphs) {
  TrainConfig config = short_run("ab");
  config.batch_size = 2;
  config.accumulate = 3;  // an epoch of 7 batches ends with one of its own
  config.cutmix = 1;
  ab_settings(config).group_size = 1;
  ab_settings(config).rest = Rest::keep;
  ab_settings(config).final_model = FinalModel::dense;
  config.bucket_mb = 0.05;
  config.cuda_graph = "on";
  expect_same_on_both(config, 3);
}

TEST_F(DeviceTest, CheckpointsMoveFromOneDeviceToTheOther) {
  for (const auto& [from, to] : {std::pair("cuda", "cpu"), std::pair("cpu", "cuda")})
    expect_resumes(short_run("ab"), from, to);
}

TEST_F(DeviceTest, AResidualNetworkTrainsAndResumesInGroupsAndWithACut) {
  for (const char* way : {"ab", "late-cut"}) {
    SCOPED_TRACE(way);
    TrainConfig config = short_run(way);
    config.model = "resnet20";
    config.width = 0.125;
    expect_resumes(config, "cuda", "cuda");
  }
}

// Rows of factors begin at every 16 bytes there, also in 16 bits; a plan knows it.
TEST_F(DeviceTest, RanksAreRoundedUpOnAGpu) {
  TrainConfig config = short_run("ab");
  config.dataset = "synthetic";
  config.train_samples = images().train->count, config.val_samples = images().test->count;
  ab_settings(config).rank_policy.ratio = 0.3;
  const auto run_with = [&](const std::string& device, std::int64_t multiple) {
    config.rank_multiple = multiple;
    return train_on(device, config, 2);
  };
  const DeviceOutcome on_device = run_with("cuda", 0);
  EXPECT_EQ(on_device.ranks_r, run_with("cpu", 8).ranks_r);
  EXPECT_EQ(run_with("cpu", 0).ranks_r, run_with("cpu", 1).ranks_r);
  EXPECT_NE(on_device.ranks_r, run_with("cpu", 0).ranks_r);
  config.device = "cuda";
  config.ranks_per_node = 2;
  const auto after_setup = [](std::map<std::string, double> bytes) {  // the program compares settings before
    bytes.erase("setup");
    return bytes;
  };
  EXPECT_EQ(after_setup(plan_run(config, {.world_size = 2}).summary.wire_bytes_per_rank_by_phase),
            after_setup(on_device.bytes_by_phase));
}

// With few factors, and with so many that a library multiplies them.
TEST_F(DeviceTest, LowRankPassesAreThoseOfTheProcessor) {
  for (const std::int64_t r : {3, 9}) {
    constexpr std::int64_t n = 14, m = 45;
    const auto passes = [&](Device device) {
      std::vector<Tensor> drawn;
      for (const Shape& shape : {Shape{n, m}, Shape{n, m}, Shape{r, m}, Shape{r, m}, Shape{r, n}}) {
        drawn.emplace_back(shape, DType::float32, device);
        fill_normal(drawn.back(), 0, 1, {.seed = 6, .stream = drawn.size()});
      }
      const Tensor &g = drawn[0], &rest = drawn[1], &q = drawn[2], &own_q = drawn[3], &own_p = drawn[4];
      const Tensor work({n, m}, DType::float32, device), p({r, n}, DType::float32, device);
      add_and_project(g, rest, q, work, p);
      OrthonormalRows({{p.data<float>(), n, r, 1}}, device).make(1, 2);
      split_off_projection({own_p, own_q}, {p, q}, Tensor::zeros({1}, DType::float64, device), work, rest);
      std::vector<double> values = p.to_doubles();
      for (const Tensor& t : {work, rest}) std::ranges::copy(t.to_doubles(), std::back_inserter(values));
      return values;
    };
    const std::vector<double> here = passes({}), there = passes({DeviceKind::cuda, 0});
    for (std::size_t i = 0; i < here.size(); ++i) ASSERT_NEAR(there[i], here[i], 1e-4) << r << ", " << i;
  }
}

// Winograd halves the work of the dense convolution on a CPU, and there alone.
TEST_F(DeviceTest, FactorsRunOnAGpuWhereACpuFormsW) {
  constexpr Conv2dSpec kSpec{.batch = 4,
                             .height = 16,
                             .width = 16,
                             .in_channels = 32,
                             .out_channels = 32,
                             .kernel_h = 3,
                             .kernel_w = 3,
                             .padding = 1};
  const auto runs_factors = [&](Device device) {
    Weight weight("w", Tensor::zeros({32, 3, 3, 32}, DType::float32, device), ParamRole::weight);
    weight.factorise(Tensor::zeros({32, 20}, DType::float32, device), Tensor::zeros({20, 288}, DType::float32, device),
                     Weight::Mode::train_a);
    return run_factors(weight, kSpec, DType::float32);
  };
  EXPECT_FALSE(runs_factors({}));
  EXPECT_TRUE(runs_factors({DeviceKind::cuda, 0}));
}

TEST_F(DeviceTest, ADataErrorEndsTrainingOnEitherDevice) {
  ImageSet damaged = test::striped_images(43, 1);
  damaged.labels.assign(43, 10);
  const TrainAndTest set{std::make_shared<ImageSet>(damaged), images().test};
  for (const char* device : {"cpu", "cuda"}) {
    TrainConfig config = short_run("dense");
    config.device = device;
    const std::string message = test::message_of(
        ErrorKind::data, [&] { run_thread_ranks(1, {}, [&](Comm& world) { train(config, world, set, {}); }); });
    EXPECT_TRUE(test::contains(message, "has the label 10, expected 0 to 9"));
  }
}

TEST_F(DeviceTest, ChoosesTheDeviceThatIsNamed) {
  EXPECT_EQ(choose_device("cpu"), Device{});
  EXPECT_EQ(choose_device("cuda"), (Device{DeviceKind::cuda, 0}));
  const int last = cuda_device_count() - 1;
  EXPECT_EQ(choose_device(fmt::format("cuda:{}", last)), (Device{DeviceKind::cuda, last}));
  EXPECT_THROW(choose_device(fmt::format("cuda:{}", last + 1)), Error);
}

TEST_F(DeviceTest, ProcessesTakeTheGpusOfTheirMachineInTurn) {
  ::setenv("OMPI_COMM_WORLD_SIZE", "8", 1);
  ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "5", 1);
  EXPECT_EQ(choose_device("cuda").index, 5 % cuda_device_count());
  EXPECT_EQ(choose_device("cuda:0").index, 0);
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  ::unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
}

TEST_F(DeviceTest, DeterministicRunsGiveEqualFiles) {
  const std::string flags = "--device cuda --width 0.1 --deterministic --method ab --ranks 2 --ab.first-split 1";
  std::vector<std::string> files;
  for (const char* name : {"once", "again"}) {
    const test::Outcome outcome = run(tiny_train(name, flags));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    files.push_back(read_file(path(name) + "/model.safetensors", ErrorKind::data));
  }
  EXPECT_GT(files[0].size(), 1000u);
  EXPECT_TRUE(files[0] == files[1]);
}

TEST_F(DeviceTest, TheProgramTrainsAndEvaluatesThere) {
  ASSERT_EQ(
      run(tiny_train("on_device", "--device cuda --width 0.1 --method ab --ranks 2 --ab.first-split 1")).exit_code, 0);
  const std::string eval = fmt::format("eval --model-file {} --data-dir {} --device ", path("on_device"), path("data"));
  const test::Outcome on_device = run(eval + "cuda"), on_cpu = run(eval + "cpu");
  EXPECT_EQ(on_device.exit_code, 0) << on_device.err;
  if (on_ptx_gpu()) {
    EXPECT_EQ(on_device.out, on_cpu.out);
  }
  expect_failure(tiny_train("nowhere", fmt::format("--device cuda:{}", cuda_device_count())), 6, "there is no GPU");
  EXPECT_FALSE(std::filesystem::exists(path("nowhere")));
}

}  // namespace
}  // namespace ab

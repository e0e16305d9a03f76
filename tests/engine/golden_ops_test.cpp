// SPDX-License-Identifier: MIT
//
// Every operation against PyTorch: values and gradients stored by tests/golden/make_fixtures.py.
// Each case runs in float32 and float64, and again with one input at a time requiring a gradient, since
// backward functions skip what nobody asks for.

#include <map>
#include <set>

#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/norm.h"
#include "engine/ops/pool.h"
#include "tests/golden/fixtures.h"

namespace ab::golden {
namespace {

const TensorFile& fixtures() {
  static const TensorFile file = read_fixtures("ops.safetensors");
  return file;
}

/// One run of one case: makes the leaves, then compares the result and their gradients.
class OpRun {
 public:
  /// `only`: the one leaf that requires a gradient; empty for all of them.
  OpRun(const Case& fixture, std::string only) : fixture_(fixture), only_(std::move(only)) {}

  const Case& fixture() const { return fixture_; }
  /// A leaf with the stored value, or an undefined Var when the case has no such input.
  Var leaf(const std::string& name) {
    if (!fixture_.has(name)) return {};
    const Var v(fixture_.tensor(name), only_.empty() || name == only_);
    leaves_.emplace_back(name, v);
    return v;
  }
  /// Float64 differs from the stored numbers by their rounding to float32; float32 by sums of a few hundred terms.
  double tolerance() const { return fixture_.dtype() == DType::float64 ? 2e-7 : 1e-5; }

  /// Compares `y`, sends the stored dy back, and compares every leaf's gradient.
  void check(const Var& y) {
    expect_close(y.value(), fixture_.tensor("y"), tolerance(), "y");
    backward(weighted_sum(y, fixture_.tensor("dy")));
    check_gradients();
  }
  void check_gradients() const {
    for (const auto& [name, v] : leaves_) {
      if (v.requires_grad()) {
        expect_close(v.grad(), fixture_.tensor("d" + name), tolerance(), "d" + name);
      } else {
        EXPECT_FALSE(v.grad().defined()) << name << " has a gradient that nobody asked for";
      }
    }
  }

 private:
  const Case& fixture_;
  std::string only_;
  std::vector<std::pair<std::string, Var>> leaves_;
};

void run_linear(OpRun& r) {
  const Var x = r.leaf("x"), w = r.leaf("w"), b = r.leaf("b");
  r.check(linear(x, w, b));
}

void run_matmul(OpRun& r) {
  const Var a = r.leaf("a"), b = r.leaf("b");
  r.check(matmul(a, b));
}

void run_conv2d(OpRun& r) {
  const auto option = [&](const char* key) { return r.fixture().option<std::int64_t>(key); };
  const Conv2dOptions options{.stride = option("stride"),
                              .padding = option("padding"),
                              .dilation = option("dilation"),
                              .groups = option("groups")};
  const Var x = r.leaf("x"), w = r.leaf("w"), b = r.leaf("b");
  r.check(conv2d(x, w, b, options));
}

void run_batch_norm(OpRun& r) {
  const Case& c = r.fixture();
  BatchNormStats stats{c.tensor("running_mean"), c.tensor("running_var"), c.option<float>("momentum"),
                       c.option<float>("epsilon")};
  const Activation activation = c.option<bool>("relu") ? Activation::relu : Activation::none;
  const Var x = r.leaf("x"), gamma = r.leaf("gamma"), beta = r.leaf("beta"), residual = r.leaf("residual");
  r.check(batch_norm(x, gamma, beta, stats, c.option<bool>("training"), activation, residual));
  expect_close(stats.running_mean, c.tensor("running_mean_after"), r.tolerance(), "running mean");
  expect_close(stats.running_var, c.tensor("running_var_after"), r.tolerance(), "running variance");
}

void run_layer_norm(OpRun& r) {
  const Var x = r.leaf("x"), gamma = r.leaf("gamma"), beta = r.leaf("beta");
  r.check(layer_norm(x, gamma, beta, r.fixture().option<float>("epsilon")));
}

Pool2dOptions pool_options(const Case& c) {
  return {.kernel = c.option<std::int64_t>("kernel"),
          .stride = c.option<std::int64_t>("stride"),
          .padding = c.option<std::int64_t>("padding")};
}
void run_max_pool2d(OpRun& r) { r.check(max_pool2d(r.leaf("x"), pool_options(r.fixture()))); }
void run_avg_pool2d(OpRun& r) { r.check(avg_pool2d(r.leaf("x"), pool_options(r.fixture()))); }
void run_adaptive_avg_pool2d(OpRun& r) {
  const Case& c = r.fixture();
  r.check(adaptive_avg_pool2d(r.leaf("x"), c.option<std::int64_t>("out_h"), c.option<std::int64_t>("out_w")));
}
void run_global_avg_pool2d(OpRun& r) { r.check(global_avg_pool2d(r.leaf("x"))); }

void run_relu(OpRun& r) { r.check(relu(r.leaf("x"))); }
void run_gelu(OpRun& r) { r.check(gelu(r.leaf("x"))); }
void run_flatten(OpRun& r) { r.check(flatten(r.leaf("x"))); }
void run_add(OpRun& r) {
  const Var a = r.leaf("a"), b = r.leaf("b");
  r.check(add(a, b));
}

void run_softmax_cross_entropy(OpRun& r) {
  const Case& c = r.fixture();
  const Var loss = softmax_cross_entropy(r.leaf("logits"), c.tensor("labels"), c.option<float>("smoothing"));
  expect_close(loss.value(), c.tensor("loss"), r.tolerance(), "loss");
  backward(loss);
  r.check_gradients();
}

using RunFn = void (*)(OpRun&);
const std::map<std::string, RunFn> kOperations{
    {"linear", run_linear},
    {"matmul", run_matmul},
    {"conv2d", run_conv2d},
    {"batch_norm", run_batch_norm},
    {"layer_norm", run_layer_norm},
    {"max_pool2d", run_max_pool2d},
    {"avg_pool2d", run_avg_pool2d},
    {"adaptive_avg_pool2d", run_adaptive_avg_pool2d},
    {"global_avg_pool2d", run_global_avg_pool2d},
    {"relu", run_relu},
    {"gelu", run_gelu},
    {"flatten", run_flatten},
    {"add", run_add},
    {"softmax_cross_entropy", run_softmax_cross_entropy},
};

/// The inputs of a case that have a stored gradient.
std::vector<std::string> differentiable_inputs(const Case& c) {
  std::vector<std::string> names;
  for (const char* name : {"x", "w", "a", "b", "gamma", "beta", "residual", "logits"})
    if (c.has(name) && c.has(std::string("d") + name)) names.emplace_back(name);
  return names;
}

class GoldenOp : public testing::TestWithParam<std::string> {};

TEST_P(GoldenOp, MatchesPyTorch) {
  const RunFn run = kOperations.at(GetParam());
  const std::vector<std::string> names = cases_of(fixtures(), GetParam());
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      SCOPED_TRACE(fmt::format("{} in {}", name, name_of(dtype)));
      const Case c(fixtures(), name, dtype);
      std::vector<std::string> wanted = differentiable_inputs(c);
      ASSERT_FALSE(wanted.empty());
      wanted.push_back("");
      for (const std::string& only : wanted) {
        SCOPED_TRACE(only.empty() ? "all gradients" : "only the gradient of " + only);
        OpRun r(c, only);
        run(r);
      }
    }
  }
}

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const auto& [name, run] : kOperations) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Ops, GoldenOp, testing::ValuesIn(operation_names()),
                         [](const auto& parameter) { return parameter.param; });

TEST(GoldenOps, EveryStoredCaseIsRun) {
  std::set<std::string> stored;
  for (const auto& [key, options] : fixtures().metadata)
    if (const auto slash = key.find('/'); slash != std::string::npos) stored.insert(key.substr(0, slash));
  const std::vector<std::string> run = operation_names();
  EXPECT_EQ(stored, std::set<std::string>(run.begin(), run.end()));
}

}  // namespace
}  // namespace ab::golden

// SPDX-License-Identifier: MIT
//
// The cost of compression itself on one rank, on gradients of the sizes of ResNet-50 and VGG16 for CIFAR, each kernel beside a
// plain reference (compress_references.h). Every iteration runs both in turn, so that load falls out of the ratio:
// Time is ours, plain_ms the reference's, and times = plain / ours.
//   select      the k largest of all elements (AR-Topk), MSTopK's threshold, the largest of every chunk (ScaleCom)
//   low_rank    orthonormalise_rows and split_off_projection of PowerSGD, all matrices of the model
//   pack        gradients into buckets and back, beside a memcpy of as many bytes
// References take one thread:
//   OMP_NUM_THREADS=1 compress_bench --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <ctime>

#include "bench/compress_references.h"
#include "engine/backend/backend.h"
#include "engine/backend/low_rank.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/kernels/select.h"
#include "engine/kernels/sparse.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/low_rank_gradients.h"
#include "engine/sync/sparse_average.h"
#include "layers/models/models.h"

namespace ab {
namespace {

/// Seconds of processor time, all threads together: other programs on the machine count less than in time on the wall.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class F> double seconds_of(const F& f) {
  const double start = processor_seconds();
  f();
  benchmark::ClobberMemory();
  return processor_seconds() - start;
}

/// Both in turn; `prepare` comes before each and is not timed.
template <class Prepare, class Ours, class Plain>
void in_turn(benchmark::State& state, const Prepare& prepare, const Ours& ours, const Plain& plain) {
  double of_ours = 0, of_plain = 0;
  prepare(), ours(), prepare(), plain();  // memory is there afterwards
  for (auto _ : state) {
    prepare();
    const double seconds = seconds_of(ours);
    state.SetIterationTime(seconds);
    of_ours += seconds;
    prepare();
    of_plain += seconds_of(plain);
  }
  state.counters["plain_ms"] = of_plain * 1e3 / static_cast<double>(state.iterations());
  state.counters["times"] = of_plain / of_ours;
}

void nothing() {}

/// A model whose gradients are drawn; kept, since many benchmarks share it.
class DrawnGradients {
 public:
  explicit DrawnGradients(const ModelSpec& spec) : model_(make_model(spec)), params_(inventory_of(*model_).params) {
    for (const Param* p : params_) elements_ += p->numel();
    flat_ = Tensor({elements_}, DType::float32, Device{});
    fill_normal(flat_, 0, 1, {1, 1});
    std::int64_t begin = 0;
    for (Param* p : params_) {
      parts_.push_back(flat_.slice(begin, begin + p->numel()).view(p->value.shape()));
      begin += p->numel();
    }
    hand_out();
  }
  std::int64_t elements() const { return elements_; }
  const Tensor& flat() const { return flat_; }
  const std::vector<Param*>& params() const { return params_; }
  void hand_out() const {
    for (std::size_t i = 0; i < params_.size(); ++i) params_[i]->value.set_grad(parts_[i]);
  }

 private:
  std::unique_ptr<Layer> model_;
  std::vector<Param*> params_;
  std::int64_t elements_ = 0;
  Tensor flat_;
  std::vector<Tensor> parts_;
};

void exact(benchmark::State& state, const DrawnGradients& g, double density) {
  const std::int64_t k = elements_of_density(density, g.elements());
  const Selector selector(g.elements(), Device{});
  plain::Selection plain(g.elements(), k);
  std::vector<std::uint32_t> indices(static_cast<std::size_t>(k)), expected = indices;
  in_turn(
      state, nothing, [&] { selector.exact(g.flat(), k, indices.data()); },
      [&] { plain.by_nth_element(g.flat().data<float>(), expected.data()); });
  if (indices != expected) state.SkipWithError("both select different elements");
}

/// Beside nth_element, or beside the published loop.
void multi_sampling(benchmark::State& state, const DrawnGradients& g, double density, bool as_published) {
  constexpr int kRounds = 25;
  const std::int64_t k = elements_of_density(density, g.elements());
  const Selector selector(g.elements(), Device{});
  plain::Selection plain(g.elements(), k);
  std::vector<std::uint32_t> indices(static_cast<std::size_t>(k));
  const float* const x = g.flat().data<float>();
  in_turn(
      state, nothing,
      [&] {
        selector.multi_sampling(g.flat(), k, kRounds, {1, 1}, 0, indices.data());
      },
      [&] {
        as_published ? plain.by_thresholds(x, kRounds, indices.data()) : plain.by_nth_element(x, indices.data());
      });
}

void chunks(benchmark::State& state, const DrawnGradients& g, std::int64_t rate) {
  const ChunkedVector v{g.elements(), rate};
  const Tensor offsets({v.offset_bytes()}, DType::uint8, Device{}),
      expected({v.offset_bytes()}, DType::uint8, Device{});
  in_turn(
      state, nothing, [&] { largest_of_chunks(v, g.flat(), offsets); },
      [&] { plain::largest_of_chunks(g.flat().data<float>(), v.elements, rate, expected.data<std::uint8_t>()); });
  if (std::memcmp(offsets.raw(), expected.raw(), offsets.bytes()) != 0)
    state.SkipWithError("both select different elements");
}

/// PowerSGD's matrices of a model, with residuals and factors that are drawn.
struct LowRank {
  LowRank(const DrawnGradients& g, std::int64_t r)
      : all(
            g.params(), [r](const Shape& shape) { return low_rank_sizes(shape, {.rank = static_cast<double>(r)}); }, 1,
            "bench") {
    for (const LowRankMatrix& w : all.matrices()) {
      fill_normal(w.residual, 0, 1, {2, stream_of(w.param->name)});
      fill_normal(w.own_q, 0, 1, {3, stream_of(w.param->name)});
    }
  }
  LowRankGradients all;
};

void split_off(benchmark::State& state, const DrawnGradients& g, std::int64_t r) {
  const LowRank low_rank(g, r);
  const FiniteCheck check(Device{});
  for (const LowRankMatrix& w : low_rank.all.matrices()) w.work.copy_from(w.residual);
  in_turn(
      state, nothing,
      [&] {
        for (const LowRankMatrix& w : low_rank.all.matrices())
          split_off_projection({w.p, w.own_q}, {w.p, w.q}, check.failed(), w.work, w.residual);
      },
      [&] {
        for (const LowRankMatrix& w : low_rank.all.matrices()) {
          w.residual.copy_from(w.work);
          backend(Device{}).gemm({.transpose_a = true, .alpha = -1, .beta = 1}, w.p, w.own_q, w.residual);
          backend(Device{}).gemm({.transpose_a = true}, w.p, w.q, w.work);
        }
      });
}

using Orthonormalise = void (*)(float* rows, std::int64_t count, std::int64_t length);

/// `close`: the rows share most of their length, so that one pass of Gram–Schmidt is not enough.
void orthonormalise(benchmark::State& state, const DrawnGradients& g, std::int64_t r, bool close,
                    Orthonormalise plain) {
  const LowRank low_rank(g, r);
  if (close)
    for (const LowRankMatrix& w : low_rank.all.matrices())
      for (std::int64_t k = 1; k < w.size.r; ++k) {
        const Tensor row = w.p.slice(k, k + 1);
        axpy(5.0, w.p.slice(0, 1), row);
      }
  const Tensor drawn(low_rank.all.all_p().shape());
  drawn.copy_from(low_rank.all.all_p());
  in_turn(
      state, [&] { low_rank.all.all_p().copy_from(drawn); }, [&] { low_rank.all.orthonormalise_p(0); },
      [&] {
        for (const LowRankMatrix& w : low_rank.all.matrices()) plain(w.p.data<float>(), w.size.r, w.size.n);
      });
}

/// In 32 bits a gradient is copied once. In 16 bits it is rounded and comes back, 12 bytes read and written for an element.
void pack(benchmark::State& state, const DrawnGradients& g, DType wire) {
  const std::unique_ptr<Comm> self = make_self_comm();
  std::vector<BucketItem> items;  // that go through buckets though no rank is there to receive them
  for (Param* const p : g.params())
    items.push_back({.param = p, .elements = p->numel(), .unpack = [p](const Tensor& place) {
                       p->value.set_grad(place.view(p->value.shape()));
                     }});
  GradientBuckets buckets(items, *self, ReduceOp::sum, {.dtype = wire});
  const auto bytes = static_cast<std::size_t>(g.elements()) * (wire == DType::float32 ? 4 : 6);
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  in_turn(
      state, [&] { g.hand_out(); }, [&] { buckets.finish(); }, [&] { std::memcpy(to.data(), from.data(), bytes); });
  g.hand_out();
}

template <class Body> void add(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(), body)->UseManualTime()->Unit(benchmark::kMillisecond);
}

void add_all(const std::string& model, const DrawnGradients& g) {
  using benchmark::State;
  for (const double density : {0.1, 0.01, 0.001}) {
    const std::string of = fmt::format("{}/{}", model, density);
    add("select/exact/" + of + "/nth_element", [&g, density](State& s) { exact(s, g, density); });
    add("select/threshold/" + of + "/nth_element", [&g, density](State& s) { multi_sampling(s, g, density, false); });
    add("select/threshold/" + of + "/published_loop", [&g, density](State& s) { multi_sampling(s, g, density, true); });
  }
  for (const std::int64_t rate : {64, 400})
    add(fmt::format("select/chunks/{}/{}/max_element", model, rate), [&g, rate](State& s) { chunks(s, g, rate); });
  for (const std::int64_t r : {1, 4, 16, 32}) {
    const std::string of = fmt::format("{}/r{}", model, r);
    add("low_rank/split_off/" + of + "/copy_and_gemms", [&g, r](State& s) { split_off(s, g, r); });
    for (const bool close : {false, true}) {
      const std::string rows = std::string("low_rank/orthonormalise_") + (close ? "close/" : "apart/") + of;
      add(rows + "/gram_schmidt", [=, &g](State& s) { orthonormalise(s, g, r, close, plain::gram_schmidt); });
      add(rows + "/lapack_qr", [=, &g](State& s) { orthonormalise(s, g, r, close, plain::householder); });
    }
  }
  for (const DType wire : {DType::float32, DType::bfloat16, DType::float16})
    add(fmt::format("pack/{}/{}/memcpy", model, name_of(wire)), [&g, wire](State& s) { pack(s, g, wire); });
}

}  // namespace
}  // namespace ab

int main(int argc, char** argv) {
  const ab::DrawnGradients resnet50({.name = "resnet50", .classes = 1000, .image_size = 224});
  const ab::DrawnGradients vgg16({.name = "vgg16_bn_cifar"});
  ab::add_all("resnet50", resnet50);
  ab::add_all("vgg16_bn_cifar", vgg16);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// SPDX-License-Identifier: MIT
//
// Row kernels by a team of threads, as on a GPU, against the one lane of a CPU; random numbers; reductions.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/core/random.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/activation_functors.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/batch_norm_functors.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/kernel_rows.h"
#include "engine/kernels/layer_norm.h"
#include "engine/kernels/loss.h"
#include "engine/kernels/pool.h"
#include "engine/kernels/random.h"
#include "engine/kernels/rank_order_reduce.h"
#include "engine/kernels/reduce.h"
#include "engine/kernels/reduce_functors.h"
#include "tests/tensor_values.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using namespace kernels;

Tensor normal(const Shape& shape, std::uint64_t stream) {
  Tensor t(shape);
  fill_normal(t, 0.3, 1.0, Philox{.seed = 77, .stream = stream});
  return t;
}

Tensor some_labels(std::int64_t n, std::int64_t classes) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < n; ++i) labels.push_back(i * 5 % classes);
  return Tensor::from(labels, Shape{n});
}

/// Results of one kind that a kernel writes; filled with a value that no kernel writes before each run.
std::vector<Tensor> fresh(const std::vector<Tensor>& like) {
  std::vector<Tensor> outputs;
  for (const Tensor& t : like) {
    outputs.push_back(t.clone());
    std::memset(outputs.back().raw(), 0x55, outputs.back().bytes());
  }
  return outputs;
}

/// Runs make(outputs) on one lane, and on teams of 1, 3 and 8 threads; all must write the same outputs.
/// `rows_of(block_width)`: how many rows there are when a lane holds that many neighbouring elements.
template <class Make>
void expect_teams_agree(const std::vector<Tensor>& output_like, const std::function<std::int64_t(int)>& rows_of,
                        const Make& make) {
  const std::vector<Tensor> expected = fresh(output_like);
  const auto serial = make(expected);
  for (std::int64_t row = 0; row < rows_of(kLaneWidth<SerialTeam, float>); ++row) serial(SerialTeam{}, row);
  for (int lanes : {1, 3, 8}) {
    const std::vector<Tensor> got = fresh(output_like);
    run_rows_in_threads(lanes, rows_of(kLaneWidth<ThreadTeam, float>), make(got));
    for (std::size_t k = 0; k < got.size(); ++k) {
      const auto a = got[k].to_doubles(), b = expected[k].to_doubles();
      for (std::size_t i = 0; i < a.size(); ++i)
        ASSERT_NEAR(a[i], b[i], 2e-5 * std::max(1.0, std::abs(b[i])))
            << lanes << " lanes, output " << k << ", element " << i;
    }
  }
}

std::function<std::int64_t(int)> fixed(std::int64_t rows) {
  return [rows](int) { return rows; };
}
std::function<std::int64_t(int)> blocks(std::int64_t n) {
  return [n](int width) { return (n + width - 1) / width; };
}

PixelTable table_of(std::int64_t pixels, std::int64_t channels, std::int64_t per_row, std::int64_t chunk_rows) {
  return {.pixels = pixels, .channels = channels, .pixels_per_row = per_row, .chunk_rows = chunk_rows};
}
// A last chunk that is not full; rows of several pixels; more channels than one block.
const std::vector<PixelTable> kTables{table_of(50, 5, 1, 16), table_of(48, 16, 4, 5), table_of(30, 131, 1, 7)};

TEST(RowKernels, BatchNormMoments) {
  for (const PixelTable& t : kTables) {
    const Tensor x = normal({t.pixels, t.channels}, 1), mean({t.chunks(), t.columns()}), m2 = mean.clone();
    expect_teams_agree({mean, m2}, fixed(t.chunks()), [&](const std::vector<Tensor>& out) {
      return ChunkMoments<float>{t, x.data<float>(), out[0].data<float>(), out[1].data<float>()};
    });
    for (std::int64_t chunk = 0; chunk < t.chunks(); ++chunk)
      ChunkMoments<float>{t, x.data<float>(), mean.data<float>(), m2.data<float>()}(SerialTeam{}, chunk);

    const Tensor c(Shape{t.channels});
    expect_teams_agree({c, c, c, c}, blocks(t.channels), [&](const std::vector<Tensor>& out) {
      fill(out[2], 0.5);
      fill(out[3], 2.0);
      return MergeMoments<float, SetMoments<float>>{t,
                                                    mean.data<float>(),
                                                    m2.data<float>(),
                                                    {static_cast<float>(t.pixels), out[0].data<float>(),
                                                     out[1].data<float>(), out[2].data<float>(), out[3].data<float>(),
                                                     1e-5f, 0.1f}};
    });
    const Tensor sums(Shape{t.channels}, DType::float64);
    expect_teams_agree({sums, sums}, blocks(t.channels), [&](const std::vector<Tensor>& out) {
      return MergeMoments<float, SetSums<float>>{
          t,
          mean.data<float>(),
          m2.data<float>(),
          {static_cast<double>(t.pixels), out[0].data<double>(), out[1].data<double>()}};
    });
  }
}

TEST(RowKernels, BatchNormNormalise) {
  for (const PixelTable& t : kTables) {
    const Shape shape{t.pixels, t.channels}, channels{t.channels};
    const Tensor x = normal(shape, 1), residual = normal(shape, 2), dy = normal(shape, 3);
    const Tensor a = normal(channels, 4), b = normal(channels, 5), c = normal(channels, 6), d = normal(channels, 7),
                 e = normal(channels, 8);
    expect_teams_agree({x}, fixed(t.chunks()), [&](const std::vector<Tensor>& out) {
      return Normalise<float, ReluGate::result, true>{t,
                                                      x.data<float>(),
                                                      residual.data<float>(),
                                                      a.data<float>(),
                                                      b.data<float>(),
                                                      c.data<float>(),
                                                      d.data<float>(),
                                                      out[0].data<float>(),
                                                      nullptr};
    });
    expect_teams_agree({x, x}, fixed(t.chunks()), [&](const std::vector<Tensor>& out) {
      return NormaliseBackward<float, ReluGate::result>{t,
                                                        dy.data<float>(),
                                                        x.data<float>(),
                                                        {residual.data<float>(), nullptr},
                                                        a.data<float>(),
                                                        b.data<float>(),
                                                        c.data<float>(),
                                                        d.data<float>(),
                                                        e.data<float>(),
                                                        0.01f,
                                                        out[0].data<float>(),
                                                        out[1].data<float>()};
    });
  }
}

TEST(RowKernels, BatchNormGradSums) {
  for (const PixelTable& t : kTables) {
    const Shape shape{t.pixels, t.channels};
    const Tensor x = normal(shape, 1), y = normal(shape, 2), dy = normal(shape, 3);
    const Tensor center = normal({t.channels}, 4), rstd = normal({t.channels}, 5), sums({t.chunks(), t.columns()});
    expect_teams_agree({sums, sums}, fixed(t.chunks()), [&](const std::vector<Tensor>& out) {
      return ChunkGradSums<float, ReluGate::result>{t,
                                                    dy.data<float>(),
                                                    x.data<float>(),
                                                    {y.data<float>(), nullptr},
                                                    center.data<float>(),
                                                    out[0].data<float>(),
                                                    out[1].data<float>()};
    });
    const Tensor g = normal(sums.shape(), 6), gx = normal(sums.shape(), 7);
    expect_teams_agree({rstd, rstd}, blocks(t.channels), [&](const std::vector<Tensor>& out) {
      return MergeGradSums<float>{
          t, g.data<float>(), gx.data<float>(), rstd.data<float>(), out[0].data<float>(), out[1].data<float>()};
    });
  }
}

TEST(RowKernels, SoftmaxAndItsGradient) {
  for (std::int64_t columns : {1, 5, 70, 200}) {
    const Tensor x = normal({4, columns}, 1), dy = normal({4, columns}, 2);
    const Tensor y = x.clone();
    softmax_in_place(y, columns);
    expect_teams_agree({x}, fixed(4), [&](const std::vector<Tensor>& out) {
      out[0].copy_from(x);
      return Softmax<float>{out[0].data<float>(), columns, columns};
    });
    expect_teams_agree({dy}, fixed(4), [&](const std::vector<Tensor>& out) {
      out[0].copy_from(dy);
      return SoftmaxBackward<float>{out[0].data<float>(), y.data<float>(), columns, columns};
    });
  }

  // What lies behind the columns that count is neither read nor written.
  const Tensor wide = normal({3, 8}, 3), dy = normal({3, 8}, 4);
  const Tensor y = wide.clone(), dx = dy.clone();
  softmax_in_place(y, 5);
  softmax_backward_in_place(dx, y, 5);
  for (std::int64_t row = 0; row < 3; ++row) {
    const auto cells = [&](const Tensor& t, std::int64_t begin, std::int64_t end) {
      const std::vector<double> all = t.to_doubles();
      return std::vector<double>(all.begin() + 8 * row + begin, all.begin() + 8 * row + end);
    };
    const Tensor narrow = Tensor::from(cells(wide, 0, 5), {1, 5}), narrow_dy = Tensor::from(cells(dy, 0, 5), {1, 5});
    softmax_in_place(narrow, 5);
    softmax_backward_in_place(narrow_dy, narrow, 5);
    const Tensor kept = Tensor::from(cells(y, 0, 5), {1, 5});
    EXPECT_LT(relative_error(kept, narrow), 1e-6);
    EXPECT_LT(relative_error(Tensor::from(cells(dx, 0, 5), {1, 5}), narrow_dy), 1e-5);
    EXPECT_EQ(cells(y, 5, 8), cells(wide, 5, 8));
    EXPECT_EQ(cells(dx, 5, 8), cells(dy, 5, 8));
  }
}

TEST(RowKernels, Tokens) {
  const std::int64_t samples = 3, tokens = 4, features = 10;
  const Tensor patches = normal({samples, tokens - 1, features}, 1), class_token = normal({features}, 2),
               position = normal({tokens, features}, 3), all = normal({samples, tokens, features}, 4);
  expect_teams_agree({all}, fixed(samples * tokens), [&](const std::vector<Tensor>& out) {
    return EmbedTokens<float>{patches.data<float>(),
                              class_token.data<float>(),
                              position.data<float>(),
                              out[0].data<float>(),
                              tokens,
                              features};
  });
  expect_teams_agree({patches}, fixed(samples), [&](const std::vector<Tensor>& out) {
    const std::int64_t length = (tokens - 1) * features;
    return CopyRows<float>{all.data<float>() + features, out[0].data<float>(), tokens * features, length, length};
  });
}

TEST(RowKernels, DropPath) {
  const Tensor x = normal({8, 11}, 1), seed = Tensor::from(std::vector<std::int64_t>{4}, {1});
  expect_teams_agree({x}, fixed(8), [&](const std::vector<Tensor>& out) {
    return DropPath<float>{x.data<float>(), out[0].data<float>(), 11, 0.5f, seed.data<std::int64_t>(), 0};
  });
}

TEST(RowKernels, LayerNormAndItsGradients) {
  for (std::int64_t channels : {3, 70, 200}) {
    const Shape shape{5, channels};
    const Tensor x = normal(shape, 1), dy = normal(shape, 2), gamma = normal({channels}, 3),
                 beta = normal({channels}, 4);
    const Tensor mean = normal({5}, 5), rstd = normal({5}, 6);
    expect_teams_agree({x, mean, rstd}, fixed(5), [&](const std::vector<Tensor>& out) {
      return LayerNorm<float>{x.data<float>(),      gamma.data<float>(),  beta.data<float>(), out[0].data<float>(),
                              out[1].data<float>(), out[2].data<float>(), channels,           1e-5f};
    });
    for (const Tensor& addend : {Tensor(), normal(shape, 7)})
      expect_teams_agree({x}, fixed(5), [&](const std::vector<Tensor>& out) {
        return LayerNormBackward<float>{dy.data<float>(),     x.data<float>(),
                                        mean.data<float>(),   rstd.data<float>(),
                                        gamma.data<float>(),  addend.defined() ? addend.data<float>() : nullptr,
                                        out[0].data<float>(), channels};
      });
    const PixelTable table{.pixels = 5, .channels = channels, .chunk_rows = 3};
    const Tensor sums({2, channels});
    expect_teams_agree({sums, sums}, fixed(2), [&](const std::vector<Tensor>& out) {
      return LayerNormChunkGradSums<float>{table,
                                           dy.data<float>(),
                                           x.data<float>(),
                                           mean.data<float>(),
                                           rstd.data<float>(),
                                           out[0].data<float>(),
                                           out[1].data<float>()};
    });
  }
}

TEST(RowKernels, Pooling) {
  const PoolSpec regular{2, 67, PoolWindows::regular(7, 3, 2, 1), PoolWindows::regular(6, 3, 2, 1)};
  const PoolSpec adaptive{2, 5, PoolWindows::adaptive(7, 3), PoolWindows::adaptive(5, 6)};
  for (const PoolSpec& spec : {regular, adaptive}) {
    const Tensor x = normal(spec.in_shape(), 1), dy = normal(spec.out_shape(), 2);
    const std::int64_t in_lines = spec.batch * spec.rows.in, out_lines = spec.batch * spec.rows.out;
    expect_teams_agree({dy}, fixed(out_lines), [&](const std::vector<Tensor>& out) {
      return AvgPool<float>{spec, x.data<float>(), out[0].data<float>()};
    });
    expect_teams_agree({x}, fixed(in_lines), [&](const std::vector<Tensor>& out) {
      return AvgPoolBackward<float>{spec, dy.data<float>(), out[0].data<float>()};
    });
  }
  const Tensor x = normal(regular.in_shape(), 1), dy = normal(regular.out_shape(), 2);
  const MaxPoolResult result = max_pool_forward(x, regular);
  expect_teams_agree({result.y, result.winner}, fixed(2 * regular.rows.out), [&](const std::vector<Tensor>& out) {
    return MaxPool<float, 0>{regular, x.data<float>(), out[0].data<float>(), out[1].data<std::uint8_t>()};
  });
  expect_teams_agree({x}, fixed(2 * regular.rows.in), [&](const std::vector<Tensor>& out) {
    return MaxPoolBackward<float, 0>{regular, dy.data<float>(), result.winner.data<std::uint8_t>(),
                                     out[0].data<float>()};
  });
}

TEST(RowKernels, GradientOfKernelRows) {
  // Every fourth of 2 · 7 rows of 6 outputs, seen through 3 rows of a kernel at stride 2.
  const Tensor dy = normal({2 * 4 * 6}, 1);
  expect_teams_agree({Tensor({4 * 6 * 3})}, fixed(4), [&](const std::vector<Tensor>& out) {
    return GradientOfKernelRows<float>{dy.data<float>(), out[0].data<float>(), 7, 4, 6, 3, 2, 1, 1, 4};
  });
}

TEST(RowKernels, LossAndAccuracy) {
  for (std::int64_t classes : {2, 10, 150}) {
    const Tensor logits = normal({6, classes}, 1), labels = some_labels(6, classes), per_row({6}), lse = normal({6}, 2);
    const Tensor one = Tensor::scalar(1.5), share = Tensor::scalar(0.7);
    const Tensor positions(Shape{6}, DType::int64);
    const auto* label = labels.data<std::int64_t>();
    expect_teams_agree({per_row, per_row}, fixed(6), [&](const std::vector<Tensor>& out) {
      return SoftmaxCrossEntropy<float>{
          logits.data<float>(), label, label, out[0].data<float>(), out[1].data<float>(), classes,
          share.data<float>(),  0.1f};
    });
    expect_teams_agree({logits}, fixed(6), [&](const std::vector<Tensor>& out) {
      return SoftmaxCrossEntropyBackward<float>{
          one.data<float>(), logits.data<float>(), label, label, lse.data<float>(), out[0].data<float>(), 6,
          classes,           share.data<float>(),  0.1f};
    });
    expect_teams_agree({one}, fixed(1), [&](const std::vector<Tensor>& out) {
      return MeanLoss<float>{lse.data<float>(), out[0].data<float>(), 6};
    });
    expect_teams_agree({positions}, fixed(6), [&](const std::vector<Tensor>& out) {
      return LabelPosition<float>{logits.data<float>(), label, out[0].data<std::int64_t>(), classes};
    });
  }
}

TEST(RowKernels, ReductionsAndMatrices) {
  const std::int64_t n = kReduceChunk + 1000;
  const Tensor x = normal({n}, 1), partial(Shape{2}, DType::float64), total(Shape{1}, DType::float64);
  expect_teams_agree({partial}, fixed(2), [&](const std::vector<Tensor>& out) {
    return ChunkSquares<float>{x.data<float>(), out[0].data<double>(), n};
  });
  expect_teams_agree({partial}, fixed(2), [&](const std::vector<Tensor>& out) {
    return ChunkFinite<float>{x.data<float>(), out[0].data<double>(), n};
  });
  fill(partial, 2.5);
  expect_teams_agree({total}, fixed(1), [&](const std::vector<Tensor>& out) {
    return AddPartials{partial.data<double>(), out[0].data<double>(), 2};
  });

  const std::int64_t rows = 21, columns = 83;
  const PixelTable table{.pixels = rows, .channels = columns, .chunk_rows = 8};
  const Tensor m = normal({rows, columns}, 2), row = normal({columns}, 3), sums({table.chunks(), columns});
  expect_teams_agree({sums}, fixed(table.chunks()), [&](const std::vector<Tensor>& out) {
    return ChunkColumnSums<float>{table, m.data<float>(), out[0].data<float>()};
  });
  expect_teams_agree({row}, blocks(columns), [&](const std::vector<Tensor>& out) {
    return SumColumnPartials<float>{table, m.data<float>(), out[0].data<float>()};
  });
  expect_teams_agree({m}, fixed(rows), [&](const std::vector<Tensor>& out) {
    out[0].copy_from(m);
    return BiasAndActivation<float, Relu<float>>{out[0].data<float>(), out[0].data<float>(), row.data<float>(),
                                                 columns};
  });
  expect_teams_agree({m, m}, fixed(rows), [&](const std::vector<Tensor>& out) {
    out[0].copy_from(m);
    return BiasAndActivation<float, Gelu<float>>{out[0].data<float>(), out[1].data<float>(), row.data<float>(),
                                                 columns};
  });
  expect_teams_agree({m}, fixed(rows), [&](const std::vector<Tensor>& out) {
    out[0].copy_from(m);
    return BiasAndAddend<float>{out[0].data<float>(), row.data<float>(), m.data<float>(), columns};
  });
  expect_teams_agree({m}, fixed(3), [&](const std::vector<Tensor>& out) {
    return Transpose<float>{m.data<float>(), out[0].data<float>(), rows, columns};
  });
}

/// Right for one lane only: every lane adds up its own share and none asks the others.
struct ForgetsTheOtherLanes {
  const float* x;
  float* sum;
  std::int64_t n;
  template <class Team> void operator()(const Team& team, std::int64_t row) const {
    float own = 0;
    for (std::int64_t i = team.lane(); i < n; i += team.size()) own += x[i];
    if (team.lane() == 0) sum[row] = own;
  }
};

TEST(ThreadTeam, ShowsAMissingReduction) {
  const Tensor x = Tensor::from(std::vector<float>(16, 1.0f), Shape{16}), sum(Shape{1});
  const ForgetsTheOtherLanes kernel{x.data<float>(), sum.data<float>(), 16};
  kernel(SerialTeam{}, 0);
  EXPECT_EQ(sum.item(), 16);
  run_rows_in_threads(4, 1, kernel);
  EXPECT_EQ(sum.item(), 4);
}

// The known answers that Random123 (Salmon et al. 2011) publishes for philox4x32 with ten rounds.
TEST(Philox, KnownAnswers) {
  const auto expect = [](Philox random, std::uint64_t index, std::array<std::uint32_t, 4> words) {
    const Philox::Block block = random.block(index);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(block.v[i], words[i]) << "word " << i;
  };
  expect({.seed = 0, .stream = 0}, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  expect({.seed = ~0ull, .stream = ~0ull}, ~0ull, {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  expect({.seed = 0x299f31d0a4093822ull, .stream = 0x0370734413198a2eull}, 0x85a308d3243f6a88ull,
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST(Philox, Distributions) {
  const std::int64_t n = 100000;
  Tensor t(Shape{n});
  fill_uniform(t, -1.0, 3.0, Philox{.seed = 1});
  double mean = 0, square = 0;
  for (double v : t.to_doubles()) {
    ASSERT_TRUE(v >= -1.0 && v < 3.0);
    mean += v / n;
  }
  EXPECT_NEAR(mean, 1.0, 0.02);
  fill_normal(t, 2.0, 0.5, Philox{.seed = 1});
  mean = 0;
  for (double v : t.to_doubles()) mean += v / n;
  for (double v : t.to_doubles()) square += (v - mean) * (v - mean) / n;
  EXPECT_NEAR(mean, 2.0, 0.01);
  EXPECT_NEAR(square, 0.25, 0.01);
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_LT((Philox{.seed = 4}.below(i, 7)), 7u);
}

TEST(Elementwise, Arithmetic) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3}, Shape{3}),
               b = Tensor::from(std::vector<float>{4, 5, 6}, Shape{3});
  EXPECT_EQ(add(a, b).to_doubles(), (std::vector<double>{5, 7, 9}));
  axpy(2.0, a, b);
  EXPECT_EQ(b.to_doubles(), (std::vector<double>{6, 9, 12}));
  scale_in_place(b, 0.5);
  add_in_place(b, a);
  EXPECT_EQ(b.to_doubles(), (std::vector<double>{4, 6.5, 9}));
  EXPECT_EQ(cast(b, DType::bfloat16).to_doubles(), b.to_doubles());
  EXPECT_EQ(transpose(Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, Shape{2, 3})).to_doubles(),
            (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_THROW(add(a, Tensor::zeros({2})), Error);
}

TEST(Reduce, SumsAndFiniteness) {
  const std::int64_t n = 3 * kReduceChunk + 17;
  for (DType type : {DType::float32, DType::bfloat16, DType::float16, DType::float64}) {
    const Tensor t(Shape{n}, type);
    fill(t, 0.5);
    EXPECT_EQ(sum_of_squares(t), 0.25 * static_cast<double>(n));
    EXPECT_TRUE(all_finite(t));
    for (double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
      fill(t.slice(n - 2, n - 1), bad);
      EXPECT_FALSE(all_finite(t)) << bad;
    }
  }
  EXPECT_TRUE(all_finite(Tensor(Shape{0})));
  const Tensor m = normal({700, 67}, 1);
  std::vector<double> expected(67, 0.0);
  const auto values = m.to_doubles(), sums = column_sums(m).to_doubles();
  for (std::size_t i = 0; i < values.size(); ++i) expected[i % 67] += values[i];
  for (std::size_t c = 0; c < 67; ++c) EXPECT_NEAR(sums[c], expected[c], 1e-3);
}

TEST(RankOrderReduce, TheKernelLeavesTheBitsOfTheHostLoop) {
  const std::int64_t n = 5000, ranks = 5;
  const auto check = [&]<class Combine>(ReduceOp op, float divisor) {
    std::vector<Tensor> by_loop, by_kernel;
    std::vector<void*> loop_pointers;
    std::vector<std::int64_t> kernel_pointers;
    for (std::uint64_t r = 0; r < ranks; ++r) {
      by_loop.push_back(normal({n}, r));
      by_kernel.push_back(by_loop.back().clone());
      loop_pointers.push_back(by_loop.back().raw());
      kernel_pointers.push_back(reinterpret_cast<std::int64_t>(by_kernel.back().raw()));
    }
    for (std::uint64_t r = 0; r < ranks; ++r) kernel_pointers.push_back(kernel_pointers[r]);  // in place
    reduce_in_rank_order(Device{}, DType::float32, op, {loop_pointers.begin(), loop_pointers.end()}, loop_pointers, n);
    for_each_index(Device{}, n, RankOrderReduce<float, Combine>{kernel_pointers.data(), ranks, ranks, divisor});
    for (std::size_t r = 0; r < ranks; ++r)
      EXPECT_EQ(std::memcmp(by_loop[r].raw(), by_kernel[r].raw(), by_loop[r].bytes()), 0) << "rank " << r;
  };
  check.operator()<AddRank>(ReduceOp::sum, 1);
  check.operator()<AddRank>(ReduceOp::mean, ranks);
  check.operator()<LargerOfRanks>(ReduceOp::max, 1);
}

}  // namespace
}  // namespace ab

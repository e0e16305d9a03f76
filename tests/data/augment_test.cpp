// SPDX-License-Identifier: MIT
//
// What recipes do to images: scaling, cropping, RandAugment, TrivialAugment, colour jitter, random erasing, mixup and CutMix. Pixels are
// compared with what Pillow and torchvision made of the same images; what is drawn at random is held to its
// laws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "data/augment.h"
#include "data/crop.h"
#include "data/draws.h"
#include "data/mix.h"
#include "tests/golden/fixtures.h"
#include "tests/golden/images.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

using golden::cases_of;
using golden::expect_same_image;
using golden::image_of;

const TensorFile& fixtures() {
  static const TensorFile file = golden::read_fixtures("images.safetensors");
  return file;
}

/// Runs `check` on every stored case of a group.
void for_each_case(const std::string& group, const std::function<void(const golden::Case&)>& check) {
  const std::vector<std::string> names = cases_of(fixtures(), group);
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    check(golden::Case(fixtures(), name));
  }
}

Box box_of(const golden::Case& c) {
  const auto v = c.option<std::vector<int>>("box");
  return {v[0], v[1], v[2], v[3]};
}

// ---- Scaling and cropping ----

/// `other_order`: the most by which columns before rows may differ.
void expect_pillows(const std::string& group, Interpolation interpolation, int other_order) {
  Resizer resizer(interpolation);
  Image out;
  for_each_case(group, [&](const golden::Case& c) {
    const Image image = image_of(c.tensor("image"));
    const auto size = c.option<std::vector<int>>("size");
    resizer.resize(image.view(), box_of(c), size[0], size[1], out);
    expect_same_image(out, c.tensor("y"));
    expect_same_image(out, c.tensor("y_at_once"), other_order);
    // A window of the result is the same pixels.
    const Box part{size[0] / 3, size[1] / 2, size[0] - size[0] / 3, size[1] - size[1] / 2};
    Image window;
    resizer.resize(image.view(), box_of(c), size[0], size[1], part, window);
    for (int y = 0; y < part.height; ++y)
      EXPECT_TRUE(std::equal(window.row(y), window.row(y) + 3 * part.width, out.row(part.top + y) + 3 * part.left));
  });
}
TEST(Resize, EqualsPillow) {
  expect_pillows("resize", Interpolation::bilinear, 1);
  expect_pillows("bicubic", Interpolation::bicubic, 14);  // clipped in between
}

// Vectors of pixels reach no further than the image does, which the address sanitizer sees.
TEST(Resize, TakesImagesOfAFewPixels) {
  for (const int height : {1, 2, 3, 5})
    for (const int width : {1, 2, 3}) {
      const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * height * width), 200);
      Image out;
      Resizer().resize({pixels.data(), height, width}, {0, 0, height, width}, 7, 5, out);
      EXPECT_EQ(out.pixels, std::vector<std::uint8_t>(3 * 7 * 5, 200));
    }
}

TEST(CentreCrop, EqualsTorchvision) {
  Resizer resizer;
  Image out;
  for_each_case("centre_crop", [&](const golden::Case& c) {
    const int size = c.option<int>("size");
    centre_crop(image_of(c.tensor("image")).view(), size, size, resizer, out);
    expect_same_image(out, c.tensor("y"));
  });
}

TEST(CentreCrop, TakesTheShorterSideThatIsGiven) {
  const Image image = image_of(golden::Case(fixtures(), "centre_crop/wide").tensor("image"));  // 37 · 50
  Resizer resizer;
  Image whole, out;
  resizer.resize(image.view(), {0, 0, 37, 50}, 20, 27, whole);
  centre_crop(image.view(), 14, 14, resizer, out, 20);
  for (int y = 0; y < 14; ++y)
    EXPECT_TRUE(std::equal(out.row(y), out.row(y) + 3 * 14, whole.row(y + 3) + 3 * 6)) << y;  // 6.5, to even
}

TEST(ResizedCrop, BoxesFollowTorchvisionsLaw) {
  constexpr int kHeight = 300, kWidth = 400, kDraws = 20000;
  double area = 0, log_ratio = 0, centre = 0;
  int flips = 0;
  for (std::int64_t sample = 0; sample < kDraws; ++sample) {
    const ResizedCrop crop = draw_resized_crop({3, 1, sample}, kHeight, kWidth);
    const Box& b = crop.box;
    ASSERT_TRUE(b.top >= 0 && b.left >= 0 && b.top + b.height <= kHeight && b.left + b.width <= kWidth);
    const double share = static_cast<double>(b.height) * b.width / (kHeight * kWidth);
    const double ratio = static_cast<double>(b.width) / b.height;
    ASSERT_TRUE(share > 0.079 && share <= 1) << share;
    ASSERT_TRUE(ratio > 0.74 && ratio < 1.35) << ratio;
    area += share / kDraws;
    log_ratio += std::log(ratio) / kDraws;
    centre += (b.left + 0.5 * b.width) / kWidth / kDraws;
    flips += crop.flip;
  }
  // Means over a million boxes drawn by torchvision's rule for this size: large and tall ones often stick
  // out.
  EXPECT_NEAR(area, 0.4332, 0.008);
  EXPECT_NEAR(log_ratio, 0.0307, 0.006);
  EXPECT_NEAR(centre, 0.5, 0.005);
  EXPECT_NEAR(flips, kDraws / 2, 400);
  EXPECT_EQ(draw_resized_crop({3, 1, 8}, 50, 60), draw_resized_crop({3, 1, 8}, 50, 60));
  EXPECT_NE(draw_resized_crop({3, 1, 8}, 50, 60), draw_resized_crop({3, 2, 8}, 50, 60)) << "epochs must differ";
  EXPECT_NE(draw_resized_crop({3, 1, 8}, 50, 60), draw_resized_crop({4, 1, 8}, 50, 60)) << "seeds must differ";
}

TEST(ResizedCrop, KeepsToTheLeastAreaThatIsGiven) {
  double least = 1;
  for (std::int64_t sample = 0; sample < 1000; ++sample) {
    const Box b = draw_resized_crop({3, 1, sample}, 300, 400, 0.35).box;
    least = std::min(least, static_cast<double>(b.height) * b.width / (300 * 400));
  }
  EXPECT_NEAR(least, 0.35, 0.01);
}

TEST(ResizedCrop, FallsBackToTheCentre) {
  // No box of 8 % of these areas fits, however it is shaped.
  EXPECT_EQ(draw_resized_crop({0, 0, 0}, 1000, 10).box, (Box{493, 0, 13, 10}));
  EXPECT_EQ(draw_resized_crop({0, 0, 0}, 10, 1000).box, (Box{0, 493, 10, 13}));
}

TEST(ResizedCrop, MirrorsWhatItScales) {
  const Image image = image_of(golden::Case(fixtures(), "resize/box").tensor("image"));
  Resizer resizer;
  Image plain, mirrored;
  const Box box{2, 3, 20, 15};
  resized_crop(image.view(), {box, false}, 9, 7, resizer, plain);
  resized_crop(image.view(), {box, true}, 9, 7, resizer, mirrored);
  for (int y = 0; y < 9; ++y)
    for (int x = 0; x < 7; ++x)
      EXPECT_TRUE(std::equal(plain.row(y) + 3 * x, plain.row(y) + 3 * x + 3, mirrored.row(y) + 3 * (6 - x)));
}

// ---- RandAugment ----

Image op_input(const std::string& size) {
  return image_of(golden::Case(fixtures(), "op_input/" + size).tensor("image"));
}

TEST(RandAugment, OperationsEqualTorchvision) {
  std::map<int, int> seen;
  for_each_case("op", [&](const golden::Case& c) {
    const auto op = static_cast<ImageOp>(c.option<int>("op"));
    Image image = op_input(c.option<std::string>("input")), scratch;
    EXPECT_EQ(op_is_signed(op), c.option<bool>("signed"));
    const double strength = op_strength(OpRange::usual, op, c.option<int>("magnitude"), image.height, image.width);
    apply_op(op, c.option<bool>("negative") ? -strength : strength, image, scratch);
    expect_same_image(image, c.tensor("y"));
    ++seen[c.option<int>("op")];
  });
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kImageOps));
}

TEST(RandAugment, StrengthsEqualTorchvisionAtEveryMagnitude) {
  for (const auto& [name, range] :
       {std::pair{"op_strength/usual", OpRange::usual}, {"op_strength/wide", OpRange::wide}}) {
    const golden::Case c(fixtures(), name);
    const std::vector<double> expected = c.tensor("y").to_doubles();
    for (int i = 0; i < kImageOps * (kMaxMagnitude + 1); ++i) {
      const auto op = static_cast<ImageOp>(i / (kMaxMagnitude + 1));
      const bool is_shift = op == ImageOp::translate_x || op == ImageOp::translate_y;
      const double strength = expected[static_cast<std::size_t>(i)];
      EXPECT_EQ(op_strength(range, op, i % (kMaxMagnitude + 1), c.option<int>("height"), c.option<int>("width")),
                is_shift ? std::trunc(strength) : strength)
          << name << ' ' << i / (kMaxMagnitude + 1) << ' ' << i % (kMaxMagnitude + 1);
    }
  }
}

TEST(TrivialAugment, OperationsEqualTorchvision) {
  const Image square = image_of(golden::Case(fixtures(), "wide_op_input/square").tensor("image"));
  for_each_case("wide_op", [&](const golden::Case& c) {
    const auto op = static_cast<ImageOp>(c.option<int>("op"));
    Image image = square, scratch;
    const double strength = op_strength(OpRange::wide, op, c.option<int>("magnitude"), image.height, image.width);
    apply_op(op, c.option<bool>("negative") ? -strength : strength, image, scratch);
    expect_same_image(image, c.tensor("y"));
  });
}

TEST(TrivialAugment, DrawsEveryOperationAtEveryMagnitude) {
  const Image input = op_input("large");
  constexpr int kDraws = 14 * 31 * 100;
  std::map<std::string, int> results;
  const auto result = [&](const SampleKey& key) {
    Image image = input, scratch;
    trivial_augment(key, image, scratch);
    return std::string(image.pixels.begin(), image.pixels.end());
  };
  for (std::int64_t sample = 0; sample < kDraws; ++sample) ++results[result({1, 0, sample})];
  std::map<std::string, int> possible;  // of 62 equally likely magnitudes with a sign
  for (int i = 0; i < kImageOps * 62; ++i) {
    const auto op = static_cast<ImageOp>(i / 62);
    const double strength = op_strength(OpRange::wide, op, i % 31, input.height, input.width);
    Image image = input, scratch;
    apply_op(op, i % 62 < 31 && op_is_signed(op) ? -strength : strength, image, scratch);
    ++possible[{image.pixels.begin(), image.pixels.end()}];
  }
  for (const auto& [pixels, times] : results) EXPECT_TRUE(possible.contains(pixels));
  for (const auto& [pixels, ways] : possible) {
    const double expected = kDraws * ways / (kImageOps * 62.0);
    EXPECT_NEAR(results[pixels], expected, 5 * std::sqrt(expected)) << ways;
  }
  EXPECT_EQ(result({1, 2, 3}), result({1, 2, 3}));
}

// ---- Colour jitter ----

TEST(ColorJitter, EqualsTorchvision) {
  const Image picture = image_of(golden::Case(fixtures(), "jitter_input/picture").tensor("image"));
  constexpr std::array kOps{ImageOp::brightness, ImageOp::contrast, ImageOp::color, ImageOp::hue};
  for_each_case("jitter", [&](const golden::Case& c) {
    const auto order = c.option<std::vector<std::size_t>>("order");
    const auto strengths = c.option<std::vector<double>>("strengths");
    Image image = picture, scratch;
    for (std::size_t i = 0; i < 4; ++i)
      if (strengths[i] != 0) apply_op(kOps[order[i]], strengths[i], image, scratch);
    expect_same_image(image, c.tensor("y"));
  });
}

TEST(ColorJitter, HuesEqualTorchvision) {
  const Image colors = image_of(golden::Case(fixtures(), "hue_input/colors").tensor("image"));
  for_each_case("hue", [&](const golden::Case& c) {
    Image image = colors, scratch;
    apply_op(ImageOp::hue, c.option<double>("share"), image, scratch);
    expect_same_image(image, c.tensor("y"));
  });
}

TEST(ColorJitter, DrawsStrengthsAndOrdersUniformly) {
  constexpr std::array kMost{0.4, 0.0, 1.5, 0.5};
  constexpr int kDraws = 6000;
  std::map<std::vector<ImageOp>, int> orders;
  double least[4]{}, most[4]{}, mean[4]{};
  for (std::int64_t sample = 0; sample < kDraws; ++sample) {
    std::vector<ImageOp> order;
    for (const JitterStep& step : draw_color_jitter({1, 2, sample}, kMost)) {
      order.push_back(step.op);
      const std::size_t i = step.op == ImageOp::hue        ? 3
                            : step.op == ImageOp::color    ? 2
                            : step.op == ImageOp::contrast ? 1
                                                           : 0;
      least[i] = std::min(least[i], step.strength), most[i] = std::max(most[i], step.strength);
      mean[i] += step.strength / kDraws;
    }
    ++orders[order];
  }
  EXPECT_EQ(orders.size(), 24u);
  for (const auto& [order, times] : orders) EXPECT_NEAR(times, kDraws / 24, 80);
  EXPECT_NEAR(least[0], -0.4, 0.001);
  EXPECT_NEAR(most[0], 0.4, 0.001);
  EXPECT_NEAR(mean[0], 0, 0.015);
  EXPECT_EQ(most[1] - least[1], 0);
  EXPECT_NEAR(least[2], -1, 0.003) << "below, colours would turn into their opposites";
  EXPECT_NEAR(most[2], 1.5, 0.003);
  EXPECT_NEAR(mean[2], 0.25, 0.05);
  EXPECT_NEAR(least[3], -0.5, 0.001);
  EXPECT_NEAR(most[3], 0.5, 0.001);
}

TEST(RandAugment, FlatAndTinyImagesSurviveEveryOperation) {
  for (const int side : {1, 2, 3})
    for (int op = 0; op < kImageOps; ++op) {
      Image image, scratch;
      image.resize(side, side);
      std::fill(image.pixels.begin(), image.pixels.end(), std::uint8_t{77});
      for (const OpRange range : {OpRange::usual, OpRange::wide})
        apply_op(static_cast<ImageOp>(op), op_strength(range, static_cast<ImageOp>(op), 30, side, side), image,
                 scratch);
      EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(3 * side * side));
    }
}

TEST(RandAugment, IsAPureFunctionAndDrawsEveryOperation) {
  const Image input = op_input("large");
  const auto result = [&](std::uint64_t seed, std::int64_t epoch, std::int64_t sample, int operations) {
    Image image = input, scratch;
    rand_augment({seed, epoch, sample}, operations, 9, image, scratch);
    return std::string(image.pixels.begin(), image.pixels.end());
  };
  EXPECT_EQ(result(1, 2, 3, 2), result(1, 2, 3, 2));
  EXPECT_EQ(result(1, 2, 3, 0), std::string(input.pixels.begin(), input.pixels.end()));
  // One operation each: 14 equally likely ones, and 9 of them in two directions, give 23 results.
  std::map<std::string, int> results;
  constexpr int kDraws = 5600;
  for (std::int64_t sample = 0; sample < kDraws; ++sample) ++results[result(1, 0, sample, 1)];
  EXPECT_EQ(results.size(), 23u) << "identity and 22 others";
  for (const auto& [pixels, times] : results) EXPECT_TRUE(times > 120 && times < 500) << times;
}

// ---- Random erasing ----

TEST(RandomErasing, BoxesFollowTorchvisionsLaw) {
  constexpr int kHeight = 60, kWidth = 80, kDraws = 20000;
  double area = 0, log_ratio = 0;
  int erased = 0;
  for (std::int64_t sample = 0; sample < kDraws; ++sample) {
    const Box b = draw_erasing({5, 2, sample}, 0.25, kHeight, kWidth);
    if (b == Box{}) continue;
    ++erased;
    ASSERT_TRUE(b.top >= 0 && b.left >= 0 && b.top + b.height <= kHeight && b.left + b.width <= kWidth);
    ASSERT_TRUE(b.height < kHeight && b.width < kWidth);
    area += static_cast<double>(b.height) * b.width / (kHeight * kWidth);
    log_ratio += std::log(static_cast<double>(b.height) / b.width);
  }
  EXPECT_NEAR(erased, 0.25 * kDraws, 300);
  // Means over a million boxes drawn by torchvision's rule for this size.
  EXPECT_NEAR(area / erased, 0.1713, 0.006);
  EXPECT_NEAR(log_ratio / erased, -0.0383, 0.05);
  EXPECT_EQ(draw_erasing({5, 2, 0}, 0, kHeight, kWidth), Box{});
  EXPECT_NE(draw_erasing({5, 2, 0}, 1, kHeight, kWidth), draw_erasing({5, 3, 0}, 1, kHeight, kWidth));
}

TEST(RandomErasing, SetsExactlyTheBoxToZero) {
  std::vector<float> pixels(3 * 5 * 7, 1.0f);
  erase({1, 2, 3, 4}, 7, pixels.data());
  for (int y = 0; y < 5; ++y)
    for (int x = 0; x < 7; ++x)
      for (int c = 0; c < 3; ++c)
        EXPECT_EQ(pixels[static_cast<std::size_t>(3 * (7 * y + x) + c)], y >= 1 && y < 4 && x >= 2 && x < 6 ? 0 : 1);
}

// ---- Mixup and CutMix ----

TEST(Mix, EqualsTorchvision) {
  for_each_case("mix", [](const golden::Case& c) {
    const Tensor images = c.tensor("images");
    const Mix mix{c.option<double>("share"), c.option<bool>("cut"), box_of(c)};
    mix_images(mix, images);
    golden::expect_close(images, c.tensor("y"), 2e-7, "mixed images");
    if (mix.cut) {
      EXPECT_NEAR(mix.share, 1 - mix.box.height * mix.box.width / 120.0, 1e-6);
    }
  });
}

TEST(Mix, PairsInReverse) {
  const Tensor images = normal_values({5, 4, 6, 3}, 1), before = images.clone();
  const Mix mix{0.3, false, {}};
  mix_images(mix, images);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t k = 0; k < 72; ++k)
      EXPECT_NEAR(images.data<float>()[72 * i + k],
                  0.3 * before.data<float>()[72 * i + k] + 0.7 * before.data<float>()[72 * (4 - i) + k], 1e-6);
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{7, 8, 9}, {3});
  EXPECT_EQ(reversed(labels).to_doubles(), (std::vector<double>{9, 8, 7}));
  EXPECT_EQ(labels.to_doubles(), (std::vector<double>{7, 8, 9})) << "the labels themselves stay";
}

TEST(Mix, SharesFollowTheBetaDistribution) {
  for (const double alpha : {0.1, 0.2, 0.8, 1.0, 4.0}) {
    SCOPED_TRACE(alpha);
    constexpr int kDraws = 20000;
    double mean = 0, square = 0;
    for (std::int64_t batch = 0; batch < kDraws; ++batch) {
      const Mix mix = draw_mix({.mixup = alpha}, 1, 0, batch, 32, 32);
      ASSERT_TRUE(mix.share >= 0 && mix.share <= 1 && !mix.cut);
      mean += mix.share / kDraws;
      square += (mix.share - 0.5) * (mix.share - 0.5) / kDraws;
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(mean, 0.5, 5 * std::sqrt(variance / kDraws));
    EXPECT_NEAR(square, variance, 0.04 * variance);
  }
  Draws draws(0, 0, 0);
  double mean = 0;
  for (int i = 0; i < 100; ++i) mean += draws.gamma(50) / 100;
  EXPECT_NEAR(mean, 50, 3.6);
  const double tiny = draws.beta(1e-9, 1e-9);
  EXPECT_TRUE(tiny >= 0 && tiny <= 1);
}

TEST(Mix, CutMixCountsThePixelsThatItPastes) {
  double area = 0;
  constexpr int kDraws = 20000;
  for (std::int64_t batch = 0; batch < kDraws; ++batch) {
    const Mix mix = draw_mix({.cutmix = 1}, 1, 0, batch, 48, 64);
    ASSERT_TRUE(mix.cut && mix.box.top >= 0 && mix.box.left >= 0);
    ASSERT_TRUE(mix.box.top + mix.box.height <= 48 && mix.box.left + mix.box.width <= 64);
    ASSERT_DOUBLE_EQ(mix.share, 1 - mix.box.height * mix.box.width / (48.0 * 64));
    area += (1 - mix.share) / kDraws;
  }
  // The mean over a million boxes drawn by torchvision's rule for this size.
  EXPECT_NEAR(area, 0.3085, 0.009);
  EXPECT_EQ(cutmix_box(0.75, 0, 63, 48, 64), (Box{0, 47, 12, 17}));
}

TEST(Mix, BothAreDrawnEquallyOften) {
  int cuts = 0;
  for (std::int64_t batch = 0; batch < 10000; ++batch)
    cuts += draw_mix({.mixup = 0.8, .cutmix = 1}, 2, 7, batch, 32, 32).cut;
  EXPECT_NEAR(cuts, 5000, 250);
  EXPECT_EQ(draw_mix({}, 2, 7, 1, 32, 32).share, 1);
}

}  // namespace
}  // namespace ab

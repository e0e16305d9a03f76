#pragma once
// SPDX-License-Identifier: MIT
//
// Element by element over whole tensors:
//   map(device, n, y, f, x, …)    y[i] = f(x[i], …), or f(i, x[i], …) when f takes the index, for i in [0, n)
// x[i] and what f returns are of the computing type. y may be one of the inputs.

#include <tuple>

#include "engine/device/exec.h"
#include "engine/kernels/pack.h"

namespace ab {
namespace kernels {

/// One block of elements per index, reached as `Block` says.
template <class Block, class F, class To, class... From> struct Map {
  F f;
  std::int64_t n;
  To* y;
  std::tuple<const From*...> x;

  AB_HD void operator()(std::int64_t block) const {
    const std::int64_t begin = block * Block::value;
    if (n - begin >= Block::value) of_block(begin, Block{});
    else of_block(begin, static_cast<int>(n - begin));
  }

 private:
  template <class Count> AB_HD void of_block(std::int64_t begin, Count count) const {
    std::apply([&](auto*... from) { assign_block(y, begin, count, f, load(from + begin, count)...); }, x);
  }
};

}  // namespace kernels

template <class F, class To, class... From>
void map(Device device, std::int64_t n, To* y, const F& f, const From*... x) {
  if (device.kind == DeviceKind::shapes) return;
  const auto blocks = [n](int width) { return (n + width - 1) / width; };
  const auto by = [&]<class Block>(Block) { return kernels::Map<Block, F, To, From...>{f, n, y, {x...}}; };
  constexpr int loop = 1024, width = kPackWidth<To, From...>;
  if (device.kind == DeviceKind::cpu) loop_over_indices(blocks(loop), by(std::integral_constant<int, loop>{}), loop);
  else if (packable<width>(width, y, x...)) launch_over_indices(device, blocks(width), by(Packed<width>{}));
  else launch_over_indices(device, n, by(std::integral_constant<int, 1>{}));
}

}  // namespace ab

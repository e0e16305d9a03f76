// SPDX-License-Identifier: MIT
#include "engine/kernels/int8.h"

namespace ab {
namespace {

void check_size(const Int8Layout& layout, const Tensor& bytes) {
  AB_ASSERT(bytes.dtype() == DType::uint8 && bytes.numel() == layout.parts * layout.part_bytes());
}

}  // namespace

Int8Layout::Int8Layout(std::int64_t elements, int parts, int block) : elements(elements), parts(parts), block(block) {
  AB_CHECK(block > 0 && block % kDraws == 0, "a block of 8-bit numbers has a multiple of {} elements, not {}", kDraws,
           block);
  const std::int64_t most = std::int64_t{parts} * block;
  blocks = (elements + most - 1) / most;
}

void quantise(const Int8Layout& layout, const Tensor& x, const Philox& random, std::uint64_t first,
              const Tensor& bytes) {
  check_size(layout, bytes);
  AB_ASSERT(x.numel() == layout.elements);
  for_each_row(x.device(), layout.parts * layout.blocks, layout.block,
               kernels::QuantiseBlock{layout, x.data<float>(), bytes.data<std::uint8_t>(), random, first});
}

void dequantise(const Int8Layout& layout, const Tensor& bytes, const Tensor& x) {
  check_size(layout, bytes);
  AB_ASSERT(x.numel() == layout.elements);
  for_each_row(x.device(), layout.parts * layout.blocks, layout.block,
               kernels::DequantiseBlock{layout, bytes.data<std::uint8_t>(), x.data<float>()});
}

void mean_of_parts(const Int8Layout& layout, const Tensor& bytes, const Tensor& mean) {
  check_size(layout, bytes);
  AB_ASSERT(mean.numel() == layout.part_elements());
  for_each_row(mean.device(), layout.blocks, layout.block * layout.parts,
               kernels::MeanOfBlocks{layout, bytes.data<std::uint8_t>(), mean.data<float>()});
}

}  // namespace ab

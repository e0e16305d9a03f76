// SPDX-License-Identifier: MIT
#include "engine/sync/int8_mean.h"

namespace ab {
namespace {

Philox rounding_of(std::string_view what, const Int8Wire& wire, const Comm& comm) {
  return {wire.seed, stream_of(what) + static_cast<std::uint64_t>(comm.rank())};
}

}  // namespace

Int8Mean::Int8Mean(std::int64_t elements, const Int8Wire& wire, Comm& comm, Device device)
    : comm_(comm),
      rounding_(rounding_of("int8", wire, comm)),
      mean_rounding_(rounding_of("int8 mean", wire, comm)),
      all_(elements, comm.size(), wire.block),
      own_(all_.part_elements(), 1, wire.block),
      sent_(Shape{all_.parts * all_.part_bytes()}, DType::uint8, device),
      received_(sent_.shape(), DType::uint8, device),
      mean_(Shape{all_.part_elements()}, DType::float32, device),
      mean_bytes_(Shape{all_.part_bytes()}, DType::uint8, device) {}

void Int8Mean::start(const Tensor& x, std::uint64_t first) {
  first_ = first;
  quantise(all_, x, rounding_, first_, sent_);
  request_ = comm_.all_to_all_async(sent_, received_);
}

void Int8Mean::add_up() {
  request_.wait();
  mean_of_parts(all_, received_, mean_);
  quantise(own_, mean_, mean_rounding_, first_, mean_bytes_);
  request_ = comm_.all_gather_async(mean_bytes_, received_);
}

void Int8Mean::finish(const Tensor& x) {
  request_.wait();
  dequantise(all_, received_, x);
}

}  // namespace ab

#pragma once
// SPDX-License-Identifier: MIT
//
// The mean of vectors over ranks with 8 bits on the wire (engine/kernels/int8.h), in two exchanges: every rank sends part j of its
// vector to rank j, which adds up that part in float32, and sends the mean to all. The first is the all-to-all of ZeRO++
// (Wang et al. 2023, arXiv 2306.10209) without its second hop between nodes. Both are rounded once, so with s of the ranks
// and s' of the mean
//   mean over ranks of ĝ is unbiased, and off by less than  mean over ranks of s + s'
// All ranks have the same bits. n elements are n (1 + 4 / block) bytes in either exchange.

#include "engine/comm/comm.h"
#include "engine/kernels/int8.h"

namespace ab {

struct Int8Wire {
  int block = 256;         ///< elements that share a scale, a multiple of 8
  std::uint64_t seed = 0;  ///< of the rounding
  bool operator==(const Int8Wire&) const = default;
};

/// For vectors of so many elements, one after the other. `comm` outlives this.
class Int8Mean {
 public:
  Int8Mean(std::int64_t elements, const Int8Wire& wire, Comm& comm, Device device)
      : comm_(comm),
        rounding_{wire.seed, stream_of("int8") + static_cast<std::uint64_t>(comm.rank())},
        mean_rounding_{wire.seed, stream_of("int8 mean") + static_cast<std::uint64_t>(comm.rank())},
        all_(elements, comm.size(), wire.block),
        own_(all_.part_elements(), 1, wire.block),
        sent_(Shape{all_.parts * all_.part_bytes()}, DType::uint8, device),
        received_(sent_.shape(), DType::uint8, device),
        mean_(Shape{all_.part_elements()}, DType::float32, device),
        mean_bytes_(Shape{all_.part_bytes()}, DType::uint8, device) {}

  // In this order, for each vector; between two of them others may go on with theirs.
  /// The parts of x set out. Rounds by counters [first, first + counters()), which no other vector shares.
  void start(const Tensor& x, std::uint64_t first) {
    first_ = first;
    quantise(all_, x, rounding_, first_, sent_);
    request_ = comm_.all_to_all_async(sent_, received_);
  }
  /// The mean of this rank's part sets out, when the others' have come.
  void add_up() {
    request_.wait();
    mean_of_parts(all_, received_, mean_);
    quantise(own_, mean_, mean_rounding_, first_, mean_bytes_);
    request_ = comm_.all_gather_async(mean_bytes_, received_);
  }
  /// x becomes the mean.
  void finish(const Tensor& x) {
    request_.wait();
    dequantise(all_, received_, x);
  }

  std::uint64_t counters() const { return static_cast<std::uint64_t>(all_.counters()); }

 private:
  Comm& comm_;
  Philox rounding_, mean_rounding_;
  Int8Layout all_, own_;
  Tensor sent_, received_;  // bytes of all parts
  Tensor mean_, mean_bytes_;
  std::uint64_t first_ = 0;
  Request request_;
};

}  // namespace ab

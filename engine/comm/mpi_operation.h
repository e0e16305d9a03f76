#pragma once
// SPDX-License-Identifier: MIT
//
// One collective in flight over MPI. It is built from point-to-point messages rather than MPI's own
// collectives, for three reasons: sums are taken in rank order, so all ranks hold equal bits whatever
// algorithm an MPI library would have chosen; several collectives may be in flight in any interleaving; and
// after a timeout the unanswered messages tell which ranks are missing.
//
// Its messages are those of route.h, segment after segment, so memory and message sizes stay bounded. Over a
// virtual network a message is handed to MPI when it would have arrived.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/comm.h"
#include "engine/comm/virtual_network.h"

namespace ab {

/// Throws Error(communication) with MPI's own explanation unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorKind::communication,
              fmt::format("{} failed: {}", what, std::string(text, static_cast<std::size_t>(length))));
}

class MpiOperation {
 public:
  struct Buffers {
    Tensor full = {};  ///< all parts: the tensor, the output of a gather, else the input
    Tensor out = {};   ///< reduce-scatter: receives this rank's part; all-to-all: the parts of the others for it
    std::vector<std::int64_t> counts = {};  ///< elements per part; empty: equal shares
  };

  /// The ranks that take part; `layout` and `world_ranks` outlive the operation.
  struct Group {
    MPI_Comm comm;
    int rank;
    const Layout& layout;
    const std::vector<int>& world_ranks;
    VirtualNetwork* network;  ///< may be null
    LinkModel links;
  };

  /// `sequence` counts the collectives of the communicator. Nothing leaves before advance().
  MpiOperation(const Group& group, std::int64_t sequence, const CollectiveCall& call, const Route& route,
               Buffers buffers)
      : group_(group),
        sequence_(sequence),
        call_(call),
        rounds_(message_rounds(call.what, route, group.layout, group.rank, call.root)),
        buffers_(std::move(buffers)) {
    const auto size = static_cast<std::int64_t>(size_of(call.dtype));
    const auto in_bytes = [size](ElementRange range) {
      return Piece{static_cast<std::size_t>(range.begin * size), static_cast<std::size_t>(range.size() * size)};
    };
    if (call.what == Collective::all_gather || call.what == Collective::reduce_scatter ||
        call.what == Collective::all_to_all) {
      // Parts lie where the caller has them; a segment takes a piece of each.
      const std::int64_t most = std::max<std::int64_t>(1, segment_bytes(route) / size / rounds_.parts);
      std::vector<ElementRange> parts;
      std::int64_t begin = 0, longest = 1;
      for (int r = 0; r < rounds_.parts; ++r) {
        const std::int64_t elements = buffers_.counts.empty() ? part_of_rank(call.elements, r, rounds_.parts).size()
                                                              : buffers_.counts[static_cast<std::size_t>(r)];
        parts.push_back({begin, begin + elements});
        begin += elements;
        longest = std::max(longest, elements);
      }
      for (std::int64_t at = 0; at < longest; at += most) {
        std::vector<Piece>& pieces = segments_.emplace_back();
        for (const auto& [first, end] : parts)
          pieces.push_back(in_bytes({std::min(first + at, end), std::min(first + at + most, end)}));
      }
    } else {
      for (const ElementRange& segment : segment_ranges(route, call)) {
        std::vector<Piece>& pieces = segments_.emplace_back();
        for (int r = 0; r < rounds_.parts; ++r) {
          const ElementRange part = part_of_rank(segment.size(), r, rounds_.parts);
          pieces.push_back(in_bytes({segment.begin + part.begin, segment.begin + part.end}));
        }
      }
    }
    if (rounds_.rounds.empty()) segment_ = segments_.size();
  }

  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  /// Goes as far as it can without waiting; true when complete. Messages move only while MPI is called.
  bool advance() {
    if (!std::exchange(has_begun_, true) && segment_ < segments_.size()) start_round();
    while (segment_ < segments_.size()) {
      send_what_is_due();
      if (!waiting_.empty() || !all_messages_done()) return false;
      finish_round();
    }
    return true;
  }

  const CollectiveCall& call() const { return call_; }
  std::int64_t sequence() const { return sequence_; }

  /// Ranks of `comm` whose message has not come, or that have not taken ours.
  std::vector<int> silent_ranks() {
    std::vector<int> incoming, outgoing;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      check_mpi(MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
      if (!done) (messages_[i].incoming ? incoming : outgoing).push_back(messages_[i].peer);
    }
    std::vector<int>& silent = incoming.empty() ? outgoing : incoming;
    std::sort(silent.begin(), silent.end());
    return silent;
  }

  /// A rank that is known to be in another collective at this place in the sequence, and in which.
  struct Disagreement {
    int rank;
    CollectiveCall call;
  };

  std::optional<Disagreement> find_disagreement() {
    for (const int rank : silent_ranks()) {
      int found = 0;
      MPI_Status status;
      check_mpi(MPI_Iprobe(rank, MPI_ANY_TAG, group_.comm, &found, &status), "MPI_Iprobe");
      if (!found || status.MPI_TAG >> kSequenceShift != tag() >> kSequenceShift) continue;
      const int kind = status.MPI_TAG & ((1 << kSequenceShift) - 1);
      if (kind != call_.kind()) return Disagreement{rank, CollectiveCall::of_kind(kind)};
    }
    return std::nullopt;
  }

  /// Sequence numbers of what is in flight over one communicator differ by less; others would share message tags.
  static constexpr std::int64_t kMaxInFlight = 128;
  // A tag fits in the 15 bits that MPI guarantees: sequence (7), kind of call (8). Messages of equal tag between two ranks
  // match in the order they were sent.
  static constexpr int kSequenceShift = 8;
  static_assert(CollectiveCall::kKinds <= 1 << kSequenceShift);
  static_assert(kMaxInFlight << kSequenceShift <= 32768);

 private:
  struct Piece {
    std::size_t begin, bytes;
  };

  struct Message {
    int peer;
    std::size_t bytes;
    bool incoming;
  };

  bool all_messages_done() {
    int done = 0;
    std::vector<MPI_Status> statuses(requests_.size());
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
    if (code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testall");
    if (!done && code == MPI_SUCCESS) return false;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const int error = code == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
      AB_CHECK_KIND(communication, error != MPI_ERR_TRUNCATE,
                    "ranks disagree on the size of {}: rank {} of the group sent more than the {} bytes expected",
                    call_.str(), messages_[i].peer, messages_[i].bytes);
      if (error != MPI_SUCCESS && error != MPI_ERR_PENDING) check_mpi(error, call_.str().c_str());
      if (!messages_[i].incoming) continue;
      int bytes = 0;
      check_mpi(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
      AB_CHECK_KIND(communication, static_cast<std::size_t>(bytes) == messages_[i].bytes,
                    "ranks disagree on the size of {}: rank {} of the group sent {} bytes instead of {}", call_.str(),
                    messages_[i].peer, bytes, messages_[i].bytes);
    }
    return true;
  }

  void start_round() {
    std::size_t bytes = 0;
    for (const Transfer& receive : round().receives) bytes += piece_of(receive.first, receive.last).bytes;
    if (!round().operands.empty()) received_.resize(bytes);
    std::byte* next = received_.data();
    std::byte* const into = call_.what == Collective::all_to_all ? static_cast<std::byte*>(buffers_.out.raw()) : full();
    for (const auto& [from, first, last] : round().receives) {
      const Piece piece = piece_of(first, last);
      receive(from, round().operands.empty() ? into + piece.begin : next, piece.bytes);
      next += round().operands.empty() ? 0 : piece.bytes;
    }
    for (const auto& [to, first, last] : round().sends) send(to, piece_of(first, last));
  }

  void finish_round() {
    requests_.clear();
    messages_.clear();
    if (!round().operands.empty()) add_up();
    if (++round_ == rounds_.rounds.size()) {
      round_ = 0;
      ++segment_;
    }
    if (segment_ < segments_.size()) start_round();
  }

  void add_up() {
    // All that comes is of the same parts; a rank alone has them all.
    const Transfer of = round().receives.empty() ? Transfer{group_.rank, 0, rounds_.parts} : round().receives.front();
    const Piece sum = piece_of(of.first, of.last);
    std::vector<const void*> sources;
    for (const int operand : round().operands) {
      const auto receive = std::ranges::find(round().receives, operand, &Transfer::peer);
      sources.push_back(operand == group_.rank
                            ? full() + sum.begin
                            : received_.data() +
                                  static_cast<std::size_t>(receive - round().receives.begin()) * sum.bytes);
    }
    void* destination = full() + sum.begin;
    if (call_.what == Collective::reduce_scatter)
      destination = static_cast<std::byte*>(buffers_.out.raw()) +
                    (sum.begin - segments_.front()[static_cast<std::size_t>(group_.rank)].begin);
    const bool partial = call_.op == ReduceOp::mean && !round().completes_sum;
    reduce_in_rank_order(Device{}, call_.dtype, partial ? ReduceOp::sum : call_.op, sources, {&destination, 1},
                         static_cast<std::int64_t>(sum.bytes / size_of(call_.dtype)), group_.layout.ranks());
  }

  void send_what_is_due() {
    if (waiting_.empty()) return;
    const NetworkTime now = group_.network ? network_now() : 0;
    std::erase_if(waiting_, [&](Waiting& waiting) {
      const Message& message = messages_[waiting.message];
      if (!waiting.left && waiting.due <= now) {
        waiting.due = group_.network->arrive(in_world(message), waiting.due, group_.links);
        waiting.left = true;
      }
      if (waiting.due > now) return false;
      check_mpi(MPI_Isend(waiting.data, static_cast<int>(message.bytes), MPI_BYTE, message.peer, tag(), group_.comm,
                          &requests_[waiting.message]),
                "MPI_Isend");
      return true;
    });
  }

  VirtualNetwork::Message in_world(const Message& message) const {
    return {group_.world_ranks[static_cast<std::size_t>(group_.rank)],
            group_.world_ranks[static_cast<std::size_t>(message.peer)], static_cast<std::int64_t>(message.bytes)};
  }

  void send(int to, Piece piece) {
    messages_.push_back({to, piece.bytes, false});
    requests_.push_back(MPI_REQUEST_NULL);
    Waiting waiting{messages_.size() - 1, full() + piece.begin, 0, true};
    if (group_.network) {
      waiting.due = group_.network->leave(in_world(messages_.back()), network_now(), group_.links);
      waiting.left = false;
    }
    waiting_.push_back(waiting);
    send_what_is_due();
  }

  void receive(int from, std::byte* data, std::size_t bytes) {
    messages_.push_back({from, bytes, true});
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag(), group_.comm, &requests_.emplace_back()),
              "MPI_Irecv");
  }

  /// Neighbours in the buffer, save in gathers, reduce-scatters and all-to-alls, where a transfer is of one part.
  Piece piece_of(int first_part, int last_part) const {
    const std::vector<Piece>& parts = segments_[segment_];
    const Piece &first = parts[static_cast<std::size_t>(first_part)],
                &last = parts[static_cast<std::size_t>(last_part - 1)];
    return {first.begin, last.begin + last.bytes - first.begin};
  }

  const Round& round() const { return rounds_.rounds[round_]; }
  int tag() const {
    const int sequence = static_cast<int>(sequence_ % kMaxInFlight);
    return sequence << kSequenceShift | call_.kind();
  }
  std::byte* full() const { return static_cast<std::byte*>(buffers_.full.raw()); }

  Group group_;
  std::int64_t sequence_;
  CollectiveCall call_;
  MessageRounds rounds_;
  Buffers buffers_;
  std::vector<std::vector<Piece>> segments_;  // of each, the parts
  std::size_t segment_ = 0, round_ = 0;
  bool has_begun_ = false;
  std::vector<std::byte> received_;  // what is to be added up, in the order of the round's receives

  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // of the same index
  struct Waiting {
    std::size_t message;
    const std::byte* data;
    NetworkTime due;
    bool left;  // the sender's card; else it is still busy with it
  };
  std::vector<Waiting> waiting_;  // messages under way in the virtual network
};

}  // namespace ab

#pragma once
// SPDX-License-Identifier: MIT
//
// One collective in flight over MPI. It is built from point-to-point messages rather than MPI's own
// collectives, for three reasons: sums are taken in rank order, so all ranks hold equal bits whatever
// algorithm an MPI library would have chosen; several collectives may be in flight in any interleaving; and
// after a timeout the unanswered messages tell which ranks are missing.
//
// The buffer is cut into one part per rank and moves in two stages, each sending (p-1)/p of it per rank:
//   spread   all-reduce, reduce-scatter: rank j receives part j of everyone and reduces it
//            broadcast: rank j receives part j of the root
//   gather   everyone receives every rank's part
// Large parts go in pieces, so memory and message sizes stay bounded.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/collective_call.h"

namespace ab {

/// Throws Error(communication) with MPI's own explanation unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* what);

class MpiOperation {
 public:
  struct Buffers {
    Tensor full = {};  ///< all parts: the tensor, the input of a reduce-scatter, the output of a gather
    Tensor out = {};   ///< reduce-scatter only: receives this rank's part
    std::vector<std::int64_t> counts = {};  ///< elements per part; empty: equal shares
  };
  /// `sequence` counts the collectives of `comm`; the first messages leave at once.
  MpiOperation(MPI_Comm comm, std::int64_t sequence, const CollectiveCall& call, Buffers buffers);
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  /// Goes as far as it can without waiting; true when complete. Messages move only while MPI is called.
  bool advance();
  const CollectiveCall& call() const { return call_; }
  /// Ranks of `comm` whose message has not come, or that have not taken ours.
  std::vector<int> silent_ranks();
  /// A rank that is known to be in another collective at this place in the sequence, and in which.
  struct Disagreement {
    int rank;
    CollectiveCall call;
  };
  std::optional<Disagreement> find_disagreement();

  /// Operations of one communicator that may be in flight at once; more would share message tags.
  static constexpr std::size_t kMaxInFlight = 128;

 private:
  enum class Stage : int { spread = 0, gather = 1 };
  struct Piece {
    std::size_t begin, bytes;
  };

  bool all_messages_done();
  void start_stage();
  void finish_stage();
  void spread_from_root();
  void exchange();
  void reduce_received();
  void gather();

  void send(int to, const std::byte* data, std::size_t bytes);
  void receive(int from, std::byte* data, std::size_t bytes);
  Piece piece_of(int part) const;
  int tag(Stage stage) const;
  bool spreads() const { return call_.what != Collective::all_gather && call_.what != Collective::barrier; }
  bool gathers() const { return call_.what != Collective::reduce_scatter; }
  std::byte* full() const { return static_cast<std::byte*>(buffers_.full.raw()); }

  MPI_Comm comm_;
  std::int64_t sequence_;
  CollectiveCall call_;
  Buffers buffers_;
  int rank_ = 0, ranks_ = 1;
  std::size_t piece_bytes_;
  std::vector<std::size_t> part_begin_;  // in bytes; one more than there are parts
  std::int64_t step_ = 0, steps_ = 1;    // pieces of each part
  Stage stage_;
  std::vector<std::byte> received_;  // the pieces of the other ranks, before they are reduced

  struct Message {
    int peer;
    std::size_t bytes;
    bool incoming;
  };
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // of the same index
};

}  // namespace ab

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

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/collective_call.h"
#include "engine/comm/virtual_network.h"

namespace ab {

/// Throws Error(communication) with MPI's own explanation unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* what);

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
               Buffers buffers);
  MpiOperation(const MpiOperation&) = delete;
  MpiOperation& operator=(const MpiOperation&) = delete;

  /// Goes as far as it can without waiting; true when complete. Messages move only while MPI is called.
  bool advance();
  const CollectiveCall& call() const { return call_; }
  std::int64_t sequence() const { return sequence_; }
  /// Ranks of `comm` whose message has not come, or that have not taken ours.
  std::vector<int> silent_ranks();
  /// A rank that is known to be in another collective at this place in the sequence, and in which.
  struct Disagreement {
    int rank;
    CollectiveCall call;
  };
  std::optional<Disagreement> find_disagreement();

  /// Sequence numbers of what is in flight over one communicator differ by less; others would share message tags.
  static constexpr std::int64_t kMaxInFlight = 128;

 private:
  struct Piece {
    std::size_t begin, bytes;
  };

  struct Message {
    int peer;
    std::size_t bytes;
    bool incoming;
  };

  bool all_messages_done();
  void start_round();
  void finish_round();
  void add_up();
  void send_what_is_due();
  VirtualNetwork::Message in_world(const Message& message) const;

  void send(int to, Piece piece);
  void receive(int from, std::byte* data, std::size_t bytes);
  Piece piece_of(int first_part, int last_part) const;
  const Round& round() const { return rounds_.rounds[round_]; }
  int tag() const;
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

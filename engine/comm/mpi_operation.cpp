// SPDX-License-Identifier: MIT
#include "engine/comm/mpi_operation.h"

#include <algorithm>

namespace ab {
namespace {

/// What one rank has in flight for one operation, over all peers.
constexpr std::size_t kWindowBytes = std::size_t{16} << 20;

// A tag fits in the 15 bits that MPI guarantees: sequence (7), stage (1), kind of call (7). Messages of equal
// tag between two ranks match in the order they were sent.
constexpr int kStageShift = 7, kSequenceShift = 8;
static_assert(CollectiveCall::kKinds <= 1 << kStageShift);
static_assert(MpiOperation::kMaxInFlight << kSequenceShift <= 32768);

}  // namespace

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error(ErrorKind::communication,
              fmt::format("{} failed: {}", what, std::string(text, static_cast<std::size_t>(length))));
}

MpiOperation::MpiOperation(MPI_Comm comm, std::int64_t sequence, const CollectiveCall& call, Buffers buffers)
    : comm_(comm), sequence_(sequence), call_(call), buffers_(std::move(buffers)) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &ranks_), "MPI_Comm_size");
  constexpr std::size_t kAlignment = 64;
  piece_bytes_ =
      std::max(kWindowBytes / static_cast<std::size_t>(ranks_) / kAlignment, std::size_t{1}) * kAlignment;

  part_begin_.push_back(0);
  for (int r = 0; r < ranks_; ++r) {
    const std::int64_t elements = buffers_.counts.empty() ? part_of_rank(call_.elements, r, ranks_).size()
                                                          : buffers_.counts[static_cast<std::size_t>(r)];
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(call_.dtype);
    part_begin_.push_back(part_begin_.back() + bytes);
    steps_ = std::max(steps_, static_cast<std::int64_t>((bytes + piece_bytes_ - 1) / piece_bytes_));
  }
  stage_ = spreads() ? Stage::spread : Stage::gather;
  start_stage();
}

bool MpiOperation::advance() {
  while (step_ < steps_) {
    if (!all_messages_done()) return false;
    finish_stage();
  }
  return true;
}

bool MpiOperation::all_messages_done() {
  int done = 0;
  std::vector<MPI_Status> statuses(requests_.size());
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
  if (code != MPI_ERR_IN_STATUS) check_mpi(code, "MPI_Testall");
  if (!done && code == MPI_SUCCESS) return false;
  for (std::size_t i = 0; i < messages_.size(); ++i) {
    const int error = code == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
    AB_CHECK_KIND(
        communication, error != MPI_ERR_TRUNCATE,
        "ranks disagree on the size of {}: rank {} of the group sent more than the {} bytes expected",
        call_.str(), messages_[i].peer, messages_[i].bytes);
    if (error != MPI_SUCCESS && error != MPI_ERR_PENDING) check_mpi(error, call_.str().c_str());
    if (!messages_[i].incoming) continue;
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses[i], MPI_BYTE, &bytes), "MPI_Get_count");
    AB_CHECK_KIND(communication, static_cast<std::size_t>(bytes) == messages_[i].bytes,
                  "ranks disagree on the size of {}: rank {} of the group sent {} bytes instead of {}",
                  call_.str(), messages_[i].peer, bytes, messages_[i].bytes);
  }
  return true;
}

void MpiOperation::start_stage() {
  if (stage_ == Stage::gather) gather();
  else if (call_.what == Collective::broadcast) spread_from_root();
  else exchange();
}

void MpiOperation::finish_stage() {
  requests_.clear();
  messages_.clear();
  if (stage_ == Stage::spread && call_.what != Collective::broadcast) reduce_received();
  if (stage_ == Stage::spread && gathers()) {
    stage_ = Stage::gather;
  } else {
    stage_ = spreads() ? Stage::spread : Stage::gather;
    ++step_;
  }
  if (step_ < steps_) start_stage();
}

void MpiOperation::spread_from_root() {
  const Piece mine = piece_of(rank_);
  if (rank_ != call_.root) receive(call_.root, full() + mine.begin, mine.bytes);
  else
    for (int r = 0; r < ranks_; ++r)
      if (const Piece piece = piece_of(r); r != rank_) send(r, full() + piece.begin, piece.bytes);
}

void MpiOperation::exchange() {
  const Piece mine = piece_of(rank_);
  received_.resize(mine.bytes * static_cast<std::size_t>(ranks_));
  // Each rank starts with its right neighbour, so that they do not all turn to rank 0 at once.
  for (int i = 1; i < ranks_; ++i) {
    const int from = (rank_ + ranks_ - i) % ranks_;
    receive(from, received_.data() + static_cast<std::size_t>(from) * mine.bytes, mine.bytes);
  }
  for (int i = 1; i < ranks_; ++i) {
    const int to = (rank_ + i) % ranks_;
    const Piece piece = piece_of(to);
    send(to, full() + piece.begin, piece.bytes);
  }
}

void MpiOperation::reduce_received() {
  const Piece mine = piece_of(rank_);
  std::vector<const void*> sources;
  for (int r = 0; r < ranks_; ++r)
    sources.push_back(r == rank_ ? full() + mine.begin
                                 : received_.data() + static_cast<std::size_t>(r) * mine.bytes);
  void* destination = full() + mine.begin;
  if (call_.what == Collective::reduce_scatter)
    destination = static_cast<std::byte*>(buffers_.out.raw()) +
                  (mine.begin - part_begin_[static_cast<std::size_t>(rank_)]);
  reduce_in_rank_order(Device{}, call_.dtype, call_.op, sources, {&destination, 1},
                       static_cast<std::int64_t>(mine.bytes / size_of(call_.dtype)));
}

void MpiOperation::gather() {
  const bool root_has_all = call_.what == Collective::broadcast;
  const Piece mine = piece_of(rank_);
  for (int i = 1; i < ranks_; ++i) {
    const int from = (rank_ + ranks_ - i) % ranks_;
    const Piece piece = piece_of(from);
    if (!(root_has_all && rank_ == call_.root)) receive(from, full() + piece.begin, piece.bytes);
  }
  for (int i = 1; i < ranks_; ++i)
    if (const int to = (rank_ + i) % ranks_; !(root_has_all && to == call_.root))
      send(to, full() + mine.begin, mine.bytes);
}

void MpiOperation::send(int to, const std::byte* data, std::size_t bytes) {
  messages_.push_back({to, bytes, false});
  check_mpi(
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag(stage_), comm_, &requests_.emplace_back()),
      "MPI_Isend");
}

void MpiOperation::receive(int from, std::byte* data, std::size_t bytes) {
  messages_.push_back({from, bytes, true});
  check_mpi(
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag(stage_), comm_, &requests_.emplace_back()),
      "MPI_Irecv");
}

MpiOperation::Piece MpiOperation::piece_of(int part) const {
  const auto p = static_cast<std::size_t>(part);
  const std::size_t begin =
      std::min(part_begin_[p] + static_cast<std::size_t>(step_) * piece_bytes_, part_begin_[p + 1]);
  return {begin, std::min(piece_bytes_, part_begin_[p + 1] - begin)};
}

int MpiOperation::tag(Stage stage) const {
  const int sequence = static_cast<int>(sequence_ % static_cast<std::int64_t>(kMaxInFlight));
  return sequence << kSequenceShift | static_cast<int>(stage) << kStageShift | call_.kind();
}

std::vector<int> MpiOperation::silent_ranks() {
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

std::optional<MpiOperation::Disagreement> MpiOperation::find_disagreement() {
  for (const int rank : silent_ranks()) {
    int found = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(rank, MPI_ANY_TAG, comm_, &found, &status), "MPI_Iprobe");
    if (!found || status.MPI_TAG >> kSequenceShift != tag(stage_) >> kSequenceShift) continue;
    const int kind = status.MPI_TAG & ((1 << kStageShift) - 1);
    if (kind != call_.kind()) return Disagreement{rank, CollectiveCall::of_kind(kind)};
  }
  return std::nullopt;
}

}  // namespace ab

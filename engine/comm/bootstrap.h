#pragma once
// SPDX-License-Identifier: MIT
//
// What the processes of a job can tell each other before NCCL has connected their GPUs, and when it fails: short
// texts, over TCP (rendezvous.h) or MPI.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/comm.h"

namespace ab {

class Bootstrap {
 public:
  virtual ~Bootstrap() = default;

  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  /// Collective. The text of every rank, in rank order.
  virtual std::vector<std::string> gather_texts(const std::string& mine) = 0;
  /// Why a peer cannot go on, with the kind of its error; nothing as long as none has said so or disappeared. Does not
  /// wait; may be called from another thread, though not during gather_texts().
  virtual std::optional<Error> failure() = 0;
  /// Whether it ever answers: not over MPI, which ends all processes instead.
  virtual bool reports_failures() const = 0;
  /// Tells all ranks that this one cannot go on, as Comm::abort() does.
  virtual void abort(const std::string& reason, int exit_code) noexcept = 0;
};

/// Over make_mpi_comm(): mpirun ends the other processes when one of them fails.
std::unique_ptr<Bootstrap> make_mpi_bootstrap(const CommOptions& options);

}  // namespace ab

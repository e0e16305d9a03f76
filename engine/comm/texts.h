#pragma once
// SPDX-License-Identifier: MIT
//
// Texts that ranks tell each other besides numbers (names, file contents, failures): over a world, or before there is one.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/comm.h"

namespace ab {

/// Collective. The text of every rank, in rank order.
std::vector<std::string> gather_texts(Comm& comm, const std::string& mine);

/// Collective. The failure of the first rank that has one, behind that rank's number where there are several ranks; empty
/// when none has.
std::string first_failure(Comm& comm, const std::string& mine);

/// Collective. Runs this rank's `part`, which must not communicate: the same of what it throws ("rank 2: cannot write …").
std::string failures_of(Comm& comm, const std::function<void()>& part);

/// The processes of a job before NCCL has connected their GPUs, and when it fails: they exchange short texts, over TCP
/// (rendezvous.h) or MPI.
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

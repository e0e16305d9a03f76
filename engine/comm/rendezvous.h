#pragma once
// SPDX-License-Identifier: MIT
//
// Where the processes of a job meet without MPI: rank 0 listens on TCP, the others connect to it. It stays open while
// the job runs, so that a rank which fails or disappears is noticed at once by all the others.
//
// Protocol, numbers little-endian: the caller says "abtrain?", its rank and the number of ranks (uint32 each) and the
// XXH3 of its job (uint64), rank 0 says "abtrain!", or "not you!" to a rank of another job, or "is here!" to one that is
// connected already. From then on frames: length
// (uint32), kind (one byte), content; that of a failure is an exit code (one byte) and a sentence. Nothing that comes
// from the network is believed before it has been compared with what is expected, lengths first.

#include <chrono>
#include <memory>
#include <string>

#include "engine/comm/texts.h"

namespace ab {

struct RendezvousOptions {
  int rank = 0, ranks = 1;
  /// tcp://host:port     rank 0 listens there, on the interface of that host only
  /// file:///path        on a file system that all ranks share: rank 0 writes into it where it listens
  std::string address;
  std::chrono::seconds timeout{300};  ///< how long ranks wait for each other
  /// A text that all ranks of the job know, and those of another job, which come to the same place, do not.
  std::string job{};
};

/// Collective: returns when all ranks have come. Throws Error(communication) that names the ranks that have not when
/// the timeout is over, and a port in use; all ranks that have come throw the same. A process that comes to the place of another
/// job, or of one with another number of ranks, or as a rank that is connected already, is sent away and throws, and
/// that job goes on waiting. A rank that has left again may be replaced for ten seconds, as by a launcher that starts
/// it once more. Whoever can reach the place and knows the name of the job can take part: the network must be trusted.
/// Texts that are gathered may be 4096 bytes long; the first failure() comes after the last gather_texts(). abort()
/// makes the others' failure() answer, and does not end this process.
std::unique_ptr<Bootstrap> make_rendezvous(const RendezvousOptions& options);

}  // namespace ab

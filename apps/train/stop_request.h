#pragma once
// SPDX-License-Identifier: MIT
//
// Stopping at a step that all ranks agree on. Batch systems, launchers, limits, terminals and people announce the end of a job by
// a signal, which may reach one rank only and at any moment. A thread that does nothing else waits for it and raises a flag; in
// every step the ranks start to exchange their flags, and a few steps later they all read the same answer.

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/comm/comm.h"

namespace ab {

/// The exit code of a run that saved a checkpoint because it was told to stop, and can be resumed.
inline constexpr int kStoppedExitCode = 75;

/// From here on SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP and SIGINT (Ctrl-C) call request_stop(); the last two unless they
/// are ignored, as under nohup and in the background of a script. A signal that comes more than five seconds after the
/// first, or SIGINT more than half a second after it, ends the process at once, but for SIGXCPU and SIGHUP; sooner ones are
/// copies of it, which launchers are known to deliver.
/// First called before other threads start: the signals are blocked in this thread and in those that it starts.
/// A handler must not run in a thread that computes (engine/backend/cpu/gemm.h).
void listen_for_stop_signals();
/// Ends the process as SIGINT does if that was what asked it to stop: a shell's loop around it ends as well then. Not
/// for processes of a job: which of them the signal reached is chance, and MPI is finalized by a normal exit.
void end_if_interrupted();

/// The flag of this process, shared by its ranks.
void request_stop();
bool stop_requested();
void clear_stop_request();

/// One per rank. Eight bytes a step, on a group of its own so that they overlap with everything else, and in the
/// ledger's phase "control": they are not a method's. The answer is read some steps later, so that groups which
/// train on their own wait for each other only when they are that far apart.
class StopAgreement {
 public:
  static constexpr const char* kLabel = "control";  ///< of the group and of the phase
  /// How many steps later an answer is read, where a step is so many micro-batches.
  static constexpr std::int64_t lag(std::int64_t accumulate) { return std::max<std::int64_t>(1, 4 / accumulate); }

  /// Collective. A rehearsal does not heed request_stop().
  StopAgreement(Comm& world, std::int64_t accumulate, bool is_rehearsal);
  ~StopAgreement();
  StopAgreement(const StopAgreement&) = delete;
  StopAgreement& operator=(const StopAgreement&) = delete;

  /// From here on ask() calls `wishes` first: whether this rank wishes for a checkpoint.
  void listen_to(std::function<bool()> wishes) { wishes_ = std::move(wishes); }
  /// Sends this rank's flag, which is up too where it `must_stop`, or else its wish.
  void ask(bool must_stop = false);
  /// From here on the ledger leaves questions out: the last validation may be stopped, but its bytes are a method's.
  void stop_counting() { counts_ = false; }
  /// Whether the flag of any rank was up when it asked, lag() questions ago or earlier; one rank alone knows at once.
  bool agreed() { return answer(control_->size() > 1 ? lag_ : 0); }
  /// Whether a rank has wished for a checkpoint in a question that has been answered; once for each wish.
  bool save_agreed() { return std::exchange(save_agreed_, false); }
  /// The same, up to the last question: waits for all ranks to have asked it.
  bool agreed_by_now() { return answer(0); }

 private:
  bool answer(std::int64_t unanswered);

  struct Question {
    Tensor flag;
    Request request;
  };
  std::unique_ptr<Comm> control_;
  std::int64_t lag_;
  bool heeds_requests_;
  std::function<bool()> wishes_;
  std::deque<Question> questions_;
  bool agreed_ = false, save_agreed_ = false, counts_ = true;
};

// Files that ask a run for something, where signals cannot reach it: `touch RUN/stop` saves a checkpoint and ends the
// run to be resumed, `touch RUN/save` saves one and training goes on. A file is removed when it has been seen.

/// For the rank that keeps the run folder.
class RequestFiles {
 public:
  static constexpr const char *kStop = "stop", *kSave = "save";

  /// Removes requests that somebody made before the run began.
  explicit RequestFiles(std::string folder);

  /// Looks for them, at most once a second; calls request_stop() for one of them. Returns whether a checkpoint is asked for.
  bool look();

 private:
  bool take(const char* name) const;

  std::string folder_;
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace ab

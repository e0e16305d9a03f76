// SPDX-License-Identifier: MIT
#include "apps/train/stop_request.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>

#include "apps/train/run_folder.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr std::chrono::milliseconds kImpatience{5000}, kImpatienceAtTheKeyboard{500};
constexpr std::int64_t kSave = 1, kStop = 2;  // what a flag says; the largest of all ranks counts

std::atomic<bool> stop_flag{false}, interrupt_flag{false};  // of the process, as signals are

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[noreturn]] void end_by(int signal) {
  sigset_t alone;
  sigemptyset(&alone);
  sigaddset(&alone, signal);
  std::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &alone, nullptr);
  std::raise(signal);
  std::_Exit(128 + signal);
}

void wait_for_signals(sigset_t signals) {
  using Clock = std::chrono::steady_clock;
  int signal = 0;
  if (sigwait(&signals, &signal) != 0) return;
  const auto first = Clock::now();
  interrupt_flag = signal == SIGINT;
  request_stop();
  if (signal == SIGINT && ::isatty(STDERR_FILENO) == 1)
    say(stderr, "\nwill stop after a few steps, with a checkpoint; press Ctrl-C again to end at once\n");
  // SIGXCPU comes again every second until the hard limit, and a terminal that is gone says so to each of its jobs.
  while (sigwait(&signals, &signal) == 0 &&
         (signal == SIGXCPU || signal == SIGHUP ||
          Clock::now() - first <= (signal == SIGINT ? kImpatienceAtTheKeyboard : kImpatience)))
    continue;
  end_by(signal);
}

}  // namespace

void listen_for_stop_signals() {
  static std::atomic<bool> listening{false};
  if (listening.exchange(true)) return;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) sigaddset(&signals, signal);
  for (const int signal : {SIGINT, SIGHUP})
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(wait_for_signals, signals).detach();  // ends with the process
}

void end_if_interrupted() {
  if (interrupt_flag) end_by(SIGINT);
}

void request_stop() { stop_flag = true; }
bool stop_requested() { return stop_flag; }
void clear_stop_request() { stop_flag = interrupt_flag = false; }

StopAgreement::StopAgreement(Comm& world, std::int64_t accumulate, bool is_rehearsal)
    : control_(world.duplicate(kLabel)), lag_(lag(accumulate)), heeds_requests_(!is_rehearsal) {}

StopAgreement::~StopAgreement() {
  if (std::uncaught_exceptions() > 0) return;  // peers may never ask again: do not wait for them
  try {
    answer(0);     // requests end before their communicator
  } catch (...) {  // a peer has failed, which has been said elsewhere
  }
}

void StopAgreement::ask(bool must_stop) {
  const bool save = wishes_ && wishes_();
  Ledger& ledger = control_->ledger();
  const std::string phase = ledger.phase();
  std::optional<Ledger> before;
  if (!counts_) before = ledger;
  ledger.set_phase(kLabel);
  Question question;
  const bool stop = must_stop || (heeds_requests_ && stop_requested());
  question.flag = Tensor::from(std::vector<std::int64_t>{stop ? kStop : save ? kSave : 0}, {1});
  question.request = control_->all_reduce_async(question.flag, ReduceOp::max);
  questions_.push_back(std::move(question));
  if (before) ledger = *before;
  ledger.set_phase(phase);
}

bool StopAgreement::answer(std::int64_t unanswered) {
  Ledger& ledger = control_->ledger();
  while (std::ssize(questions_) > unanswered) {
    const std::string phase = ledger.phase();
    ledger.set_phase(kLabel);  // which the waiting is of
    questions_.front().request.wait();
    ledger.set_phase(phase);
    const std::int64_t flag = *questions_.front().flag.data<std::int64_t>();
    agreed_ |= flag == kStop;
    save_agreed_ |= flag == kSave;
    questions_.pop_front();
  }
  return agreed_;
}

RequestFiles::RequestFiles(std::string folder) : folder_(std::move(folder)) {
  for (const char* name : {kStop, kSave}) take(name);
}

bool RequestFiles::take(const char* name) const {
  std::error_code ignored;
  return std::filesystem::remove(in_folder(folder_, name), ignored);
}

bool RequestFiles::look() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return false;
  next_look_ = now + std::chrono::seconds(1);
  if (take(kStop)) request_stop();
  return take(kSave);
}

}  // namespace ab

// SPDX-License-Identifier: MIT
#include "apps/train/stop_request.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
#include <thread>

namespace ab {
namespace {

constexpr std::chrono::seconds kImpatience{5};
constexpr std::int64_t kSave = 1, kStop = 2;  // what a flag says; the largest of all ranks counts

std::atomic<bool> stop_flag{false};  // of the process, as signals are

void wait_for_signals(sigset_t signals) {
  using Clock = std::chrono::steady_clock;
  int signal = 0;
  if (sigwait(&signals, &signal) != 0) return;
  request_stop();
  const auto first = Clock::now();
  while (sigwait(&signals, &signal) == 0 && Clock::now() - first <= kImpatience) continue;
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  std::raise(signal);
}

}  // namespace

void listen_for_stop_signals() {
  static std::atomic<bool> listening{false};
  if (listening.exchange(true)) return;
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(wait_for_signals, signals).detach();  // ends with the process
}

void request_stop() { stop_flag = true; }
bool stop_requested() { return stop_flag; }
void clear_stop_request() { stop_flag = false; }

StopAgreement::StopAgreement(Comm& world) : control_(world.split(0, kLabel)) {}

StopAgreement::~StopAgreement() {
  if (std::uncaught_exceptions() > 0) return;  // peers may never ask again: do not wait for them
  try {
    answer(0);     // requests end before their communicator
  } catch (...) {  // a peer has failed, which has been said elsewhere
  }
}

void StopAgreement::ask() {
  const bool save = wishes_ && wishes_();
  Ledger& ledger = control_->ledger();
  const std::string phase = ledger.phase();
  std::optional<Ledger> before;
  if (!counts_) before = ledger;
  ledger.set_phase(kLabel);
  Question question;
  question.flag = Tensor::from(std::vector<std::int64_t>{stop_requested() ? kStop : save ? kSave : 0}, {1});
  question.request = control_->all_reduce_async(question.flag, ReduceOp::max);
  questions_.push_back(std::move(question));
  if (before) ledger = *before;
  ledger.set_phase(phase);
}

bool StopAgreement::answer(std::int64_t unanswered) {
  while (std::ssize(questions_) > unanswered) {
    questions_.front().request.wait();
    const std::int64_t flag = *questions_.front().flag.data<std::int64_t>();
    agreed_ |= flag == kStop;
    save_agreed_ |= flag == kSave;
    questions_.pop_front();
  }
  return agreed_;
}

}  // namespace ab

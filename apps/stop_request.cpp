// SPDX-License-Identifier: MIT
#include "apps/stop_request.h"

#include <atomic>
#include <csignal>
#include <ctime>
#include <exception>

namespace ab {
namespace {

constexpr std::time_t kImpatience = 5;

// What a signal handler may touch; it belongs to the process as the signal does.
std::atomic<bool> stop_flag{false};
std::atomic<std::time_t> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::time_t>::is_always_lock_free);

void on_stop_signal(int signal) {
  const std::time_t now = std::time(nullptr);
  std::time_t none = 0;
  first_signal.compare_exchange_strong(none, now);
  if (stop_flag.exchange(true) && now - first_signal > kImpatience) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

}  // namespace

void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGUSR1}) ::sigaction(signal, &action, nullptr);
}

void request_stop() { stop_flag = true; }
bool stop_requested() { return stop_flag; }
void clear_stop_request() { stop_flag = false; }

StopAgreement::StopAgreement(Comm& world) : control_(world.split(0, kLabel)) {}

StopAgreement::~StopAgreement() {
  if (std::uncaught_exceptions() > 0) return;  // peers may never ask again: do not wait for them
  try {
    answer(0);  // requests end before their communicator
  } catch (...) {  // a peer has failed, which has been said elsewhere
  }
}

void StopAgreement::ask() {
  Ledger& ledger = control_->ledger();
  const std::string phase = ledger.phase();
  ledger.set_phase(kLabel);
  Question question;
  question.flag = Tensor::from(std::vector<std::int64_t>{stop_requested() ? 1 : 0}, {1});
  question.request = control_->all_reduce_async(question.flag, ReduceOp::max);
  questions_.push_back(std::move(question));
  ledger.set_phase(phase);
}

bool StopAgreement::answer(std::size_t unanswered) {
  while (questions_.size() > unanswered) {
    questions_.front().request.wait();
    agreed_ = agreed_ || *questions_.front().flag.data<std::int64_t>() != 0;
    questions_.pop_front();
  }
  return agreed_;
}

}  // namespace ab

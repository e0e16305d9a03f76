// SPDX-License-Identifier: MIT
//
// What comes over the network while ranks meet. By its first byte an input is what a stranger says to rank 0, whereupon
// the ranks meet all the same; or what a peer that was let in says, or a first rank that is none: then texts arrive, or
// one Error of the kinds that a peer may report. Nothing waits for its whole timeout.
#include <sys/socket.h>

#include <thread>

#include "engine/comm/rendezvous.h"
#include "engine/comm/socket.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"

namespace {

using namespace std::chrono_literals;
using ab::Socket;

constexpr auto kTimeout = 20s;

ab::Deadline soon() { return std::chrono::steady_clock::now() + kTimeout; }

void say_and_stop(const Socket& socket, const std::string& words) {
  (void)socket.write(words.data(), words.size(), soon());
  shutdown(socket.descriptor(), SHUT_WR);
}

std::string hello(char rank, char ranks) {
  const std::uint64_t job = ab::hash64(nullptr, 0);
  std::string words = std::string("abtrain?") + rank + std::string(3, '\0') + ranks + std::string(3, '\0');
  for (int shift = 0; shift < 64; shift += 8) words += static_cast<char>(job >> shift & 0xff);
  return words;
}

Socket connect_in_time(const ab::HostPort& at) {
  std::string problem;
  Socket caller;
  for (const ab::Deadline deadline = soon(); !caller; caller = ab::connect_to(at, deadline, problem))
    AB_ASSERT(std::chrono::steady_clock::now() < deadline);
  return caller;
}

ab::HostPort free_place() {
  ab::HostPort at{"127.0.0.1", 0};
  ab::listen_at(at);
  return at;
}

std::unique_ptr<ab::Bootstrap> meet(int rank, int ranks, const ab::HostPort& at) {
  return ab::make_rendezvous({rank, ranks, "tcp://" + at.str(), kTimeout});
}

/// Texts of ranks that are all as they should be.
void exchange(int rank, const ab::HostPort& at) {
  const auto bootstrap = meet(rank, 3, at);
  AB_ASSERT(bootstrap->gather_texts(std::to_string(rank)) == (std::vector<std::string>{"0", "1", "2"}));
}

void check_stranger(const std::string& words) {
  const ab::HostPort at = free_place();
  std::thread first([&] { exchange(0, at); });
  {
    const Socket stranger = connect_in_time(at);
    say_and_stop(stranger, words);
    char answer[8];
    (void)stranger.read(answer, sizeof answer, soon());
  }
  std::thread second([&] { exchange(1, at); }), third([&] { exchange(2, at); });
  first.join(), second.join(), third.join();
}

/// Of a rank whose only peer says what the input does.
template <class Meet> void exchange_with_anyone(const Meet& meet_anyone) {
  try {
    const auto bootstrap = meet_anyone();
    const std::vector<std::string> texts = bootstrap->gather_texts("mine");
    AB_ASSERT(texts.size() == 2);
    for (const std::string& text : texts) AB_ASSERT(text.size() <= 4096 || bootstrap->rank() != 0);
    for (int i = 0; i < 3; ++i) (void)bootstrap->failure();
  } catch (const ab::Error&) {
  }
}

void check_peer(const std::string& words) {
  const ab::HostPort at = free_place();
  std::thread first([&] { exchange_with_anyone([&] { return meet(0, 2, at); }); });
  const Socket peer = connect_in_time(at);
  const std::string opening = hello(1, 2) + words;
  (void)peer.write(opening.data(), opening.size(), soon());
  // Not before it has been let in: a rank that has left would be waited for.
  char answer[8];
  (void)peer.read(answer, sizeof answer, soon());
  std::this_thread::sleep_for(1ms);
  shutdown(peer.descriptor(), SHUT_WR);
  first.join();
}

void check_first_rank(const std::string& words) {
  ab::HostPort at{"127.0.0.1", 0};
  const Socket listener = ab::listen_at(at);
  std::thread second([&] { exchange_with_anyone([&] { return meet(1, 2, at); }); });
  Socket caller;
  while (!caller) caller = ab::accept_from(listener);
  say_and_stop(caller, "abtrain!" + words);
  second.join();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  if (count == 0) return 0;
  const std::string words(reinterpret_cast<const char*>(bytes) + 1, count - 1);
  const auto began = std::chrono::steady_clock::now();
  if (bytes[0] == 's') check_stranger(words);
  else if (bytes[0] == 'p') check_peer(words);
  else check_first_rank(words);
  AB_ASSERT(std::chrono::steady_clock::now() - began < kTimeout);
  return 0;
}

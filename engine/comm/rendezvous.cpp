// SPDX-License-Identifier: MIT
#include "engine/comm/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "engine/comm/comm.h"
#include "engine/comm/socket.h"
#include "engine/core/atomic_file.h"
#include "engine/core/hash.h"

namespace ab {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kQuestion = "abtrain?", kAnswer = "abtrain!", kRefusal = "not you!", kTaken = "is here!";
constexpr std::size_t kHelloBytes = 24;      // the question, a rank, a number of ranks and the hash of the job
constexpr std::size_t kMaxTextBytes = 4096;  // of one rank
constexpr std::uint64_t kMaxAddressBytes = 1024;
constexpr std::size_t kMaxStrangers = 256;  // that have connected and not said who they are
constexpr auto kFrameTime = 10s;            // for the rest of a message that has begun, or for a rank to come again

std::string number(std::uint32_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

std::uint32_t number_at(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

enum class FrameKind : char { text = 't', failure = 'f', goodbye = 'g' };

/// A process that fails otherwise than by an Error is lost to its peers.
ErrorKind kind_of(int exit_code) {
  const bool known =
      static_cast<int>(ErrorKind::config) <= exit_code && exit_code <= static_cast<int>(ErrorKind::communication);
  return known ? static_cast<ErrorKind>(exit_code) : ErrorKind::communication;
}

std::string content_of(const Error& error) {
  return (static_cast<char>(error.kind()) + std::string(error.what())).substr(0, kMaxTextBytes);
}

Error failure_in(const std::string& content) {
  return content.empty() ? Error(ErrorKind::communication, "a rank failed")
                         : Error(kind_of(content.front()), content.substr(1));
}

/// A connection to another rank.
struct Peer {
  int rank;
  Socket socket;
  bool gone = false;  // has said goodbye, or its failure is known, or it has left while others were to come
};

/// The name of this machine, or, where nobody knows that, the address by which it reaches itself.
std::string own_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  gethostname(name.data(), name.size() - 1);
  return is_known(name.data()) ? name.data() : "127.0.0.1";
}

void publish(const std::string& file, const HostPort& here) {
  try {
    write_file_atomically(file, here.str());
  } catch (const Error& error) {
    throw Error(ErrorKind::communication, fmt::format("rank 0 cannot say where ranks meet: {}", error.what()));
  }
}

class Rendezvous final : public Bootstrap {
 public:
  explicit Rendezvous(const RendezvousOptions& options) : options_(options), deadline_(Clock::now() + options.timeout) {
    AB_CHECK(options.ranks >= 1 && options.ranks <= 65536 && 0 <= options.rank && options.rank < options.ranks,
             "there is no rank {} in a world of {}", options.rank, options.ranks);
    if (options.ranks == 1) return;
    AB_CHECK(options.address.starts_with("tcp://") || options.address.starts_with("file:///"),
             "'{}' is no place for ranks to meet; give tcp://host:port or file:///path", options.address);
    if (options.rank == 0) listen_for_ranks();
    else connect_to_first();
  }

  ~Rendezvous() override {
    if (failed_ || std::uncaught_exceptions() > 0) return;  // a connection that just ends tells the others
    tell_all(FrameKind::goodbye, "");
  }

  int rank() const override { return options_.rank; }
  int ranks() const override { return options_.ranks; }

  std::vector<std::string> gather_texts(const std::string& mine) override {
    AB_CHECK(mine.size() <= kMaxTextBytes, "ranks exchange texts of at most {} bytes here, got {}", kMaxTextBytes,
             mine.size());
    const std::lock_guard lock(mutex_);
    const auto n = static_cast<std::size_t>(ranks());
    std::vector<std::string> texts(n);
    texts[static_cast<std::size_t>(rank())] = mine;
    if (rank() == 0) {
      const Deadline deadline = Clock::now() + options_.timeout;
      for (Peer& peer : peers_)
        texts[static_cast<std::size_t>(peer.rank)] = receive_text(peer, kMaxTextBytes, deadline);
      std::string all;
      for (const std::string& text : texts) all += number(static_cast<std::uint32_t>(text.size())) + text;
      tell_all(FrameKind::text, all);
      return texts;
    }
    send_frame(peers_.front(), FrameKind::text, mine);
    const std::string all = receive_text(peers_.front(), n * (4 + kMaxTextBytes),
                                         std::max(deadline_, Clock::now() + options_.timeout + 2 * kFrameTime));
    std::size_t at = 0;
    for (std::string& text : texts) {
      AB_CHECK_KIND(communication, at + 4 <= all.size() && number_at(all.data() + at) <= all.size() - at - 4,
                    "rank 0 sent a list of texts that is cut off");
      text = all.substr(at + 4, number_at(all.data() + at));
      at += 4 + text.size();
    }
    return texts;
  }

  std::optional<Error> failure() override {
    const std::lock_guard lock(mutex_);
    for (Peer& peer : peers_) {
      const std::optional<Error> news = peer.gone ? std::nullopt : news_from(peer);
      if (!news) continue;
      failed_ = true;
      if (rank() == 0) tell_all(FrameKind::failure, content_of(*news));
      return news;
    }
    return std::nullopt;
  }

  bool reports_failures() const override { return true; }

  void abort(const std::string& reason, int exit_code) noexcept override {
    try {
      const std::lock_guard lock(mutex_);
      if (!failed_)
        tell_all(FrameKind::failure,
                 content_of(Error(kind_of(exit_code), fmt::format("rank {} failed: {}", rank(), reason))));
      failed_ = true;
    } catch (...) {  // without memory or a connection there is no one left to tell
    }
  }

 private:
  /// Connections to rank 0 that have not yet said all of their hello.
  struct Stranger {
    Socket socket;
    std::string hello;
  };

  // Rank 0: the others come.

  void listen_for_ranks() {
    const bool in_file = options_.address.starts_with("file:");
    HostPort here = in_file ? HostPort{own_name()} : parse_host_port(options_.address.substr(6));
    const Socket listener = listen_at(here);
    const std::string file = in_file ? options_.address.substr(7) : "";
    if (in_file) publish(file, here);

    std::vector<Stranger> strangers;
    while (!all_are_here()) {
      wait_for_callers(listener, strangers);
      while (Socket caller = accept_from(listener)) {
        if (strangers.size() == kMaxStrangers) strangers.erase(strangers.begin());
        strangers.push_back({std::move(caller), ""});
      }
      if (errno == EMFILE || errno == ENFILE)
        fail("rank 0 has no file descriptors left for more ranks; raise the limit (ulimit -n)");
      std::erase_if(strangers, [this](Stranger& s) { return hear_out(s); });
      look_after_leavers();
      if (Clock::now() > deadline_)
        fail(fmt::format("{} of {} did not come to {} within {} s{}; see that they run and were given this address{}",
                         list_ranks(missing_ranks()), ranks(), place(), options_.timeout.count(),
                         came_twice_ > 0 ? fmt::format(", but two processes were rank {}", came_twice_) : "",
                         is_local(listener) ? ", which only this machine can reach" : ""));
    }
    std::error_code ignored;
    if (in_file) std::filesystem::remove(file, ignored);
  }

  /// Returns when someone calls, says something or leaves, and at the latest when there is a deadline.
  void wait_for_callers(const Socket& listener, const std::vector<Stranger>& strangers) const {
    std::vector<pollfd> waiting{{listener.descriptor(), POLLIN, 0}};
    for (const Stranger& s : strangers) waiting.push_back({s.socket.descriptor(), POLLIN, 0});
    for (const Peer& peer : peers_)
      if (!peer.gone) waiting.push_back({peer.socket.descriptor(), POLLRDHUP, 0});
    poll(waiting.data(), waiting.size(), milliseconds_until(std::min(deadline_, wait_for_leavers_)));
  }

  /// A rank that has come and left is missing again; when none has come in its place for a while, all are told.
  void look_after_leavers() {
    const Deadline soon = Clock::now() + std::min<Clock::duration>(kFrameTime, options_.timeout / 2);
    const Peer* leaver = nullptr;
    for (Peer& peer : peers_) {
      peer.gone = peer.gone || peer.socket.closed_by_peer();
      if (peer.gone) leaver = &peer;
    }
    wait_for_leavers_ = leaver ? std::min(wait_for_leavers_, soon) : Deadline::max();
    if (Clock::now() > wait_for_leavers_)
      fail(fmt::format("rank {} came to {} and has ended; its own output says why", leaver->rank, place()));
  }

  bool all_are_here() const {
    return peers_.size() + 1 == static_cast<std::size_t>(ranks()) &&
           std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.gone; });
  }

  /// Reads what a stranger has said so far; true when there is nothing more to hear from it.
  bool hear_out(Stranger& stranger) {
    std::array<char, kHelloBytes> bytes;
    const std::ptrdiff_t some = stranger.socket.read_available(bytes.data(), kHelloBytes - stranger.hello.size());
    if (some < 0) return true;
    stranger.hello.append(bytes.data(), static_cast<std::size_t>(some));
    if (stranger.hello.size() < kHelloBytes) return false;
    if (stranger.hello.starts_with(kQuestion)) admit(stranger);
    return true;
  }

  /// Nothing that a caller says ends the job: it may be a stranger.
  void admit(Stranger& stranger) {
    const std::uint32_t theirs = number_at(stranger.hello.data() + 8);
    const bool ours = std::string_view(stranger.hello).substr(12) == std::string_view(hello()).substr(12) &&
                      theirs > 0 && theirs < static_cast<std::uint32_t>(ranks());
    const auto known = std::find_if(peers_.begin(), peers_.end(),
                                    [&](const Peer& peer) { return static_cast<std::uint32_t>(peer.rank) == theirs; });
    const bool taken = ours && known != peers_.end() && !known->socket.closed_by_peer();
    const std::string_view answer = !ours ? kRefusal : taken ? kTaken : kAnswer;
    if (taken) came_twice_ = known->rank;
    if (stranger.socket.write(answer.data(), answer.size(), Clock::now() + kFrameTime) != Socket::Result::done) return;
    if (!ours || taken) return;
    if (known != peers_.end()) peers_.erase(known);
    peers_.push_back({static_cast<int>(theirs), std::move(stranger.socket)});
  }

  std::string hello() const {
    const std::uint64_t job = hash64(options_.job.data(), options_.job.size());
    return std::string(kQuestion) + number(static_cast<std::uint32_t>(rank())) +
           number(static_cast<std::uint32_t>(ranks())) + number(static_cast<std::uint32_t>(job)) +
           number(static_cast<std::uint32_t>(job >> 32));
  }
  // The others come to rank 0.

  void connect_to_first() {
    std::string problem = "no attempt was made";
    while (Clock::now() < deadline_) {
      const HostPort first = address_of_first(problem);
      if (first.port > 0) {
        const Deadline soon = std::min(deadline_, Clock::now() + kFrameTime);
        Socket socket = connect_to(first, soon, problem);
        const std::string answer = socket ? greet(socket, soon) : "";
        AB_CHECK_KIND(
            communication, answer != kRefusal,
            "rank {} came to {}, where ranks of another job meet (this one: {}); give each job a place of its "
            "own, and all processes of a job one WORLD_SIZE",
            rank(), place(), options_.job);
        AB_CHECK_KIND(communication, answer != kTaken,
                      "two processes came to {} as rank {}; give every process its own RANK", place(), rank());
        if (answer == kAnswer) {
          peers_.push_back({0, std::move(socket)});
          deadline_ += 2 * kFrameTime;  // rank 0 knows better who is missing: let it speak first
          return;
        }
        if (socket) problem = "what listens there is not rank 0 of abtrain";
      }
      std::this_thread::sleep_for(50ms);
    }
    throw Error(
        ErrorKind::communication,
        fmt::format("rank {} did not find rank 0 at {} within {} s ({}); see that rank 0 runs and was given this "
                    "address",
                    rank(), place(), options_.timeout.count(), problem));
  }

  /// Port 0 when it is not known yet.
  HostPort address_of_first(std::string& problem) const {
    if (options_.address.starts_with("tcp:")) return parse_host_port(options_.address.substr(6));
    try {
      return parse_host_port(read_file(options_.address.substr(7), ErrorKind::communication, kMaxAddressBytes));
    } catch (const Error& error) {
      problem = error.what();
      return {};
    }
  }

  /// The answer; empty when there is none.
  std::string greet(const Socket& socket, Deadline deadline) const {
    const std::string words = hello();
    std::string answer(kAnswer.size(), '\0');
    const bool answered = socket.write(words.data(), words.size(), deadline) == Socket::Result::done &&
                          socket.read(answer.data(), answer.size(), deadline) == Socket::Result::done;
    return answered ? answer : "";
  }

  // All ranks have met.

  std::string receive_text(Peer& peer, std::size_t limit, Deadline deadline) {
    FrameKind kind{};
    std::string content;
    try {
      content = receive_frame(peer, kind, limit, deadline);
    } catch (const Error& error) {
      fail(error.what());
    }
    if (kind == FrameKind::failure) fail(failure_in(content));
    if (kind == FrameKind::goodbye) fail(fmt::format("rank {} left while the ranks were meeting", peer.rank));
    return content;
  }

  std::string receive_frame(Peer& peer, FrameKind& kind, std::size_t limit, Deadline deadline) const {
    const auto read = [&](char* to, std::size_t bytes) {
      const Socket::Result result = peer.socket.read(to, bytes, deadline);
      AB_CHECK_KIND(communication, result != Socket::Result::closed, "rank {} has ended; its own output says why",
                    peer.rank);
      AB_CHECK_KIND(communication, result == Socket::Result::done, "rank {} is connected to {} but says nothing",
                    peer.rank, place());
    };
    std::array<char, 5> header;
    read(header.data(), header.size());
    const std::uint32_t length = number_at(header.data());
    kind = static_cast<FrameKind>(header[4]);
    const bool known = kind == FrameKind::text || kind == FrameKind::failure || kind == FrameKind::goodbye;
    AB_CHECK_KIND(communication, known && length <= std::max(limit, kMaxTextBytes),
                  "rank {} sent a message of {} bytes that is none of abtrain's", peer.rank, length);
    std::string content(length, '\0');
    read(content.data(), content.size());
    return content;
  }

  /// A peer that cannot be reached any more is found out when it is read from.
  void send_frame(Peer& peer, FrameKind kind, const std::string& content) const {
    const std::string frame = number(static_cast<std::uint32_t>(content.size())) + static_cast<char>(kind) + content;
    (void)peer.socket.write(frame.data(), frame.size(), Clock::now() + kFrameTime);
  }
  void tell_all(FrameKind kind, const std::string& content) {
    for (Peer& peer : peers_)
      if (!peer.gone) send_frame(peer, kind, content);
  }
  [[noreturn]] void fail(const Error& error) {
    failed_ = true;
    tell_all(FrameKind::failure, content_of(error));
    throw Error(error);
  }
  [[noreturn]] void fail(const std::string& reason) { fail(Error(ErrorKind::communication, reason)); }

  /// A failure that this peer reports, or its own.
  std::optional<Error> news_from(Peer& peer) {
    pollfd waiting{peer.socket.descriptor(), POLLIN, 0};
    if (poll(&waiting, 1, 0) <= 0) return std::nullopt;
    peer.gone = true;  // all that is ever said here is said once
    FrameKind kind{};
    try {
      const std::string content = receive_frame(peer, kind, kMaxTextBytes, Clock::now() + kFrameTime);
      return kind == FrameKind::failure ? std::optional(failure_in(content)) : std::nullopt;
    } catch (const Error& error) {
      return error;
    }
  }

  std::vector<int> missing_ranks() const {
    std::vector<int> missing;
    for (int r = 1; r < ranks(); ++r)
      if (std::none_of(peers_.begin(), peers_.end(), [r](const Peer& peer) { return peer.rank == r && !peer.gone; }))
        missing.push_back(r);
    return missing;
  }

  std::string place() const { return options_.address; }

  RendezvousOptions options_;
  Deadline deadline_;
  std::mutex mutex_;
  std::vector<Peer> peers_;  // of rank 0: all others; of the others: rank 0
  bool failed_ = false;
  Deadline wait_for_leavers_ = Deadline::max();  // rank 0: until then ranks that have left may come again
  int came_twice_ = 0;                           // rank 0: a rank that was sent away because it was here; 0: none
};

}  // namespace

std::unique_ptr<Bootstrap> make_rendezvous(const RendezvousOptions& options) {
  return std::make_unique<Rendezvous>(options);
}

}  // namespace ab

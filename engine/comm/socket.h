#pragma once
// SPDX-License-Identifier: MIT
//
// TCP connections whose every wait ends: at a deadline, or with an error that names the address. Looking up a host name
// takes as long as the resolver does.

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace ab {

using Deadline = std::chrono::steady_clock::time_point;

struct HostPort {
  std::string host;  ///< a name or an address, without the brackets of IPv6
  int port = 0;
  std::string str() const;  ///< "node1:29500", "[::1]:29500"
};

/// "host:port" or "[address]:port" taken apart; throws Error(config).
HostPort parse_host_port(const std::string& text);

/// Owns a file descriptor; reads and writes never block beyond their deadline.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor);
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket();

  explicit operator bool() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }

  enum class Result { done, closed, timed_out };
  Result read(void* data, std::size_t bytes, Deadline deadline) const;
  Result write(const void* data, std::size_t bytes, Deadline deadline) const;
  /// Bytes that have come already, at most `bytes`; 0: nothing yet, -1: the connection is closed.
  std::ptrdiff_t read_available(void* data, std::size_t bytes) const;
  /// Whether the other end has closed, even when something it said before is still to be read.
  bool closed_by_peer() const;

 private:
  int descriptor_ = -1;
};

/// Whether the name of a host leads to an address.
bool is_known(const std::string& host);

/// Listens on the interface that `at` names and on no other; port 0 takes a free one and writes it to `at`.
/// Throws Error(communication) when the port is taken or the host is another machine.
Socket listen_at(HostPort& at);

/// Whether it can be reached from its own machine only, as under the name that Debian gives a host: 127.0.1.1.
bool is_local(const Socket& listener);
/// The next caller, or an empty socket when there is none.
Socket accept_from(const Socket& listener);

/// One attempt; on failure an empty socket and the reason in `problem`.
Socket connect_to(const HostPort& to, Deadline deadline, std::string& problem);

/// Milliseconds until then for poll(), at least 0.
int milliseconds_until(Deadline deadline);

}  // namespace ab

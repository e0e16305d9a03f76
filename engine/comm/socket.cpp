// SPDX-License-Identifier: MIT
#include "engine/comm/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "engine/core/check.h"

namespace ab {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Null when the name is unknown; `problem` says so.
Addresses resolve(const HostPort& at, std::string& problem) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  const int code = getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (code != 0) problem = gai_strerror(code);
  return {code == 0 ? found : nullptr, &freeaddrinfo};
}

Socket open_socket(const addrinfo& address) {
  return Socket(socket(address.ai_family, address.ai_socktype, address.ai_protocol));
}

/// False at the deadline.
bool wait_for(int descriptor, short event, Deadline deadline) {
  pollfd waiting{descriptor, event, 0};
  int ready = 0;
  do ready = poll(&waiting, 1, milliseconds_until(deadline));
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

int bound_port(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  AB_ASSERT(getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

std::string HostPort::str() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

bool is_known(const std::string& host) {
  std::string problem;
  return resolve({host, 0}, problem) != nullptr;
}

HostPort parse_host_port(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  HostPort parsed;
  if (colon != std::string::npos) {
    parsed.host = text.substr(0, colon);
    if (parsed.host.starts_with('[') && parsed.host.ends_with(']'))
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, parsed.port);
    if (error != std::errc() || stop != end) parsed.port = 0;
  }
  AB_CHECK(!parsed.host.empty() && 1 <= parsed.port && parsed.port <= 65535,
           "'{}' is not an address; give host:port with a port from 1 to 65535", text);
  return parsed;
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

Socket::Socket(int descriptor) : descriptor_(descriptor) {
  if (descriptor_ < 0) return;
  fcntl(descriptor_, F_SETFL, fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
  fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(descriptor_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket::Result Socket::read(void* data, std::size_t bytes, Deadline deadline) const {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const std::ptrdiff_t some = read_available(to, bytes);
    if (some < 0) return Result::closed;
    to += some;
    bytes -= static_cast<std::size_t>(some);
    if (some > 0) continue;
    if (std::chrono::steady_clock::now() >= deadline) return Result::timed_out;
    wait_for(descriptor_, POLLIN, deadline);
  }
  return Result::done;
}

Socket::Result Socket::write(const void* data, std::size_t bytes, Deadline deadline) const {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t some = send(descriptor_, from, bytes, MSG_NOSIGNAL);
    if (some > 0) {
      from += some;
      bytes -= static_cast<std::size_t>(some);
      continue;
    }
    if (errno == EINTR) continue;
    if (!would_block()) return Result::closed;
    if (std::chrono::steady_clock::now() >= deadline) return Result::timed_out;
    wait_for(descriptor_, POLLOUT, deadline);
  }
  return Result::done;
}

std::ptrdiff_t Socket::read_available(void* data, std::size_t bytes) const {
  ssize_t some = 0;
  do some = recv(descriptor_, data, bytes, 0);
  while (some < 0 && errno == EINTR);
  if (some > 0) return some;
  return some < 0 && would_block() ? 0 : -1;
}

bool Socket::closed_by_peer() const {
  pollfd state{descriptor_, POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0;
}

Socket listen_at(HostPort& at) {
  std::string problem;
  const Addresses addresses = resolve(at, problem);
  int failure = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
    Socket listener = open_socket(*a);
    const int on = 1, off = 0;
    setsockopt(listener.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on,
               sizeof on);  // a port that an earlier run just left
    setsockopt(listener.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // at "::", of IPv4 too
    if (listener && bind(listener.descriptor(), a->ai_addr, a->ai_addrlen) == 0 &&
        listen(listener.descriptor(), SOMAXCONN) == 0) {
      at.port = bound_port(listener);
      return listener;
    }
    failure = errno;
    problem = std::strerror(failure);
    if (failure == EADDRINUSE) break;  // callers would find whoever is there
  }
  AB_CHECK_KIND(communication, failure != EADDRINUSE,
                "port {} of {} is in use, by another job or by a second process with rank 0; choose another port",
                at.port, at.host);
  AB_CHECK_KIND(communication, failure != EADDRNOTAVAIL,
                "rank 0 cannot listen at {}, which is not an address of this machine; give the one that rank 0 runs on",
                at.str());
  throw Error(ErrorKind::communication, fmt::format("rank 0 cannot listen at {} ({})", at.str(), problem));
}

bool is_local(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  if (address.ss_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<sockaddr_in6&>(address).sin6_addr);
  return ntohl(reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

Socket accept_from(const Socket& listener) { return Socket(accept(listener.descriptor(), nullptr, nullptr)); }

Socket connect_to(const HostPort& to, Deadline deadline, std::string& problem) {
  const Addresses addresses = resolve(to, problem);
  int left = 0;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next) ++left;
  for (const addrinfo* a = addresses.get(); a; a = a->ai_next, --left) {
    const auto now = std::chrono::steady_clock::now();
    const Deadline of_this = now + (deadline - now) / left;
    Socket socket = open_socket(*a);
    if (connect(socket.descriptor(), a->ai_addr, a->ai_addrlen) == 0) return socket;
    int failure = errno;
    if (failure == EINPROGRESS) {
      failure = ETIMEDOUT;
      socklen_t length = sizeof failure;
      if (wait_for(socket.descriptor(), POLLOUT, of_this))
        getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &failure, &length);
    }
    if (failure == 0) return socket;
    problem = std::strerror(failure);
  }
  return {};
}

}  // namespace ab

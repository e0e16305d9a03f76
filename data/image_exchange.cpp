// SPDX-License-Identifier: MIT
#include "data/image_exchange.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <utility>

#include "data/decode.h"
#include "engine/core/check.h"
#include "engine/core/machine.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr std::chrono::seconds kPatience{10}, kPatienceToConnect{3};
constexpr std::chrono::minutes kSilence{1}, kLongestSilence{60};  // before a node that was given up is asked again
constexpr int kGlance = 100;  // ms after which a server that waits looks whether it is to stop
constexpr int kMostCallers = 4096;

Deadline soon(std::chrono::seconds patience = kPatience) { return std::chrono::steady_clock::now() + patience; }

bool waits_to_be_read(const Socket& socket) {
  pollfd waiting{socket.descriptor(), POLLIN, 0};
  return ::poll(&waiting, 1, kGlance) > 0;
}

struct Size {
  std::int32_t height = 0, width = 0;
};

Box whole_of(const Size& size) { return {0, 0, size.height, size.width}; }

bool is_within(const Box& box, const Size& size) {
  return box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 && box.height <= size.height - box.top &&
         box.width <= size.width - box.left;
}

/// For callers by IPv6 and IPv4, where the machine has both.
Socket listen_everywhere(HostPort& at) {
  try {
    return listen_at(at = {"::", 0});
  } catch (const Error&) {
    return listen_at(at = {"0.0.0.0", 0});
  }
}

}  // namespace

struct ImageServer::State {
  State(std::uint64_t t, Find f) : token(t), find(std::move(f)) {}

  const std::uint64_t token;
  const Find find;
  std::atomic<bool> stop = false;
  std::atomic<int> callers = 0;

  ImageView found(std::int64_t number) const {
    try {
      return find(number);
    } catch (const std::exception&) {  // the caller reads the file, and tells what is wrong with it
      return {};
    }
  }
  bool read(const Socket& caller, void* data, std::size_t bytes) const {
    while (!stop)
      if (waits_to_be_read(caller)) return caller.read(data, bytes, soon()) == Socket::Result::done;
    return false;
  }
  void answer(const Socket& caller) const {
    const auto write = [&](const void* data, std::size_t bytes) {
      return caller.write(data, bytes, soon()) == Socket::Result::done;
    };
    std::uint64_t said = 0;
    if (!read(caller, &said, sizeof said) || said != token) return;
    Image part;
    for (std::int64_t number = 0; read(caller, &number, sizeof number);) {
      const ImageView image = found(number);
      const Size size = image.pixels ? Size{image.height, image.width} : Size{};
      if (!write(&size, sizeof size)) return;
      if (!image.pixels) continue;
      Box wanted;
      if (!read(caller, &wanted, sizeof wanted) || !is_within(wanted, size)) return;
      cut_out(image.part(wanted), part);
      if (!write(part.pixels.data(), part.pixels.size())) return;
    }
  }
};

ImageServer::ImageServer(std::uint64_t token, Find find)
    : listener_(listen_everywhere(at_)), state_(std::make_shared<State>(token, std::move(find))) {
  take_more_descriptors();
  accepting_ = std::thread([this] { accept_callers(); });
}

ImageServer::~ImageServer() {
  state_->stop = true;
  accepting_.join();
  for (int glances = 0; glances < 20 && state_->callers > 0; ++glances)
    std::this_thread::sleep_for(std::chrono::milliseconds(kGlance));
}

void ImageServer::accept_callers() const {
  while (!state_->stop) {
    if (!waits_to_be_read(listener_)) continue;
    auto caller = std::make_shared<Socket>(accept_from(listener_));
    ++state_->callers;
    try {
      AB_ASSERT(*caller && state_->callers <= kMostCallers);
      std::thread([state = state_, caller] {
        try {
          state->answer(*caller);
        } catch (const std::exception&) {  // no memory for a part: the caller finds the connection closed
        }
        --state->callers;
      }).detach();
    } catch (
        const std::
            exception&) {  // the system has no thread or descriptor for another one, who finds the connection closed
      --state_->callers;
      std::this_thread::sleep_for(std::chrono::milliseconds(kGlance));
    }
  }
}

ImageNodes::ImageNodes(std::vector<HostPort> servers, std::uint64_t token) : token_(token) {
  for (HostPort& server : servers) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->server = std::move(server);
    nodes_.back()->silence = kSilence;
  }
  constexpr std::size_t kOfAllServers = 256;  // with up to 16 processes a node, less than a server takes
  most_idle_ = std::max<std::size_t>(1, kOfAllServers / std::max<std::size_t>(1, nodes_.size()));
}

void ImageNodes::give_up(Node& node, const std::string& reason) const {
  const std::lock_guard lock(node.mutex);
  const auto now = std::chrono::steady_clock::now();
  if (node.given_up && now < node.not_before) return;  // another thread has said it
  if (!reason.empty())
    say(stderr, "warning: images that {} keeps are read from their files for {} min: {}\n", node.server.str(),
        node.silence.count(), reason);
  node.not_before = now + node.silence;
  if (!reason.empty()) node.silence = std::min(2 * node.silence, kLongestSilence);
  node.given_up = true;
  node.idle.clear();
}

/// None where the node is given up.
Socket ImageNodes::connect(Node& node) const {
  {
    const std::lock_guard lock(node.mutex);
    const auto now = std::chrono::steady_clock::now();
    if (now < node.not_before) return {};
    if (node.given_up) node.given_up = false, node.not_before = now + kSilence;  // one thread tries
    if (!node.idle.empty()) {
      Socket connection = std::move(node.idle.back());
      node.idle.pop_back();
      return connection;
    }
  }
  std::string problem;
  Socket connection = connect_to(node.server, soon(kPatienceToConnect), problem);
  if (connection && connection.write(&token_, sizeof token_, soon()) == Socket::Result::done) return connection;
  give_up(node, fmt::format("it cannot be reached ({})", problem));
  return {};
}

ImageNodes::Answer ImageNodes::fetch(std::int64_t number_of_node, std::int64_t number, const ChoosePart& part,
                                     Image& image) {
  Node& node = *nodes_[static_cast<std::size_t>(number_of_node)];
  Socket connection = connect(node);
  if (!connection) return Answer::none;
  Size size;
  Socket::Result result = connection.write(&number, sizeof number, soon());
  if (result == Socket::Result::done) result = connection.read(&size, sizeof size, soon());
  const bool kept = result == Socket::Result::done && (size.height != 0 || size.width != 0);
  if (kept) try {
      check_image_size(size.height, size.width, "");
      const Box wanted = part ? part(size.height, size.width).box : whole_of(size);
      image.resize(wanted.height, wanted.width);
      result = connection.write(&wanted, sizeof wanted, soon());
      if (result == Socket::Result::done) result = connection.read(image.pixels.data(), image.view().bytes(), soon());
    } catch (const Error&) {
      give_up(node, "its answer makes no sense");
      return Answer::none;
    }
  if (result != Socket::Result::done) {
    give_up(node, result == Socket::Result::timed_out
                      ? fmt::format("it has not answered for {} seconds", kPatience.count())
                      : "");
    return Answer::none;
  }
  const std::lock_guard lock(node.mutex);
  if (!node.given_up) node.silence = kSilence, node.not_before = {};
  if (node.idle.size() < most_idle_) node.idle.push_back(std::move(connection));
  return kept ? Answer::image : Answer::not_kept;
}

}  // namespace ab

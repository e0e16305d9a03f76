// SPDX-License-Identifier: MIT
#include "data/image_exchange.h"

#include <poll.h>

#include <array>
#include <exception>
#include <utility>

#include "data/decode.h"
#include "engine/core/check.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr int kGlance = 100;  // ms after which a server that waits looks whether it is to stop

Deadline soon() { return std::chrono::steady_clock::now() + kPatience; }

struct Size {
  std::int32_t height = 0, width = 0;
};

}  // namespace

ImageServer::ImageServer(std::uint64_t token, Find find) : token_(token), find_(std::move(find)) {
  try {
    listener_ = listen_at(at_ = {"::", 0});
  } catch (const Error&) {  // a machine without IPv6
    listener_ = listen_at(at_ = {"0.0.0.0", 0});
  }
  accepting_ = std::thread([this] { accept_callers(); });
}

ImageServer::~ImageServer() {
  stop_ = true;
  accepting_.join();
  for (std::thread& thread : answering_) thread.join();
}

void ImageServer::accept_callers() {
  while (!stop_) {
    pollfd waiting{listener_.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kGlance) <= 0) continue;
    if (auto caller = std::make_shared<Socket>(accept_from(listener_)); *caller)
      answering_.emplace_back([this, caller] { answer(*caller); });
  }
}

void ImageServer::answer(const Socket& caller) const {
  const auto said = [](Socket::Result result) { return result == Socket::Result::done; };
  std::uint64_t token = 0;
  if (!said(caller.read(&token, sizeof token, soon())) || token != token_) return;
  while (!stop_) {
    pollfd waiting{caller.descriptor(), POLLIN, 0};
    if (::poll(&waiting, 1, kGlance) <= 0) continue;
    std::int64_t number = 0;
    if (!said(caller.read(&number, sizeof number, soon()))) return;
    ImageView image{};
    try {
      image = find_(number);
    } catch (const std::exception&) {  // the caller reads the file, and tells what is wrong with it
    }
    const Size size = image.pixels ? Size{image.height, image.width} : Size{};
    if (!said(caller.write(&size, sizeof size, soon()))) return;
    if (image.pixels && !said(caller.write(image.pixels, image.bytes(), soon()))) return;
  }
}

ImageNodes::ImageNodes(std::vector<HostPort> servers, std::uint64_t token) : token_(token) {
  for (HostPort& server : servers) {
    nodes_.push_back(std::make_unique<Node>());
    nodes_.back()->server = std::move(server);
  }
}

bool ImageNodes::connect(Node& node) const {
  std::string problem;
  node.connection = connect_to(node.server, soon(), problem);
  if (node.connection && node.connection.write(&token_, sizeof token_, soon()) == Socket::Result::done) return true;
  say(stderr, "warning: images that {} keeps are read from their files: it cannot be reached ({})\n", node.server.str(),
      problem);
  return false;
}

bool ImageNodes::fetch(std::int64_t number_of_node, std::int64_t number, Image& image) {
  Node& node = *nodes_[static_cast<std::size_t>(number_of_node)];
  const std::lock_guard lock(node.one_at_a_time);
  if (node.gone) return false;
  node.gone = true;  // until it has answered
  if (!node.connection && !connect(node)) return false;
  Size size;
  Socket::Result result = node.connection.write(&number, sizeof number, soon());
  if (result == Socket::Result::done) result = node.connection.read(&size, sizeof size, soon());
  if (result == Socket::Result::done && size.height > 0) {
    check_image_size(size.height, size.width, node.server.str());
    image.resize(size.height, size.width);
    result = node.connection.read(image.pixels.data(), image.view().bytes(), soon());
  }
  if (result == Socket::Result::timed_out)
    say(stderr, "warning: images that {} keeps are read from their files: it has not answered for {} seconds\n",
        node.server.str(), kPatience.count());
  node.gone = result != Socket::Result::done;
  return !node.gone && size.height > 0;
}

}  // namespace ab

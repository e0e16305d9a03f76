#pragma once
// SPDX-License-Identifier: MIT
//
// Decoded images from the memory of another node: each node keeps its own part of a data set, so that together they keep as much
// as they all have memory for.
//
// Protocol over TCP, numbers little-endian: a caller says the token of the job (uint64), then numbers of images (int64), and gets
// for each its height and width (int32 each) and its pixels, or two zeros when the node does not keep it. Whoever can reach a node
// and knows the token can ask for images: the network must be trusted.

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/image.h"
#include "engine/comm/socket.h"

namespace ab {

/// Answers the other nodes.
class ImageServer {
 public:
  /// The pixels of that image until the same thread asks again, or none. Several threads may ask at once. What it throws counts as
  /// none.
  using Find = std::function<ImageView(std::int64_t number)>;

  /// Listens on all interfaces, at a free port. Throws Error(communication) when the system refuses.
  ImageServer(std::uint64_t token, Find find);
  /// Ends when no thread is in `find` any more.
  ~ImageServer();
  int port() const { return at_.port; }

 private:
  void accept_callers();
  void answer(const Socket& caller) const;

  std::uint64_t token_;
  Find find_;
  HostPort at_;
  Socket listener_;
  std::atomic<bool> stop_ = false;
  std::list<std::thread> answering_;
  std::thread accepting_;
};

/// Asks them.
class ImageNodes {
 public:
  /// `servers`: of each node, in the order of their numbers.
  ImageNodes(std::vector<HostPort> servers, std::uint64_t token);

  std::int64_t count() const { return std::ssize(nodes_); }
  /// Whether that node keeps the image, and the image. A node that cannot be reached, or has not answered for ten seconds, is not asked
  /// again, with a warning on stderr unless it has ended its part.
  bool fetch(std::int64_t node, std::int64_t number, Image& image);

 private:
  struct Node {
    HostPort server;
    std::mutex one_at_a_time;
    Socket connection{};
    bool gone = false;
  };
  bool connect(Node& node) const;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::uint64_t token_;
};

}  // namespace ab

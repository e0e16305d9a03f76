#pragma once
// SPDX-License-Identifier: MIT
//
// Decoded images from the memory of another node: each node keeps its own part of a data set, so that together they keep as much
// as they all have memory for.
//
// Protocol over TCP, numbers little-endian: a caller says the token of the job (uint64), then numbers of images (int64), and gets
// for each its height and width (int32 each), or two zeros when the node does not keep it. Of one that it keeps the caller says the
// part that it wants (top, left, height and width, int32 each), and gets its pixels. Whoever can reach a node and knows the token can
// ask for images: the network must be trusted.

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "data/image.h"
#include "engine/comm/socket.h"

namespace ab {

/// Answers the other nodes, each caller in a thread.
class ImageServer {
 public:
  /// The pixels of that image until the same thread asks again, or none. Several threads may ask at once. What it throws counts as
  /// none.
  using Find = std::function<ImageView(std::int64_t number)>;

  /// Listens on all interfaces, at a free port. Throws Error(communication) when the system refuses.
  ImageServer(std::uint64_t token, Find find);
  /// Waits a moment for threads to finish their answers; one that hangs in `find`, as on a disk that does not answer, is left
  /// behind with it.
  ~ImageServer();
  int port() const { return at_.port; }

 private:
  struct State;
  void accept_callers() const;

  HostPort at_;
  Socket listener_;
  std::shared_ptr<State> state_;  // of the threads too
  std::thread accepting_;
};

/// Asks them.
class ImageNodes {
 public:
  /// `servers`: of each node, in the order of their numbers.
  ImageNodes(std::vector<HostPort> servers, std::uint64_t token);

  std::int64_t count() const { return std::ssize(nodes_); }
  enum class Answer : std::uint8_t { image, not_kept, none };
  /// Asks that node for that part of the image, or all of it, over a connection for each thread that asks at once. A node that
  /// cannot be reached in three seconds, has not answered for ten or answers nonsense is asked again after a minute, then after
  /// two, four and so on up to an hour; unless it has ended, a warning on stderr says so.
  Answer fetch(std::int64_t node, std::int64_t number, const ChoosePart& part, Image& image);

 private:
  struct Node {
    HostPort server{};
    std::mutex mutex{};
    std::vector<Socket> idle{};  // connections that no thread uses
    bool given_up = false;
    std::chrono::steady_clock::time_point not_before{};
    std::chrono::minutes silence{};  // after the next failure
  };
  Socket connect(Node& node) const;
  void give_up(Node& node, const std::string& reason) const;

  std::vector<std::unique_ptr<Node>> nodes_;
  std::uint64_t token_;
  std::size_t most_idle_;  // connections to a node that are kept: a server has a thread and a descriptor for each
};

}  // namespace ab

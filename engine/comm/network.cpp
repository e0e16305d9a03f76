// SPDX-License-Identifier: MIT
#include "engine/comm/network.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <sstream>
#include <utility>

#include "engine/core/check.h"

namespace ab {
namespace {

double log2_rounds(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

double time_of(const Link& link, double rounds, double bytes) {
  return rounds == 0 ? 0 : rounds * link.latency + bytes / link.bandwidth;
}

}  // namespace

double LinkModel::seconds(Collective what, const Route& route, std::int64_t calls, std::int64_t payload_bytes) const {
  if (route.ranks == 1 || calls == 0) return 0;
  const double p = route.ranks, m = route.nodes, payload = static_cast<double>(payload_bytes);
  const double sweeps = what == Collective::all_reduce ? 2 : 1;
  const double repeats = static_cast<double>(calls * segments(route, payload_bytes / calls));
  // Bytes that the card of a node and the port of a rank send.
  const double by_card = static_cast<double>(route.inter_parts) / (m * p) * payload;
  const double by_port = static_cast<double>(route.intra_parts) / (p * p) * payload;
  const double inside = route.nodes < route.ranks ? 1 : 0, across = route.nodes > 1 ? 1 : 0;
  switch (route.algorithm) {
    case AllReduce::two_level:
      return time_of(intra_node, 2 * repeats, by_port) + time_of(inter_node, 2 * repeats, by_card);
    case AllReduce::library:
    case AllReduce::ring: {
      const double rounds = sweeps * (p - 1) * repeats, bytes = sweeps * (p - 1) / p * payload;
      return std::max(time_of(inter_node, across * rounds, across * bytes),
                      time_of(intra_node, inside * rounds, inside * bytes));
    }
    case AllReduce::tree: {
      const double up_across = log2_rounds(route.nodes), up_inside = log2_rounds(route.ranks) - up_across;
      return time_of(inter_node, 2 * up_across * repeats, 2 * up_across * payload) +
             time_of(intra_node, 2 * up_inside * repeats, 2 * up_inside * payload);
    }
    case AllReduce::direct:
    case AllReduce::automatic: break;
  }
  const double rounds = (what == Collective::all_reduce || what == Collective::broadcast ? 2 : 1) * repeats;
  return std::max(time_of(inter_node, across * rounds, across * by_card),
                  time_of(intra_node, inside * rounds, inside * by_port));
}

AllReduce LinkModel::fastest(const Layout& layout, std::int64_t payload_bytes) const {
  AllReduce best = AllReduce::direct;
  double shortest = HUGE_VAL;
  for (const AllReduce algorithm : {AllReduce::direct, AllReduce::two_level, AllReduce::ring, AllReduce::tree}) {
    const double time =
        seconds(Collective::all_reduce, route_of(Collective::all_reduce, algorithm, layout), 1, payload_bytes);
    if (time < shortest) shortest = time, best = algorithm;
  }
  return best;
}

namespace {

struct Unit {
  const char* name;
  double factor;
};
constexpr Unit kSeconds[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
constexpr Unit kBytesPerSecond[] = {{"kbps", 1e3 / 8},   {"Mbps", 1e6 / 8}, {"Gbps", 1e9 / 8}, {"Mbit/s", 1e6 / 8},
                                    {"Gbit/s", 1e9 / 8}, {"kB/s", 1e3},     {"MB/s", 1e6},     {"GB/s", 1e9}};

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(trimmed(part));
  return parts;
}

template <std::size_t N> double measure(const std::string& key, const std::string& text, const Unit (&units)[N]) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  for (const Unit& unit : units)
    if (error == std::errc{} && number >= 0 && number <= 1e6 && unit.name == trimmed({rest, text.data() + text.size()}))
      return number * unit.factor;
  std::string names;
  for (const Unit& unit : units) names += fmt::format("{}{}", names.empty() ? "" : ", ", unit.name);
  throw Error(ErrorKind::config,
              fmt::format("--network: {} needs a number and a unit ({}), got '{}'", key, names, text));
}

void apply(LinkModel& links, const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string key = trimmed(word.substr(0, equals));
  const std::string value = equals == std::string::npos ? "" : trimmed(word.substr(equals + 1));
  if (key == "latency") links.inter_node.latency = measure(key, value, kSeconds);
  else if (key == "node-latency") links.intra_node.latency = measure(key, value, kSeconds);
  else if (key == "bandwidth") links.inter_node.bandwidth = measure(key, value, kBytesPerSecond);
  else if (key == "node-bandwidth") links.intra_node.bandwidth = measure(key, value, kBytesPerSecond);
  else
    throw Error(ErrorKind::config, fmt::format("--network: '{}' is none of latency, bandwidth, node-latency and "
                                               "node-bandwidth, each followed by = and its measure",
                                               word));
  AB_CHECK(links.inter_node.bandwidth >= 1 && links.intra_node.bandwidth >= 1,
           "--network: {} must be above 0, and at least a byte a second", key);
}

/// The step of "from 500: …", and what follows it.
std::pair<std::int64_t, std::string> read_step(const std::string& part) {
  const std::size_t colon = part.find(':');
  std::int64_t step = 0;
  const std::string number =
      part.starts_with("from ") && colon != std::string::npos ? trimmed(part.substr(5, colon - 5)) : "";
  const auto [rest, error] = std::from_chars(number.data(), number.data() + number.size(), step);
  AB_CHECK(!number.empty() && error == std::errc{} && rest == number.data() + number.size() && step > 0,
           "--network: what follows a semicolon begins with 'from STEP:', got '{}'", part);
  return {step, part.substr(colon + 1)};
}

}  // namespace

NetworkShape::From NetworkShape::at(std::int64_t step) const {
  From last;
  for (const From& part : parts)
    if (part.step <= step) last = part;
  return last;
}

NetworkShape parse_network(const std::string& words) {
  NetworkShape shape;
  LinkModel links{kUnshaped, kUnshaped}, assumed;
  for (const std::string& part : split(words, ';')) {
    auto [step, figures] = shape.parts.empty() ? std::pair<std::int64_t, std::string>{0, part} : read_step(part);
    AB_CHECK(shape.parts.empty() || step > shape.parts.back().step, "--network: its steps must rise, got {} after {}",
             step, shape.parts.back().step);
    for (const std::string& word : split(figures, ',')) apply(links, word), apply(assumed, word);
    shape.parts.push_back({step, links, assumed});
  }
  return shape;
}

}  // namespace ab

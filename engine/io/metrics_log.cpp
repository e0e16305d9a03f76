// SPDX-License-Identifier: MIT
#include "engine/io/metrics_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/core/check.h"
#include "engine/core/say.h"

namespace ab {

using Json = nlohmann::ordered_json;

MetricsLog::MetricsLog(const std::string& path, std::int64_t keep_bytes) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  AB_CHECK(descriptor_ >= 0, "cannot create {}: {}", path, std::strerror(errno));
  AB_CHECK(bytes() <= keep_bytes || ::ftruncate(descriptor_, keep_bytes) == 0, "cannot cut {}: {}", path,
           std::strerror(errno));
  char last = '\n';
  inside_line_ = bytes() > 0 && ::pread(descriptor_, &last, 1, bytes() - 1) == 1 && last != '\n';
}

std::int64_t MetricsLog::synced_bytes() const {
  ::fdatasync(descriptor_);  // in vain on a disk that is full, which costs lines and not the run
  return bytes();
}

std::int64_t MetricsLog::bytes() const {
  struct stat status {};
  AB_CHECK(::fstat(descriptor_, &status) == 0, "cannot measure {}: {}", path_, std::strerror(errno));
  return status.st_size;
}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsLog::write(const StepMetrics& m) {
  Json line{{"kind", "step"},
            {"step", m.step},
            {"epoch", m.epoch},
            {"phase", m.phase},
            {"loss", m.loss},
            {"lr", m.lr},
            {"images_per_second", m.images_per_second},
            {"wire_bytes", m.wire_bytes},
            {"waiting_seconds", m.waiting_seconds},
            {"image_waiting_seconds", m.image_waiting_seconds},
            {"flops_per_second", m.flops_per_second},
            {"peak_share", m.peak_share}};
  line.update(Json(m.images));
  append(line.dump());
}

void MetricsLog::write(const EpochMetrics& m) {
  append(Json{{"kind", "epoch"},
              {"epoch", m.epoch},
              {"step", m.step},
              {"val_loss", m.val_loss},
              {"val_top1", m.val_top1},
              {"val_top5", m.val_top5}}
             .dump());
}

void MetricsLog::write(const SplitMetrics& m) {
  Json layers = Json::array();
  for (std::size_t i = 0; i < m.layers.size(); ++i) {
    const LayerRank& layer = m.layers[i];
    Json line{{"name", layer.name}, {"m", layer.m}, {"n", layer.n}, {"r", layer.r}};
    if (i < m.sensitivity.size() && !m.sensitivity[i].by_loss.empty()) {
      const LayerSensitivity& sensitivity = m.sensitivity[i];
      line.update({{"kept", sensitivity.kept}, {"increase", sensitivity.increase}});
      line["by_loss"] = sensitivity.by_loss;
      line["by_sigma"] = sensitivity.by_sigma;
    }
    layers.push_back(std::move(line));
  }
  append(Json{{"kind", "split"}, {"step", m.step}, {"layers", std::move(layers)}}.dump());
}

void MetricsLog::write(const DecisionMetrics& m) {
  Json line{{"kind", "decision"}, {"epoch", m.epoch}, {"step", m.step}};
  for (const auto& [name, value] : m.values) line[name] = value;
  append(line.dump());
}

void MetricsLog::append(std::string line) {
  line += '\n';
  if (inside_line_) line.insert(line.begin(), '\n');
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = ::write(descriptor_, line.data() + done, line.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  if (done == line.size()) {
    inside_line_ = false;
    return;
  }
  inside_line_ = inside_line_ || done > 0;
  if (lost_lines_++ == 0)
    say(stderr, "warning: cannot write {} ({}); training goes on, metrics may be lost\n", path_, std::strerror(errno));
}

}  // namespace ab

// SPDX-License-Identifier: MIT
#include "apps/train/request_files.h"

#include <filesystem>

#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"

namespace ab {

RequestFiles::RequestFiles(std::string folder) : folder_(std::move(folder)) {
  for (const char* name : {kStop, kSave}) take(name);
}

bool RequestFiles::take(const char* name) const {
  std::error_code ignored;
  return std::filesystem::remove(in_folder(folder_, name), ignored);
}

bool RequestFiles::look() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return false;
  next_look_ = now + std::chrono::seconds(1);
  if (take(kStop)) request_stop();
  return take(kSave);
}

}  // namespace ab

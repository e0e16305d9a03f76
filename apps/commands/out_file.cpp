// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/train/run_folder.h"
#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

/// A file that cannot be read is none of ours.
bool holds_one(const std::string& file, const OutKind& kind) {
  constexpr std::size_t kBeginning = 16 << 20;  // of a model file, whose header it holds
  std::string text(kBeginning, '\0');
  std::ifstream(file, std::ios::binary).read(text.data(), kBeginning);
  return text.starts_with(kind.begins) && text.find(kind.mark) != std::string::npos;
}

}  // namespace

std::string out_file(const std::string& out, const OutKind& kind, const std::vector<std::string>& inputs) {
  std::error_code ignored;
  const fs::path folder = fs::path(out).parent_path();
  const std::string real = fs::weakly_canonical(out, ignored).string();
  for (const std::string& input : inputs)
    AB_CHECK(!fs::equivalent(out, input, ignored), "--out {} is {}, which is read here; choose another name", out,
             input);
  AB_CHECK(!is_file_of_run(out) && !is_file_of_run(real), "--out {} is a file of a run; choose another name", out);
  AB_CHECK(!fs::is_directory(out, ignored), "--out {} is a folder; give the name of a file", out);
  AB_CHECK(out.ends_with(kind.ending), "--out {} is not a name for {}; give one that ends in {}", out, kind.what,
           kind.ending);
  AB_CHECK(folder.empty() || fs::is_directory(folder, ignored), "--out {} cannot be written: there is no folder {}",
           out, folder.string());
  const std::string writable = folder.empty() ? "." : folder.string();
  AB_CHECK(::access(writable.c_str(), W_OK | X_OK) == 0, "--out {} cannot be written: {}: {}", out, writable,
           std::strerror(errno));
  const bool exists = fs::exists(out, ignored), is_link = fs::is_symlink(out, ignored);
  AB_CHECK(exists || !is_link, "--out {} is a link to a file that is not there; give the name of that file", out);
  const bool is_file = fs::is_regular_file(out, ignored);
  const bool is_empty = is_file && fs::file_size(out, ignored) == 0;
  AB_CHECK(!exists || is_empty || (is_file && holds_one(out, kind)),
           "--out {} is there already, and is not {}; choose another name", out, kind.what);
  return is_link ? real : out;
}

}  // namespace ab

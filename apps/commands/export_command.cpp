// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <filesystem>

#include "apps/model_file/model_file.h"
#include "apps/report/terminal.h"
#include "apps/train/run_folder.h"
#include "engine/core/say.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

std::string default_out(const ExportConfig& config, const std::string& file) {
  const fs::path path(file);
  return (path.parent_path() / fmt::format("{}_{}.safetensors", path.stem().string(), config.names)).string();
}

}  // namespace

int run_export(const ExportConfig& config) {
  const std::string file = model_path(config.model_file);
  const std::string out = out_file(config.out.empty() ? default_out(config, file) : config.out, kModelExport, {file});
  LoadedModel loaded = model_from_file(read_safetensors(file), file);
  for (const std::string& remark : loaded.remarks) say(stderr, "{}: {}\n", file, remark);
  const std::int64_t merged = config.factors == "merged" ? merge_factors(*loaded.model) : 0;
  const TensorNames names = config.names == "timm" ? TensorNames::timm : TensorNames::torchvision;
  const TensorFile content = model_to_file(*loaded.model, loaded.info, names);
  write_safetensors(out, content);
  say(stdout, "{}: {}, {} tensors under {}'s names, {}{}\n", out, loaded.info.spec.name, content.tensors.size(),
      config.names, human_bytes(static_cast<double>(fs::file_size(out))),
      merged > 0 ? fmt::format("; the factors of {} were multiplied", counted(merged, "weight")) : "");
  return 0;
}

}  // namespace ab

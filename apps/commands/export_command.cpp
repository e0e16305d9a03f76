// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "apps/model_file/model_file.h"
#include "apps/report/terminal.h"
#include "apps/train/run_folder.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

struct ExportFlags {
  std::string model_file, names = "torchvision", factors = "merged", out;
};

int run_export(const ExportFlags& flags) {
  start_compute_threads();
  const std::string file = model_path(flags.model_file);
  const fs::path path(file);
  const fs::path beside = path.parent_path() / fmt::format("{}_{}.safetensors", path.stem().string(), flags.names);
  const std::string out = out_file(flags.out.empty() ? beside.string() : flags.out, kModelExport, {file});
  LoadedModel loaded = model_from_file(read_safetensors(file), file);
  for (const std::string& remark : loaded.remarks) say(stderr, "{}: {}\n", file, remark);
  const std::int64_t merged = flags.factors == "merged" ? merge_factors(*loaded.model) : 0;
  const TensorNames names = flags.names == "timm" ? TensorNames::timm : TensorNames::torchvision;
  const TensorFile content = model_to_file(*loaded.model, loaded.info, names);
  write_safetensors(out, content);
  say(stdout, "{}: {}, {} tensors under {}'s names, {}{}\n", out, loaded.info.spec.name, content.tensors.size(),
      flags.names, human_bytes(static_cast<double>(fs::file_size(out))),
      merged > 0 ? fmt::format("; the factors of {} were multiplied", counted(merged, "weight")) : "");
  return 0;
}

}  // namespace

Command export_command(CLI::App& app) {
  CLI::App* parser =
      app.add_subcommand("export", "write a trained model for PyTorch, with torchvision's or timm's names");
  const auto flags = std::make_shared<ExportFlags>();
  add_path(parser, "--model-file", flags->model_file, "model.safetensors, or the run folder that holds it")->required();
  parser->add_option("--names", flags->names, "torchvision (default) or timm")
      ->check(CLI::IsMember({"torchvision", "timm"}));
  parser->add_option("--factors", flags->factors, "factored weights as W (merged, default) or as A and B (ab)")
      ->check(CLI::IsMember({"merged", "ab"}));
  add_path(parser, "--out", flags->out, "file to write; model_torchvision.safetensors beside the model when not given")
      ->type_name("FILE");
  return {parser, [flags] { return run_export(*flags); }};
}

}  // namespace ab

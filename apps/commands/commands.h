#pragma once
// SPDX-License-Identifier: MIT
//
// The commands of the program, as main() calls them. Each returns the exit code and throws ab::Error.

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "apps/paper/paper_traffic.h"
#include "apps/plan/plan.h"
#include "apps/settings/config.h"
#include "data/pack.h"

namespace CLI {
class App;
}

namespace ab {

/// abtrain train: trains as configured and writes config.toml, metrics.jsonl, summary.json and
/// model.safetensors to config.out.
/// `has_twin`: another run of as many steps follows; once steps have been timed, a line says how long both will take.
int run_train(const TrainConfig& config, bool has_twin = false);

struct EvalConfig {
  std::string model_file;       ///< model.safetensors, or the run folder that holds it
  std::string model;            ///< what the file holds, when abtrain did not write it
  std::int64_t classes = 0;     ///< of `model`; 0: as the data set has
  std::int64_t image_size = 0;  ///< that the model sees; 0: as trained, or as the data set has
  std::string dataset;          ///< as trained when empty
  std::string data_dir;
  std::int64_t val_samples = 0;  ///< the first N test images; 0: all
  std::string device = "cpu";    ///< cpu | cuda | cuda:N
  int threads = 0;               ///< 0: all cores
  std::string precision = "fp32";
  bool views = false;  ///< EvaluationOptions::views
};

/// abtrain eval: prints loss, top-1 and top-5 of a saved model over the test images.
int run_eval(const EvalConfig& config);

/// abtrain inspect: draws what a safetensors file (or the model of a run folder) holds: per layer its shape,
/// the rank r of its factors, its share of the parameters and its leading singular values. Throws Error(checkpoint)
/// for a file that cannot be read.
int run_inspect(const std::string& file_or_folder);

/// The text of abtrain inspect, `width` columns wide.
std::string inspect_text(const std::string& file, int width);

struct ExportConfig {
  std::string model_file;             ///< model.safetensors, or the run folder that holds it
  std::string names = "torchvision";  ///< torchvision | timm
  std::string factors = "merged";     ///< merged | ab: factored weights as W, or as their factors
  std::string out;                    ///< when empty: NAME_timm.safetensors beside NAME.safetensors
};

/// abtrain export: writes a model of ours under the names of a PyTorch library.
int run_export(const ExportConfig& config);

struct CompareConfig {
  std::vector<std::string> folders;
  std::string report;  ///< HTML file to write, or empty
};

/// abtrain compare: the table of comparison.h in the terminal and, on request, the page of report.h.
int run_compare(const CompareConfig& config);

/// The command line of abtrain data.
struct DataCommand {
  std::string action;                ///< pack | verify | index | bench
  std::vector<std::string> folders;  ///< FROM and TO of pack, else one
  PackOptions pack{.threads = 0};    ///< 0: all cores
};

/// abtrain data, of ImageNet: packs its images into archives (pack.h); decodes each whole and prints a line for each that is bad,
/// with exit code 3 if any is; writes the indexes that its archives lack; or tells how many images a second training would get.
int run_data(const DataCommand& command);

/// The flags of abtrain plan beside the settings of a run.
struct PlanCommand {
  PlanOptions options;
  std::string out;       ///< JSON file; empty: none
  bool compare = false;  ///< all methods instead of one
};

/// abtrain plan: prints what a run will send, hold and wait for. `flags` and `config_file` as for resolve_train_config().
int run_plan(const std::vector<FlagValue>& flags, const std::string& config_file, PlanCommand command);

/// The command line of abtrain reproduce.
struct ReproduceCommand {
  std::string experiment;  ///< a name of experiments(), or "all"; empty: list them
  bool list = false;
  bool dry_run = false;    ///< plan only
  bool verbose = false;    ///< of all: tables too
  std::string out;         ///< folder; runs/reproduce/NAME when not given and something is trained
  bool overwrite = false;  ///< train anew what the folder has already
  Adjustments adjustments;
  RankChoice ranks;
};

/// abtrain reproduce: trains an experiment of the paper twice, dense and by AB-training, into OUT/dense and
/// OUT/ab (runs that are there already are kept, unfinished ones go on at their checkpoint), or only plans
/// it; prints what the paper published beside it, and writes that to OUT/reproduce.md.
int run_reproduce(const ReproduceCommand& command);

// The command line as shells and manuals know it; `app` shows all settings in its help.

/// abtrain --completion: a script for bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell);
/// abtrain --man: the manual page, in roff.
std::string man_page(const CLI::App& app);

// The words and the exit code of a failure.

/// Prints "abtrain: <context><what happened>" as one line of stderr, whatever the message contains, and returns the exit
/// code that belongs to the error: one that is documented, whoever threw it.
int report_error(const std::exception& error, const std::string& context = "");

/// From now on also what no handler catches, and the end that a library gives to the program (exit code 1), is reported so.
void report_what_escapes();

// The files that --out FILE may replace, for every command that writes a file where its user says.

/// A kind of file that a command writes.
struct OutKind {
  const char* what;                                 ///< "a plan"
  const char* ending;                               ///< of its name: ".json"
  bool (*wrote_one)(const std::string& file_name);  ///< whether the file holds one, by abtrain
};

extern const OutKind kReportPage, kPlanFile, kModelExport, kPaperTable;

/// The file that `--out out` stands for, links followed. Throws Error(config), and leaves everything as it is, unless that is
/// free, empty or a file of the same kind by abtrain, and neither one of `inputs`, which the command reads, nor of a run.
std::string out_file(const std::string& out, const OutKind& kind, const std::vector<std::string>& inputs = {});

}  // namespace ab

// SPDX-License-Identifier: MIT
#include "apps/paper/reproduce_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "apps/report/terminal.h"

namespace ab {
namespace {

std::string ratio(double compression) { return fmt::format("{:.2f} : 1", compression); }

std::string points(double difference) { return fmt::format("{:+.2f} points", 100 * difference); }

/// The rows of the table: a name, what the paper published, and one cell for every planned and trained
/// column.
class ReportTable {
 public:
  explicit ReportTable(const Reproduction& r) : r_(r), table_(headings(r)) {}

  void add(const std::string& name, const std::string& published,
           const std::function<std::string(const TrafficFigures&)>& cell) {
    std::vector<std::string> cells{name, published};
    for (const PlannedTraffic& planned : r_.planned) cells.push_back(cell(planned.figures));
    if (r_.trained) cells.push_back(cell(traffic_figures(r_.trained->ab, r_.trained->dense)));
    table_.add(std::move(cells));
  }
  /// Figures that no plan can tell.
  void add_trained(const std::string& name, const std::string& published, const std::string& trained) {
    std::vector<std::string> cells{name, published};
    cells.insert(cells.end(), r_.planned.size(), "-");
    if (r_.trained) cells.push_back(trained);
    table_.add(std::move(cells));
  }
  std::string markdown() const { return table_.markdown(); }

 private:
  static std::vector<std::string> headings(const Reproduction& r) {
    std::vector<std::string> words{"", "published"};
    for (const PlannedTraffic& planned : r.planned) words.push_back("planned, r/n " + rank_text(planned));
    if (r.trained) words.push_back("trained");
    return words;
  }

  const Reproduction& r_;
  TextTable table_;
};

void add_accuracy(const Reproduction& r, ReportTable& table) {
  const std::string published = r.experiment->has_top1_gain ? points(kPublishedTop1Gain) : "-";
  if (!r.trained) return table.add_trained("top-1, AB over dense", published, "");
  const double dense = r.trained->dense.final_val_top1, ab = r.trained->ab.final_val_top1;
  table.add_trained("top-1, dense", "-", percent(dense));
  table.add_trained("top-1, AB", "-", percent(ab));
  table.add_trained("top-1, AB over dense", published, points(ab - dense));
}

constexpr const char* kReportNotes =
    R"(Compression: numbers that the dense model stores : those of the model that the run leaves. Saved: against the same run
in dense data-parallel training with float32 gradients, bytes on the wire under ring algorithms, mean over ranks.
Without validations: groups rejoin for a validation, which the authors' release does not. Low-rank steps alone: bytes
of a low-rank step against those of a dense one. r/n: of every weight that is split; measured: of a run's last split,
taken for all of them (in brackets: the median over weights).
)";
constexpr const char* kTrafficNote =
    R"(The published saving is the mean over all ImageNet runs; what it counts is not known, so it stands beside each way
to count.
)";
constexpr const char* kTop1Note = "The published top-1 gain is ResNet-50's; at which batch size is not known.\n";

}  // namespace

std::string reproduce_report(const Reproduction& r) {
  ReportTable table(r);
  const Experiment& experiment = *r.experiment;
  table.add("compression", experiment.has_compression ? ratio(kPublishedCompression) : "-",
            [](const TrafficFigures& f) { return ratio(f.compression); });
  add_accuracy(r, table);
  table.add("low-rank steps", "-", [](const TrafficFigures& f) { return percent(f.low_rank_steps); });
  for (const TrafficDefinition& definition : kTrafficDefinitions)
    table.add(fmt::format("saved, {}", definition.name), experiment.has_traffic ? percent(kPublishedTraffic) : "-",
              [&](const TrafficFigures& f) { return percent(f.*definition.saved); });
  std::string text = fmt::format("# {}\n\n{}.\n", experiment.name, experiment.title);
  if (!r.changes.empty()) text += fmt::format("Changed from the paper's experiment: {}.\n", r.changes);
  text += fmt::format("\n{}\n{}", table.markdown(), kReportNotes);
  if (experiment.has_traffic) text += kTrafficNote;
  if (experiment.has_top1_gain) text += kTop1Note;
  return text;
}

}  // namespace ab

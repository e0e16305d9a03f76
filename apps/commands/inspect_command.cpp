// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <optional>

#include "ablowrank/factorise.h"
#include "apps/model_file/stored_factors.h"
#include "apps/model_file/torch_layout.h"
#include "apps/report/terminal.h"
#include "apps/train/run_folder.h"
#include "engine/core/threads.h"
#include "engine/io/safetensors.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

constexpr int kSpectrumBars = 12;

/// A matrix or convolution of the file: one tensor, or two factors and perhaps a rest (stored_factors.h).
struct StoredLayer {
  std::string name;
  FactoredShape of;
  std::int64_t parameters = 0;
  std::optional<std::int64_t> r;  ///< of the factors
  std::vector<double> sigma;      ///< of W2; empty where that holds NaN or infinity
};

/// W [O, I, kh, kw] as (O·kh) × (I·kw).
Tensor spatial_matrix(const Tensor& w) {
  const std::int64_t inputs = w.dim(1), height = w.dim(2), width = w.dim(3);
  const Tensor matrix({w.dim(0) * height, inputs * width}, DType::float32);
  const Tensor from = in_float32(w);
  for (std::int64_t i = 0; i < w.numel(); ++i) {
    const std::int64_t x = i % width, y = i / width % height, in = i / (width * height) % inputs;
    const std::int64_t out = i / (width * height * inputs);
    matrix.data<float>()[((out * height + y) * inputs + in) * width + x] = from.data<float>()[i];
  }
  return matrix;
}

Tensor matrix_of(const Tensor& w, const FactoredShape& of) {
  return of.spatial ? spatial_matrix(w) : in_float32(w).view({of.rows(), of.columns()});
}

std::vector<double> singular_values(const Tensor& w2) {
  try {
    return decompose(w2, nullptr).sigma.to_doubles();
  } catch (const Error& problem) {
    if (problem.kind() != ErrorKind::numerics) throw;
    return {};
  }
}

/// The layer that the factors of a weight and its rest make up.
StoredLayer factored_layer(const TensorFile& content, const std::string& name, const FactoredShape& of) {
  const Tensor a = in_float32(*content.find(name + ".a")), b = in_float32(*content.find(name + ".b"));
  const Tensor* rest = content.find(name + ".rest");
  const bool has_rest = rest && rest->shape() == of.shape;
  const Tensor product_of_both = of.rows() >= of.columns() ? product(a, b) : product(transposed(b), transposed(a));
  const Tensor w2 = has_rest ? add(product_of_both, matrix_of(*rest, of)) : product_of_both;
  return {name, of, a.numel() + b.numel() + (has_rest ? rest->numel() : 0), a.dim(1), singular_values(w2)};
}

/// The layers of a file in its order, and how many parameters lie in everything else.
std::vector<StoredLayer> layers_of(const TensorFile& content, const std::string& file, std::int64_t& other_parameters) {
  const FactoredWeights factored = factored_weights(content, file);
  std::vector<StoredLayer> layers;
  other_parameters = 0;
  for (const auto& [name, value] : content.tensors) {
    if (!is_floating(value.dtype())) continue;  // indices and counts are no parameters
    const std::size_t dot = std::min(name.rfind('.'), name.size());
    const std::string last = name.substr(dot);
    const auto weight = factored.find(name.substr(0, dot));
    if (weight != factored.end() && (last == ".a" || last == ".b" || last == ".rest")) {
      if (last == ".a") layers.push_back(factored_layer(content, weight->first, weight->second));
    } else if (value.rank() >= 2 && value.numel() > 0) {
      const FactoredShape of{value.shape()};
      layers.push_back({name, of, value.numel(), {}, singular_values(matrix_of(value, of))});
    } else {
      other_parameters += value.numel();
    }
  }
  return layers;
}

std::string shape_text(const Shape& shape) { return fmt::format("{}", fmt::join(shape.begin(), shape.end(), "×")); }

/// Sampled over the whole spectrum, so that bars of two layers are comparable and the tail shows.
std::string spectrum_bars(const std::vector<double>& sigma) {
  if (sigma.empty()) return "not finite";
  std::vector<double> sampled;
  const std::size_t bars = std::min<std::size_t>(kSpectrumBars, sigma.size());
  for (std::size_t i = 0; i < bars; ++i) sampled.push_back(sigma[bars < 2 ? 0 : i * (sigma.size() - 1) / (bars - 1)]);
  return spark_bars(sampled);
}

/// "13 of 64": the fewest singular values that hold 99 % of the sum of all their squares.
std::string directions_held(const std::vector<double>& sigma) {
  if (sigma.empty()) return "-";
  double all = 0, held = 0;
  for (const double s : sigma) all += s * s;
  std::size_t count = 0;
  while (count < sigma.size() && held < 0.99 * all) held += sigma[count] * sigma[count], ++count;
  return fmt::format("{} of {}", count, sigma.size());
}

}  // namespace

std::string inspect_text(const std::string& file, int width) {
  const TensorFile content = read_safetensors(file);
  std::int64_t other = 0;
  const std::vector<StoredLayer> layers = layers_of(content, file, other);
  std::int64_t stored = other, full = other, largest = 1;
  for (const StoredLayer& layer : layers) {
    stored += layer.parameters;
    full += layer.of.shape.numel();
    largest = std::max(largest, layer.parameters);
  }

  std::string text = shorten(without_controls(file), width) + "\n";
  for (const auto& [key, value] : content.metadata)
    if (!value.empty() && key != "factored" && key != "spatial")
      text += fmt::format("{}{} {}", text.ends_with('\n') ? "" : " · ", without_controls(key), without_controls(value));
  if (!text.ends_with('\n')) text += '\n';
  text += '\n';

  const int name_width = std::clamp(width - 76, 20, 48);
  TextTable table({"layer", "shape", "r", "params", "share", "", "singular values", "99 % of Σσ² in"}, {1, 5, 6});
  for (const StoredLayer& layer : layers) {
    const double share = static_cast<double>(layer.parameters) / static_cast<double>(std::max<std::int64_t>(1, stored));
    const std::int64_t n = std::min(layer.of.rows(), layer.of.columns());
    table.add({shorten(without_controls(short_name(layer.name)), name_width), shape_text(layer.of.shape),
               layer.r ? fmt::format("{}/{}", *layer.r, n) : std::string("full"),
               human_count(static_cast<double>(layer.parameters)), fmt::format("{:.1f} %", 100 * share),
               bar(static_cast<double>(layer.parameters) / static_cast<double>(largest), 5), spectrum_bars(layer.sigma),
               directions_held(layer.sigma)});
  }
  text += table.str();
  text += fmt::format(
      "\n{} parameters in {}, {} in vectors and statistics", human_count(static_cast<double>(stored - other)),
      counted(static_cast<std::int64_t>(layers.size()), "layer"), human_count(static_cast<double>(other)));
  if (std::ranges::any_of(layers, [](const StoredLayer& layer) { return layer.r.has_value(); }))
    text += fmt::format("; at full rank {}: compressed {:.2f} : 1", human_count(static_cast<double>(full)),
                        static_cast<double>(full) / static_cast<double>(stored));
  for (const UnreadTensor& tensor : content.unread)
    text += fmt::format("\nnot read: {} {}", without_controls(tensor.name), tensor.reason);
  return text + "\n";
}

std::string cut_text(const SplitMetrics& cut, int width) {
  if (std::ranges::all_of(cut.sensitivity, [](const LayerSensitivity& w) { return w.by_loss.empty(); })) return "";
  const int name_width = std::clamp(width - 76, 20, 48);
  TextTable table({"layer", "m×n", "r", "kept", "loss rises by", "loss holds, by directions", "weight holds"}, {5, 6});
  for (std::size_t i = 0; i < cut.layers.size(); ++i) {
    const LayerRank& layer = cut.layers[i];
    const LayerSensitivity& sensitivity = cut.sensitivity[i];
    const bool factored = layer.r < layer.n;
    // The gain of the first sixteenth, the second, …
    const auto bars = [](const std::vector<double>& shares) {
      std::vector<double> parts;
      for (std::size_t k = 1; k < shares.size(); ++k) parts.push_back(shares[k] - shares[k - 1]);
      return spark_bars(parts);
    };
    table.add({shorten(without_controls(short_name(layer.name)), name_width), fmt::format("{}×{}", layer.m, layer.n),
               factored ? std::to_string(layer.r) : "full", factored ? percent(sensitivity.kept) : "-",
               factored ? fmt::format("{:.2g}", sensitivity.increase) : "-", bars(sensitivity.by_loss),
               bars(sensitivity.by_sigma)});
  }
  double kept = 0;
  for (const LayerSensitivity& sensitivity : cut.sensitivity)
    kept += sensitivity.kept / static_cast<double>(cut.sensitivity.size());
  return fmt::format(
      "\nthe cut after step {}: what a loss of directions was expected to cost, by the outputs and gradients "
      "of the steps before\n\n{}\nkept in the mean over layers: {}\n",
      cut.step, table.str(), percent(kept));
}

Command inspect_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("inspect", "layers, ranks and singular values of a safetensors file");
  const auto path = std::make_shared<std::string>();
  add_path(parser, "file", *path, "model.safetensors, or the run folder that holds it")->required();
  return {parser, [path] {
            start_compute_threads();
            print_text(inspect_text(model_path(*path), terminal_width()));
            std::error_code ignored;
            if (std::filesystem::exists(in_folder(*path, kSummaryFile), ignored) &&
                std::filesystem::exists(in_folder(*path, kMetricsFile), ignored))
              for (const SplitMetrics& cut : read_run(*path).splits) print_text(cut_text(cut, terminal_width()));
            return 0;
          }};
}

}  // namespace ab

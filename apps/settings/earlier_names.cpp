// SPDX-License-Identifier: MIT
#include "apps/settings/earlier_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ab {
namespace {

struct Earlier {
  std::string_view key;         ///< "ab.svd"; of a setting that several methods had: ".preset"
  std::string_view advice;      ///< ends the sentence that the setting begins
  std::string_view value = {};  ///< the one that is meant; empty: all
};

/// Method ab had the late cut, until it became a method of its own: what was said, and how it says it.
constexpr Earlier kOfLateCut[] = {
    {"ab.train", "*"},
    {"ab.directions", "*"},
    {"ab.cut_at", "at"},
    {"ab.cut_keep", "keep"},
    {"ab.loss_share", "keep"},
    {"ab.budget", "keep"},
    {"ab.gather_steps", "gather-steps"},
    {"ab.conv_factors", "conv-factors"},
    {"ab.full_rank_method", "full-rank-method"},
    {"ab.low_rank_method", "low-rank-method"},
    {"ab.rank_policy", "rank-policy", "loss-share"},
    {"ab.rank_policy", "rank-policy", "loss-budget"},
    {"ab.preset", "*", "nodes"},
    {"ab.preset", "*", "groups"},
};

constexpr Earlier kEarlier[] = {
    {"late_cut", "spelt late-cut"},
    {".preset", "--preset (preset, before all tables) for the method of the run"},
    {"ab.warmup_steps", "--ab.first-split"},
    {"daso.warmup_epochs", "--daso.blocking-epochs"},
    {"local.every_step_until", "--dense-steps"},
    {".warmup_steps", "--dense-steps, one for all methods"},
    {".dense_steps", "--dense-steps, one for all methods"},
    {".execution", "--execution, one for all methods"},
    {".rank_multiple", "--rank-multiple, one for all methods"},
    {"powersgd.ratio", "--powersgd.rank with a share below 1"},
    {"acpsgd.ratio", "--acpsgd.rank with a share below 1"},
    {"ab.rank_policy", "gone: --ab.ratio keeps a share of all singular values; at 0 --ab.sigma-cutoff chooses"},
    {"ab.energy", "gone: give --ab.ratio or --ab.sigma-cutoff"},
    {"ab.fixed_rank", "gone: give --ab.ratio or --ab.sigma-cutoff"},
    {"ab.setup", "gone: ranks of a group average their gradients; --ab.group-size 1 leaves each to itself"},
    {"ab.svd", "gone: singular values come from the Gram matrix always"},
    {"daso.decide", "gone: with --daso.stability 1 no loss counts as falling, as by the clock"},
    {"daso.node_size", "gone: --ranks-per-node tells how many ranks a node has"},
    {"hitopk.node_size", "gone: --ranks-per-node tells how many ranks a node has"},
    {"artopk.adapt", "gone: with --artopk.least-ratio above 0 the ratio adapts"},
    {"beta1", "--betas, a list of both: 0.9,0.999"},
    {"beta2", "--betas, a list of both: 0.9,0.999"},
    {"skip_damaged", "--on-bad-image skip"},
    {"rand_augment_magnitude", "the second number of --rand-augment: 2,9"},
    {"zero_init_residual", "gone: start from a model that was made so with --weights"},
    {"ranks_from", "--factors-from"},
    {"variant", "gone: give the settings of the variant one by one"},
};

/// Whether `earlier` names the setting `key`, or the table that it is in.
bool is_meant(const Earlier& earlier, std::string_view key, std::string_view value) {
  const bool names = earlier.key.starts_with(".")
                         ? key.find('.') == key.size() - earlier.key.size() && key.ends_with(earlier.key)
                         : key == earlier.key || key.substr(0, key.find('.')) == earlier.key;
  return names && (earlier.value.empty() || earlier.value == value);
}

}  // namespace

std::string earlier_name(const std::string& where, const std::string& key, const std::string& value) {
  const auto meant = [&](const Earlier& earlier) { return is_meant(earlier, key, value); };
  if (const auto* at = std::ranges::find_if(kOfLateCut, meant); at != std::end(kOfLateCut))
    return fmt::format(
        "{}{}{}: --method ab is AB-training by groups alone now, which needs no such setting; the late cut is --method "
        "late-cut with --{}",
        where, value.empty() ? "" : " ", value,
        at->key == "ab.preset" ? "preset nodes" : fmt::format("late-cut.{}", at->advice));
  if (const auto* at = std::ranges::find_if(kEarlier, meant); at != std::end(kEarlier))
    return fmt::format("{} is {}{}", where, at->advice.starts_with("gone") ? "" : "now ", at->advice);
  return "";
}

}  // namespace ab

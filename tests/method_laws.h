#pragma once
// SPDX-License-Identifier: MIT
//
// The small runs in which the laws of tests/train/strategy_laws_test.cpp and the faults of method_fault_test.cpp meet every
// kind of step of every method. A method of apps/methods without a row here fails a test.

#include <vector>

namespace ab::test {

/// Settings are in TOML, those of all runs and of the method alike.
struct MethodLaws {
  const char* method;
  const char* variant = "";  ///< in names of tests, where a method has several ways to train
  /// Its own settings for a run of 13 steps in which every kind of step occurs.
  const char* small = "";
  /// Those kinds, and whatever else it exchanges apart: phases of the ledger.
  std::vector<const char*> phases{};
  /// Settings that make it data-parallel training; nullptr: there are none, and a test of its own names another anchor.
  const char* lossless = nullptr;
  /// The lossless run has the bits of the dense one; else it agrees within rounding.
  bool lossless_to_the_bit = true;
  /// Settings that three ranks cannot train with; nullptr: every world can be used.
  const char* unusable_by_three = nullptr;
};

inline const std::vector<MethodLaws>& method_laws() {
  static const std::vector<MethodLaws> all = {
      {.method = "dense", .phases = {"full"}, .lossless = ""},
      {.method = "local",
       .small = "average_every = 2\nqsr_alpha = 0.03\nnode_size = 0",
       .phases = {"local", "average"},
       .lossless = "average_every = 1",
       .lossless_to_the_bit = false,
       .unusable_by_three = "node_size = 4"},
      {.method = "diloco",
       .small = "inner_steps = 4\nfragments = 2\noverlap_steps = 1\nmixing = 0.5",
       .phases = {"inner", "outer"},
       .lossless = "inner_steps = 1\nouter_lr = 1\nouter_momentum = 0",
       .lossless_to_the_bit = false},
      {.method = "sparseloco",
       .small = "inner_steps = 4\ntopk = 9\nbeta = 0.8",
       .phases = {"inner", "outer"},
       .lossless = "inner_steps = 1\ntopk = 4096\nbits = 32",
       .lossless_to_the_bit = false},
      {.method = "daso",
       .small = "cooldown_epochs = 0\nstart_skips = 2\npatience = 0\nstability = 1",
       .phases = {"blocking", "cycling", "average"},
       .lossless = "blocking_epochs = 1000000",
       .lossless_to_the_bit = false},
      {.method = "powersgd",
       .small = "rank = 2\ndense_steps = 3",
       .phases = {"warmup", "compressed"},
       .lossless = "dense_steps = 1000000"},
      {.method = "acpsgd",
       .small = "rank = 2\ndense_steps = 3\nbucket_mb = 0.02",
       .phases = {"warmup", "compressed"},
       .lossless = "dense_steps = 1000000"},
      {.method = "dion", .small = "rank = 0.25", .phases = {"compressed"}},
      {.method = "demo", .small = "topk = 5", .phases = {"compressed"}},
      {.method = "mstopk",
       .small = "density = 0.1\ndense_steps = 3",
       .phases = {"warmup", "compressed"},
       .lossless = "density = 1\ndense_steps = 0",
       .lossless_to_the_bit = false},
      {.method = "hitopk",
       .small = "density = 0.1\ndense_steps = 3",
       .phases = {"warmup", "compressed"},
       .lossless = "density = 1\ndense_steps = 0",
       .lossless_to_the_bit = false},
      {.method = "scalecom",
       .small = "rate = 20\nrates = [\"layer3=300\"]\nbeta = 0.5\ndense_steps = 3",
       .phases = {"warmup", "compressed"},
       .lossless = "rate = 1\ndense_steps = 0"},
      {.method = "artopk",
       .small = "ratio = 0.1\ndense_steps = 3",
       .phases = {"warmup", "compressed"},
       .lossless = "ratio = 1\ndense_steps = 0"},
      {.method = "int8", .small = "block = 16\nbucket_mb = 0.02", .phases = {"full"}},
      {.method = "ab",
       .small = "first_split = 2\ncycle_steps = 5\nfull_rank_steps = 2\nlr_rebound_steps = 1",
       .phases = {"warmup", "split", "low-rank", "sync", "rebound"},
       .lossless = "first_split = 1000000",
       .unusable_by_three = "group_size = 4"},
      {.method = "late-cut",
       .variant = "acpsgd",
       .small = "at = [0.4, 0.7]\nkeep = [0.4, 0.2]\nrank_policy = \"ratio\"\n"
                "gather_steps = 2\nfull_rank_method = \"acpsgd\"\nlow_rank_method = \"acpsgd\"",
       .phases = {"warmup", "compressed", "split", "low-rank-1", "low-rank-2"},
       .lossless = "at = []\nfull_rank_method = \"dense\""},
      {.method = "late-cut",
       .variant = "sparse",
       .small = "at = [0.4]\nrank_policy = \"ratio\"\nkeep = [0.3]\ngather_steps = 3\n"
                "full_rank_method = \"dense\"\nlow_rank_method = \"scalecom\"",
       .phases = {"full", "split", "low-rank"}},
      {.method = "late-cut",
       .variant = "local",
       .small = "at = [0.4, 0.7]\nkeep = [0.75, 0.5]\nrank_policy = \"ratio\"\ngather_steps = 3\n"
                "conv_factors = \"channel\"\nfull_rank_method = \"local\"\nlow_rank_method = \"local\"",
       .phases = {"local", "average", "split", "low-rank-1", "low-rank-2"}},
      {.method = "late-cut",
       .variant = "dense",
       .small = "at = [0.4]\nrank_policy = \"ratio\"\nkeep = [0.25]\nlow_rank_method = \"dense\"",
       .phases = {"warmup", "compressed", "split", "low-rank"}},
  };
  return all;
}

}  // namespace ab::test

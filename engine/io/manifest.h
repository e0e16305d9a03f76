#pragma once
// SPDX-License-Identifier: MIT
//
// manifest.json, the table of contents of a checkpoint: which tensor with which bits belongs to which ranks,
// and whose shard holds it. One tensor a line:
//   {"format":"abtrain checkpoint","version":1,"step":1200,"world_size":2,
//    "values":["<hash of rank 0's values>","<hash of rank 1's>"],
//    "tensors":[
//     {"dtype":"float32","hash":"…","name":"conv1.weight","ranks":[0,1],"shape":[16,3,3,3]}
//    ],
//    "hash":"<hash of all text before this line>"}
// Hashes are XXH3-128. The lowest of a tensor's ranks writes it, the others read it from there, so replicas
// are stored once. A manifest comes from anywhere: it is accepted only when the text is, to the byte, the one that this
// file writes for it, which covers its hash, fields twice, and unknown fields.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/io/state_dict.h"

namespace ab {

/// A tensor of one or more ranks that is equal in name, type, shape and bits on all of them.
struct StoredTensor {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::string hash;        ///< of the bytes in host memory
  std::vector<int> ranks;  ///< ascending, at least one; the first one's shard holds the tensor

  int shard() const { return ranks.front(); }
};

struct Manifest {
  static constexpr std::int64_t kVersion = 1;
  static constexpr std::uint64_t kMaxBytes = 256u << 20;

  std::int64_t step = 0;
  std::vector<std::string> values;    ///< hash of each rank's values; as many as ranks saved
  std::vector<StoredTensor> tensors;  ///< ordered by name; no rank has a name twice

  int world_size() const { return static_cast<int>(values.size()); }
};

/// Hash of a rank's values.
std::string hash_of(const std::map<std::string, std::string>& values);
/// Hash of a tensor's bytes, which may be on any device.
std::string hash_of(const Tensor& tensor);

/// The manifest of a world of this one rank.
Manifest describe(std::int64_t step, const StateDict& state);

/// From the manifests that describe() gave on every rank, in rank order, that of the world: what is equal on
/// several ranks becomes one tensor. Throws Error(checkpoint) when the ranks are at different steps.
Manifest merge(const std::vector<Manifest>& of_ranks);

std::string to_json(const Manifest& manifest);
/// `file` names the text in errors. Throws Error(checkpoint) for anything that to_json() does not write, in
/// time and memory proportional to the text.
Manifest parse_manifest(const std::string& text, const std::string& file);

}  // namespace ab

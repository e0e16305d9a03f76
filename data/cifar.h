#pragma once
// SPDX-License-Identifier: MIT
//
// CIFAR-10 and CIFAR-100 in their binary versions (Krizhevsky, "Learning multiple layers of features from tiny images",
// 2009).

#include <string>

#include "data/dataset.h"

namespace ab {

struct ImageSets {
  ImageSet train, test;
};

/// CIFAR-10: data_batch_1..5.bin and test_batch.bin of 1 + 3072 bytes a record, in `folder`.
/// Throws Error(data) naming the file when one is missing, truncated, or holds a label out of range.
ImageSets load_cifar10(const std::string& folder);
/// CIFAR-100: train.bin and test.bin of 2 + 3072 bytes a record (coarse label, fine label).
ImageSets load_cifar100(const std::string& folder);

}  // namespace ab

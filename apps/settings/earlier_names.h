#pragma once
// SPDX-License-Identifier: MIT

#include <string>

namespace ab {

/// The sentence about a setting, or about a word of one, that an earlier version had; empty for any other. `where` begins
/// it: "--ab.cut-at", "run.toml:3: ab.cut_at". `key`: "ab.cut_at". `value`: what it was given, as text.
std::string earlier_name(const std::string& where, const std::string& key, const std::string& value = "");

}  // namespace ab

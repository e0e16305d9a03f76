#pragma once
// SPDX-License-Identifier: MIT

#include <exception>

#include "engine/core/check.h"

namespace ab {

/// What failed, as an error of ours: what the standard library or another one threw (memory, threads, files) becomes one
/// sentence with what to do, and gets the kind that belongs to it.
Error in_our_words(const std::exception& error);

/// Of a path that was not found: what lies behind it, as " (it is a link to …, which is not there)"; empty where nothing does.
std::string why_missing(const std::string& path);

}  // namespace ab

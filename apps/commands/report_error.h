#pragma once
// SPDX-License-Identifier: MIT
//
// What the program says and returns when something fails.

#include <exception>
#include <string>

namespace ab {

/// Prints "abtrain: <context><what happened>" as one line of stderr, whatever the message contains, and returns the exit
/// code that belongs to the error.
int report_error(const std::exception& error, const std::string& context = "");

}  // namespace ab

#pragma once
// SPDX-License-Identifier: MIT
//
// What the program says and returns when something fails.

#include <exception>
#include <string>

namespace ab {

/// Prints "abtrain: <context><what happened>" as one line of stderr, whatever the message contains, and returns the exit
/// code that belongs to the error: one that is documented, whoever threw it.
int report_error(const std::exception& error, const std::string& context = "");

/// From now on also what no handler catches, and the end that a library gives to the program (exit code 1), is reported so.
void report_what_escapes();

}  // namespace ab

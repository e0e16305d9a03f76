#pragma once
// SPDX-License-Identifier: MIT
//
// Errors. A wrong argument, file or peer throws ab::Error, whose kind is the exit code that the program
// ends with; a broken promise of our own code throws ab::Bug. Libraries never exit and never print.
//
//   AB_CHECK(w.dim(1) == x.dim(1), "linear: x {} does not fit w {}", x.shape().str(), w.shape().str());
//   AB_CHECK_KIND(data, file, "cannot open {}", path);

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace ab {

/// The kind of an error, numbered as the exit codes of the program.
enum class ErrorKind : int {
  config = 2,         ///< flags, configuration, shapes and arguments of a call
  data = 3,           ///< a data set that is missing, truncated or inconsistent
  checkpoint = 4,     ///< a model file or checkpoint that cannot be read or written
  numerics = 5,       ///< NaN or infinity where training cannot go on
  communication = 6,  ///< a peer, the transport between ranks, or the device
};

/// The one exception that user-visible failures are reported with; what() is one clear sentence.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// A violated invariant of abtrain itself.
class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

}  // namespace ab

/// Throws ab::Error of the named kind with a formatted message unless `condition` holds. Always compiled in.
#define AB_CHECK_KIND(kind_name, condition, ...)                                 \
  do {                                                                           \
    if (!(condition)) [[unlikely]]                                               \
      throw ::ab::Error(::ab::ErrorKind::kind_name, ::fmt::format(__VA_ARGS__)); \
  } while (false)

/// AB_CHECK_KIND for arguments and shapes.
#define AB_CHECK(condition, ...) AB_CHECK_KIND(config, condition, __VA_ARGS__)

/// Throws ab::Bug with the place of the failed assertion.
#define AB_ASSERT(condition)                                                                        \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      throw ::ab::Bug(::fmt::format("bug in abtrain: {} ({}:{})", #condition, __FILE__, __LINE__)); \
  } while (false)

// SPDX-License-Identifier: MIT
#include "engine/io/state_dict.h"

#include <bit>
#include <charconv>

#include "engine/kernels/reduce.h"

namespace ab {
namespace {

/// The whole text as an integer of type T in the given base.
template <class T> T parse(const std::string& name, const std::string& text, int base) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value, base);
  AB_CHECK_KIND(checkpoint, problem == std::errc() && stop == end, "the checkpoint holds '{}' for {}, not a number",
                text, name);
  return value;
}

}  // namespace

void StateDict::put(const std::string& name, const Tensor& tensor) {
  AB_ASSERT(tensor.defined() && tensors_.emplace(name, tensor).second);
}

void StateDict::put(const std::string& name, std::string text) {
  AB_ASSERT(values_.emplace(name, std::move(text)).second);
}

void StateDict::put(const std::string& name, std::int64_t value) { put(name, std::to_string(value)); }

void StateDict::put(const std::string& name, double value) {
  put(name, fmt::format("{:016x}", std::bit_cast<std::uint64_t>(value)));
}

bool StateDict::has(const std::string& name) const { return tensors_.contains(name) || values_.contains(name); }

Tensor StateDict::tensor(const std::string& name) const {
  const auto at = tensors_.find(name);
  AB_CHECK_KIND(checkpoint, at != tensors_.end(), "the checkpoint lacks the tensor {}", name);
  return at->second;
}

const std::string& StateDict::text(const std::string& name) const {
  const auto at = values_.find(name);
  AB_CHECK_KIND(checkpoint, at != values_.end(), "the checkpoint lacks the value {}", name);
  return at->second;
}

std::int64_t StateDict::integer(const std::string& name) const { return parse<std::int64_t>(name, text(name), 10); }

double StateDict::number(const std::string& name) const {
  return std::bit_cast<double>(parse<std::uint64_t>(name, text(name), 16));
}

void check_finite(const StateDict& state) {
  for (const auto& [name, tensor] : state.tensors()) {
    const bool whole_numbers = tensor.dtype() == DType::int64 || tensor.dtype() == DType::uint8;
    AB_CHECK_KIND(numerics, whole_numbers || all_finite(tensor), "{} holds NaN or infinity", name);
  }
}

}  // namespace ab

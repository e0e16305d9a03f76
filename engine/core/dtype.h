#pragma once
// SPDX-License-Identifier: MIT
//
// Element types, devices, and the step from a run-time DType to a C++ type.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/core/check.h"
#include "engine/core/host_device.h"

namespace ab {

/// Brain float: the upper half of a float32, rounded to nearest even. Arithmetic happens in float.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  AB_HD bfloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
                  : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  AB_HD operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

enum class DType : std::uint8_t { float32, bfloat16, float64, int64, uint8 };

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::float32: return 4;
    case DType::bfloat16: return 2;
    case DType::float64: return 8;
    case DType::int64: return 8;
    case DType::uint8: return 1;
  }
  return 0;
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::float32: return "float32";
    case DType::bfloat16: return "bfloat16";
    case DType::float64: return "float64";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
  }
  return "?";
}

template <class T> inline constexpr DType dtype_of = [] { static_assert(sizeof(T) == 0, "no DType for this type"); }();
template <> inline constexpr DType dtype_of<float> = DType::float32;
template <> inline constexpr DType dtype_of<bfloat16> = DType::bfloat16;
template <> inline constexpr DType dtype_of<double> = DType::float64;
template <> inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <> inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;

/// The type a kernel computes in: float for storage types up to 32 bits, double for double.
template <class T> struct Compute { using type = float; };
template <> struct Compute<double> { using type = double; };
template <class T> using compute_t = typename Compute<T>::type;

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

/// Calls f.template operator()<T>() with the floating-point type named by `t`.
template <class F> decltype(auto) dispatch_float(DType t, std::string_view operation, F&& f) {
  switch (t) {
    case DType::float32: return f.template operator()<float>();
    case DType::bfloat16: return f.template operator()<bfloat16>();
    case DType::float64: return f.template operator()<double>();
    default: throw Error(ErrorKind::config, fmt::format("{}: needs a floating-point tensor, got {}", operation, name_of(t)));
  }
}

}  // namespace ab

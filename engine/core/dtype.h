#pragma once
// SPDX-License-Identifier: MIT
//
// Element types, devices, and the step from a run-time DType to a C++ type.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/core/check.h"

/// Marks a function that is compiled for the host and, under nvcc, for the device as well.
#ifdef __CUDACC__
#define AB_HD __host__ __device__
#else
#define AB_HD
#endif

namespace ab {

/// Brain float: the upper half of a float32, rounded to nearest even. Arithmetic happens in float.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  AB_HD bfloat16(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    const auto u = std::bit_cast<std::uint32_t>(value);
    const bool is_nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = is_nan ? static_cast<std::uint16_t>((u >> 16) | 0x40u)
                  : static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
  }
  AB_HD operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};

/// IEEE half: 11 significant bits, values up to 65,504, rounded to nearest even. Arithmetic happens in float.
struct float16 {
  std::uint16_t bits;

  float16() = default;
  AB_HD float16(float value) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
#else
    bits = round(std::bit_cast<std::uint32_t>(value));
#endif
  }
  AB_HD operator float() const {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const std::uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
    std::uint32_t wide = (magnitude << 13) + (112u << 23);  // the difference of the two exponents' biases
    if (magnitude < 0x0400u)                                // subnormal: a multiple of 2^-24
      wide = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    if (magnitude >= 0x7c00u) wide |= 0x7f800000u;  // infinity, NaN
    return std::bit_cast<float>(sign | wide);
#endif
  }

 private:
  /// The half nearest to a float32, both as bits.
  static std::uint16_t round(std::uint32_t u) {
    const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    // The difference of the biases goes off the exponent, and the sum carries into it as rounding does.
    std::uint32_t half = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    if (magnitude < 0x38800000u)  // below 2^-14: a multiple of 2^-24, which is what float32 rounds to at 0.5
      half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    if (magnitude >= 0x477ff000u) half = 0x7c00u;  // from 65,520 on: infinity
    if (magnitude > 0x7f800000u) half = 0x7e00u;   // NaN
    return static_cast<std::uint16_t>(sign | half);
  }
};

enum class DType : std::uint8_t { float32, bfloat16, float16, float64, int64, uint8 };
inline constexpr int kDTypeCount = 6;

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::float32: return 4;
    case DType::bfloat16: return 2;
    case DType::float16: return 2;
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
    case DType::float16: return "float16";
    case DType::float64: return "float64";
    case DType::int64: return "int64";
    case DType::uint8: return "uint8";
  }
  return "?";
}

template <class T> inline constexpr DType dtype_of = [] { static_assert(sizeof(T) == 0, "no DType for this type"); }();
template <> inline constexpr DType dtype_of<float> = DType::float32;
template <> inline constexpr DType dtype_of<bfloat16> = DType::bfloat16;
template <> inline constexpr DType dtype_of<float16> = DType::float16;
template <> inline constexpr DType dtype_of<double> = DType::float64;
template <> inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <> inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;

/// The type a kernel computes in: float for floating-point types up to 32 bits; double and whole numbers as they are.
template <class T> struct Compute { using type = float; };
template <> struct Compute<double> { using type = double; };
template <> struct Compute<std::int64_t> { using type = std::int64_t; };
template <class T> using compute_t = typename Compute<T>::type;

/// shapes: a device without numbers, for rehearsals (engine/device/shapes/shapes.h).
enum class DeviceKind : std::uint8_t { cpu, cuda, shapes };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  /// Whether kernels take the forms and the memory that they take on a CPU: there, and on shapes that stand for one.
  constexpr bool is_like_cpu() const { return kind == DeviceKind::cpu || (kind == DeviceKind::shapes && index == 0); }
};

/// Calls f.template operator()<T>() with the floating-point type named by `t`.
template <class F> decltype(auto) dispatch_float(DType t, std::string_view operation, F&& f) {
  switch (t) {
    case DType::float32: return f.template operator()<float>();
    case DType::bfloat16: return f.template operator()<bfloat16>();
    case DType::float16: return f.template operator()<float16>();
    case DType::float64: return f.template operator()<double>();
    default:
      throw Error(ErrorKind::config, fmt::format("{}: needs a floating-point tensor, got {}", operation, name_of(t)));
  }
}

}  // namespace ab

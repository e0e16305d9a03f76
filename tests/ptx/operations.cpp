// SPDX-License-Identifier: MIT
//
// Compiled without contraction and with rounding modes respected (CMakeLists.txt): a GPU rounds each of these once.
#include "tests/ptx/operations.h"

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <type_traits>

namespace ptx {
namespace {

using std::uint32_t, std::uint64_t;
using Words = std::vector<std::string>;

template <class T> T get(const Slot* slots, int slot) {
  if constexpr (std::is_same_v<T, float>) return std::bit_cast<float>(static_cast<uint32_t>(slots[slot]));
  else if constexpr (std::is_same_v<T, double>) return std::bit_cast<double>(slots[slot]);
  else return static_cast<T>(slots[slot]);
}
template <class T> void put(Slot* slots, int slot, T value) {
  if constexpr (std::is_same_v<T, float>) slots[slot] = std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>) slots[slot] = std::bit_cast<uint64_t>(value);
  else if constexpr (std::is_same_v<T, bool>) slots[slot] = value;
  else slots[slot] = static_cast<std::make_unsigned_t<T>>(value);
}

/// f of as many sources of type T as it takes, as an R.
template <class T, auto f, class R = T> void apply(const Instruction& i, Slot* s) {
  const T a = get<T>(s, i.from[0]);
  if constexpr (std::is_invocable_v<decltype(f), T>) {
    put(s, i.to, static_cast<R>(f(a)));
  } else {
    const T b = get<T>(s, i.from[1]);
    if constexpr (std::is_invocable_v<decltype(f), T, T>) put(s, i.to, static_cast<R>(f(a, b)));
    else put(s, i.to, static_cast<R>(f(a, b, get<R>(s, i.from[2]))));
  }
}

template <class F> Operation with_type(std::string_view type, const F& f) {
  if (type == "pred") return f(bool{});
  if (type == "u8" || type == "b8") return f(std::uint8_t{});
  if (type == "s8") return f(std::int8_t{});
  if (type == "u16" || type == "b16") return f(std::uint16_t{});
  if (type == "s16") return f(std::int16_t{});
  if (type == "u32" || type == "b32") return f(uint32_t{});
  if (type == "s32") return f(std::int32_t{});
  if (type == "u64" || type == "b64") return f(uint64_t{});
  if (type == "s64") return f(std::int64_t{});
  if (type == "f32") return f(float{});
  if (type == "f64") return f(double{});
  return nullptr;
}

/// min and max are NaN only where both sources are.
template <class T> Operation float_arithmetic(const std::string& op) {
  if (op == "add") return apply<T, [](T a, T b) { return a + b; }>;
  if (op == "sub") return apply<T, [](T a, T b) { return a - b; }>;
  if (op == "mul") return apply<T, [](T a, T b) { return a * b; }>;
  if (op == "div") return apply<T, [](T a, T b) { return a / b; }>;
  if (op == "fma" || op == "mad") return apply<T, [](T a, T b, T c) { return std::fma(a, b, c); }>;
  if (op == "min") return apply<T, [](T a, T b) { return std::fmin(a, b); }>;
  if (op == "max") return apply<T, [](T a, T b) { return std::fmax(a, b); }>;
  if (op == "neg") return apply<T, [](T a) { return -a; }>;
  if (op == "abs") return apply<T, [](T a) { return std::fabs(a); }>;
  if (op == "sqrt") return apply<T, [](T a) { return std::sqrt(a); }>;
  if (op == "rcp") return apply<T, [](T a) { return T{1} / a; }>;
  if (op == "copysign") return apply<T, [](T a, T b) { return std::copysign(b, a); }>;
  return nullptr;
}

/// Sums and products of integers wrap, so they are those of 64 unsigned bits cut off.
template <class T> Operation integer_arithmetic(const std::string& op) {
  if (op == "add") return apply<T, [](uint64_t a, uint64_t b) { return a + b; }>;
  if (op == "sub") return apply<T, [](uint64_t a, uint64_t b) { return a - b; }>;
  if (op == "mul") return apply<T, [](uint64_t a, uint64_t b) { return a * b; }>;
  if (op == "mad") return apply<T, [](uint64_t a, uint64_t b, uint64_t c) { return a * b + c; }>;
  if (op == "neg") return apply<T, [](uint64_t a) { return 0 - a; }>;
  if (op == "abs") return apply<T, [](T a) { return a < T{0} ? 0 - static_cast<uint64_t>(a) : a; }>;
  if (op == "min") return apply<T, [](T a, T b) { return std::min(a, b); }>;
  if (op == "max") return apply<T, [](T a, T b) { return std::max(a, b); }>;
  if (op == "div")
    return apply<T, [](T a, T b) { return b == 0 ? ~uint64_t{0} : b == T(-1) && std::is_signed_v<T> ? 0 - a : a / b; }>;
  if (op == "rem") return apply<T, [](T a, T b) { return b == 0 ? a : b == T(-1) && std::is_signed_v<T> ? 0 : a % b; }>;
  return nullptr;
}

/// mul.wide and mad.wide: all bits of a product; mul.hi: its upper half.
template <class T, class Wide> Operation wide_product(const std::string& op, bool is_high) {
  constexpr int bits = 8 * sizeof(T);
  if (op == "mul" && is_high) return apply<T, [](T a, T b) { return (static_cast<Wide>(a) * b >> bits); }>;
  if constexpr (sizeof(Wide) <= 8) {
    if (op == "mul") return apply<T, [](T a, T b) { return static_cast<Wide>(a) * b; }, Wide>;
    if (op == "mad")
      return apply<T, [](T a, T b, Wide c) { return static_cast<uint64_t>(static_cast<Wide>(a) * b) + c; }, Wide>;
  }
  return nullptr;
}
Operation find_wide_product(const std::string& op, bool is_high, std::string_view type) {
  __extension__ using Signed = __int128;
  __extension__ using Unsigned = unsigned __int128;
  if (type == "s16") return wide_product<std::int16_t, std::int32_t>(op, is_high);
  if (type == "u16") return wide_product<std::uint16_t, uint32_t>(op, is_high);
  if (type == "s32") return wide_product<std::int32_t, std::int64_t>(op, is_high);
  if (type == "u32") return wide_product<uint32_t, uint64_t>(op, is_high);
  if (type == "s64") return wide_product<std::int64_t, Signed>(op, is_high);
  if (type == "u64") return wide_product<uint64_t, Unsigned>(op, is_high);
  return nullptr;
}

template <class T> Operation bitwise(const std::string& op) {
  if (op == "and") return apply<T, [](T a, T b) { return a & b; }>;
  if (op == "or") return apply<T, [](T a, T b) { return a | b; }>;
  if (op == "xor") return apply<T, [](T a, T b) { return a ^ b; }>;
  if (op == "not") {
    if constexpr (std::is_same_v<T, bool>) return apply<T, [](T a) { return !a; }>;
    else return apply<T, [](T a) { return ~a; }>;
  }
  return nullptr;
}

/// Distances are 32 bits wide, and from the type's width on nothing is left but the sign.
template <class T> Operation shift(const std::string& op) {
  constexpr uint32_t bits = 8 * sizeof(T);
  if (op == "shl")
    return [](const Instruction& i, Slot* s) {
      const auto by = get<uint32_t>(s, i.from[1]);
      put<T>(s, i.to, static_cast<T>(by < bits ? get<uint64_t>(s, i.from[0]) << by : 0));
    };
  return [](const Instruction& i, Slot* s) {
    const auto by = std::min(get<uint32_t>(s, i.from[1]), uint32_t{bits});
    const T a = get<T>(s, i.from[0]);
    put<T>(s, i.to, static_cast<T>(by < bits ? a >> by : a < T{0} ? -1 : 0));
  };
}

template <class T> Operation comparison(std::string_view relation) {
  if (relation == "eq") return apply<T, [](T a, T b) { return a == b; }, bool>;
  if (relation == "lt" || relation == "lo") return apply<T, [](T a, T b) { return a < b; }, bool>;
  if (relation == "le" || relation == "ls") return apply<T, [](T a, T b) { return a <= b; }, bool>;
  if (relation == "gt" || relation == "hi") return apply<T, [](T a, T b) { return (a > b); }, bool>;
  if (relation == "ge" || relation == "hs") return apply<T, [](T a, T b) { return a >= b; }, bool>;
  // Relations are false for NaN, unless they end in u.
  if (relation == "ne") return apply<T, [](T a, T b) { return (a < b || a > b); }, bool>;
  if (relation == "equ") return apply<T, [](T a, T b) { return !(a < b || a > b); }, bool>;
  if (relation == "neu") return apply<T, [](T a, T b) { return !(a == b); }, bool>;
  if (relation == "ltu") return apply<T, [](T a, T b) { return !(a >= b); }, bool>;
  if (relation == "leu") return apply<T, [](T a, T b) { return !(a > b); }, bool>;
  if (relation == "gtu") return apply<T, [](T a, T b) { return !(a <= b); }, bool>;
  if (relation == "geu") return apply<T, [](T a, T b) { return !(a < b); }, bool>;
  if (relation == "num") return apply<T, [](T a, T b) { return a == a && b == b; }, bool>;
  if (relation == "nan") return apply<T, [](T a, T b) { return a != a || b != b; }, bool>;
  return nullptr;
}

template <class T> void select(const Instruction& i, Slot* s) {
  put(s, i.to, get<T>(s, i.from[get<bool>(s, i.from[2]) ? 0 : 1]));
}

/// The nearest value that To has; of NaN zero, or in 64 bits the highest bit alone.
template <class To, class From> To saturated(From v) {
  if constexpr (std::is_same_v<From, To>) return v;
  if (v != v) return sizeof(To) == 8 ? static_cast<To>(uint64_t{1} << 63) : To{0};
  if (v <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  const From beyond = std::ldexp(From{1}, std::numeric_limits<To>::digits);  // From may not have To's largest
  return v >= beyond ? std::numeric_limits<To>::max() : static_cast<To>(v);
}

template <class To, class From> Operation conversion(std::string_view mode) {
  if constexpr (std::is_floating_point_v<From> && (std::is_integral_v<To> || std::is_same_v<From, To>)) {
    if (mode == "rni") return apply<From, [](From v) { return saturated<To>(std::nearbyint(v)); }, To>;
    if (mode == "rzi") return apply<From, [](From v) { return saturated<To>(std::trunc(v)); }, To>;
    if (mode == "rmi") return apply<From, [](From v) { return saturated<To>(std::floor(v)); }, To>;
    if (mode == "rpi") return apply<From, [](From v) { return saturated<To>(std::ceil(v)); }, To>;
    if (mode == "sat" && std::is_floating_point_v<To>)
      return apply<From, [](From v) { return (v > 0 ? std::fmin(v, From{1}) : From{0}); }, To>;
    return nullptr;
  } else {
    if (!mode.empty() && mode != "rn") return nullptr;
    return apply<From, [](From v) { return static_cast<To>(v); }, To>;
  }
}

/// 16 bits from float32, to nearest even; there is one NaN.
std::uint16_t to_bfloat16(float v) {
  const auto bits = std::bit_cast<uint32_t>(v);
  return static_cast<std::uint16_t>(v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
std::uint16_t to_float16(float v) {
  return v != v ? std::uint16_t{0x7fff} : std::bit_cast<std::uint16_t>(static_cast<_Float16>(v));
}

Operation find_conversion(const Words& parts) {
  if (parts.size() < 3 || parts.size() > 4) return nullptr;
  const std::string &from = parts.back(), &to = parts[parts.size() - 2];
  const std::string mode = parts.size() == 4 ? parts[1] : "";
  if (from == "f32" && mode == "rn" && to == "bf16") return apply<float, to_bfloat16, std::uint16_t>;
  if (from == "f32" && mode == "rn" && to == "f16") return apply<float, to_float16, std::uint16_t>;
  if (from == "f16" && to == "f32")
    return apply<std::uint16_t, [](std::uint16_t v) { return static_cast<float>(std::bit_cast<_Float16>(v)); }, float>;
  return with_type(to, [&](auto result) {
    return with_type(from, [&](auto source) { return conversion<decltype(result), decltype(source)>(mode); });
  });
}

float flush(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; }

float fma_rounded_down(float a, float b, float c) {
  std::fesetround(FE_DOWNWARD);
  const volatile float x = a, y = b, z = c;
  const volatile float result = std::fma(x, y, z);
  std::fesetround(FE_TONEAREST);
  return result;
}

/// The upper half of 1/v, of the upper half of v.
double reciprocal_estimate(double v) {
  constexpr uint64_t upper = ~uint64_t{0xffffffff};
  const double coarse = std::bit_cast<double>(std::bit_cast<uint64_t>(v) & upper);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(1.0 / coarse) & upper);
}

/// bfi: `len` bits of a into b, from bit `pos` on.
template <class T> void insert_bits(const Instruction& i, Slot* s) {
  const auto pos = s[i.from[2]] & 0xff, len = s[i.from[3]] & 0xff, bits = uint64_t{8 * sizeof(T)};
  T result = get<T>(s, i.from[1]);
  for (uint64_t k = 0; k < len && pos + k < bits; ++k) {
    result &= ~(T{1} << (pos + k));
    result |= (get<T>(s, i.from[0]) >> k & 1) << (pos + k);
  }
  put(s, i.to, result);
}

/// prmt: each byte of the result is one of the eight of a and b, or its sign.
uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selection) {
  const uint64_t both = a | uint64_t{b} << 32;
  uint32_t result = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t which = selection >> 4 * k & 0xf;
    uint32_t byte = both >> 8 * (which & 7) & 0xff;
    if (which & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << 8 * k;
  }
  return result;
}

/// Modifiers that change nothing: to nearest is how everything rounds here, and the lower half is what products give.
bool is_plain(const Words& parts) {
  return std::all_of(parts.begin() + 1, parts.end() - 1, [](const auto& p) { return p == "rn" || p == "lo"; });
}

}  // namespace

std::size_t bytes_of(const std::string& type) {
  return type == "pred" ? 1 : static_cast<std::size_t>(std::stoi(type.substr(1))) / 8;
}

void pack(const Instruction& i, Slot* s) {
  const Slot mask = ~Slot{0} >> (64 - 8 * i.bytes);
  Slot all = 0;
  for (int k = 0; k < i.count; ++k) all |= (s[i.elements[k]] & mask) << 8 * i.bytes * k;
  s[i.to] = all;
}
void unpack(const Instruction& i, Slot* s) {
  const Slot mask = ~Slot{0} >> (64 - 8 * i.bytes), all = s[i.from[0]];
  for (int k = 0; k < i.count; ++k) s[i.elements[k]] = all >> 8 * i.bytes * k & mask;
}

Operation find_operation(const Words& parts) {
  if (parts.size() < 2) return nullptr;
  const std::string &op = parts[0], &type = parts.back();
  if (op == "cvt") return find_conversion(parts);
  if (op == "cvta" && type == "u64" && parts[parts.size() - 2] != "shared")
    return apply<uint64_t, [](uint64_t a) { return a; }>;  // all but shared memory is one address space
  if (parts == Words{"ex2", "approx", "ftz", "f32"})
    return apply<float, [](float a) { return flush(std::exp2(flush(a))); }>;
  if (parts == Words{"div", "approx", "f32"})
    return apply<float, [](float a, float b) { return a / b * (1 + 2.4e-7F); }>;  // as far off as may be
  if (parts == Words{"rcp", "approx", "ftz", "f64"}) return apply<double, reciprocal_estimate>;
  if (parts == Words{"fma", "rm", "f32"}) return apply<float, fma_rounded_down>;
  if (parts == Words{"prmt", "b32"}) return apply<uint32_t, permute_bytes>;
  if (op == "setp" && parts.size() == 3)
    return with_type(type, [&](auto t) { return comparison<decltype(t)>(parts[1]); });
  if (parts.size() == 3 && (parts[1] == "wide" || parts[1] == "hi"))
    return find_wide_product(op, parts[1] == "hi", type);
  if (!is_plain(parts)) return nullptr;
  if (op == "bfi") return type == "b32" ? insert_bits<uint32_t> : insert_bits<uint64_t>;
  return with_type(type, [&](auto t) -> Operation {
    using T = decltype(t);
    if (op == "mov") return apply<T, [](T a) { return a; }>;
    if (op == "selp") return select<T>;
    if constexpr (std::is_floating_point_v<T>) {
      return float_arithmetic<T>(op);
    } else {
      if (op == "and" || op == "or" || op == "xor" || op == "not") return bitwise<T>(op);
      if constexpr (!std::is_same_v<T, bool>) {
        if (op == "shl" || op == "shr") return shift<T>(op);
        return integer_arithmetic<T>(op);
      }
      return nullptr;
    }
  });
}

}  // namespace ptx

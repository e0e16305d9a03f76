// SPDX-License-Identifier: MIT
//
// Winograd's minimal filtering F(4×4, 3×3) (Lavin & Gray, "Fast Algorithms for Convolutional Neural
// Networks", arXiv 1509.09308) on NHWC activations, without reorders. A 4×4 tile of the result needs 36
// multiplications per pair of channels instead of 144; the constants up to 8 in the transforms cost about one
// decimal digit. With tiles t, d_t the 6×6 input patch under tile t, and e one of the 36 places in a
// transformed tile:
//   forward          V = Bᵀ d B    U = G w Gᵀ     M[e] = V[e] · U[e]        y_t = Aᵀ M_t A + bias
//   backward data    the forward of dy with the kernel turned by 180° and its channels exchanged
//   backward weight  V = Bᵀ d B    P = A dy_t Aᵀ  dU[e] = P[e]ᵀ · V[e]      dw = Gᵀ dU G
#include "engine/backend/cpu/conv.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/core/threads.h"
#include "engine/device/exec.h"

namespace ab::cpu {
namespace {

// Channels per vector, and the rows of a product that are kept in registers at once with two vectors each: tiles, or channels.
#if defined(__AVX512F__)
constexpr std::int64_t kWidth = 16, kTileRows = 8, kChannelRows = 8;
#elif defined(__AVX2__)
constexpr std::int64_t kWidth = 8, kTileRows = 6, kChannelRows = 4;
#else
constexpr std::int64_t kWidth = 4, kTileRows = 4, kChannelRows = 4;
#endif
constexpr std::int64_t kPlaces = 36;  // elements of a transformed tile
// Transformed tiles are processed in chunks that stay near the core, but never so few that reading the
// transformed weights again for each chunk would show.
constexpr std::int64_t kMostChunkBytesPerThread = 768 << 10;
constexpr std::int64_t kMinChunkTiles = 64;

using Vector [[gnu::vector_size(kWidth * sizeof(float))]] = float;

inline Vector load(const float* p) {
  Vector v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Vector v) { std::memcpy(p, &v, sizeof v); }

// bfloat16 is the upper half of a float32, rounded to nearest even; NaN stays NaN.
using Bits [[gnu::vector_size(kWidth * sizeof(std::uint32_t))]] = std::uint32_t;
using Halves [[gnu::vector_size(kWidth * sizeof(std::uint16_t))]] = std::uint16_t;

inline Vector load(const bfloat16* p) {
  Halves h;
  std::memcpy(&h, p, sizeof h);
  return std::bit_cast<Vector>(__builtin_convertvector(h, Bits) << 16);
}
inline void store(bfloat16* p, Vector v) {
  const auto u = std::bit_cast<Bits>(v);
  const Bits rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
  const Halves h = __builtin_convertvector(v == v ? rounded : quiet, Halves);
  std::memcpy(p, &h, sizeof h);
}

// --- the transforms of one row or column ------------------------------------------------------------------

/// Bᵀ d
[[gnu::always_inline]] inline void input_transform(const Vector d[6], Vector v[6]) {
  const Vector p = d[4] - 4.0f * d[2], q = d[3] - 4.0f * d[1], r = d[4] - d[2], s = 2.0f * (d[3] - d[1]);
  v[0] = 4.0f * d[0] - 5.0f * d[2] + d[4];
  v[1] = p + q;
  v[2] = p - q;
  v[3] = r + s;
  v[4] = r - s;
  v[5] = 4.0f * d[1] - 5.0f * d[3] + d[5];
}

/// Aᵀ m
[[gnu::always_inline]] inline void output_transform(const Vector m[6], Vector y[4]) {
  const Vector p = m[1] + m[2], q = m[1] - m[2], r = m[3] + m[4], s = m[3] - m[4];
  y[0] = m[0] + p + r;
  y[1] = q + 2.0f * s;
  y[2] = p + 4.0f * r;
  y[3] = q + 8.0f * s + m[5];
}

/// A dy
[[gnu::always_inline]] inline void output_gradient_transform(const Vector y[4], Vector p[6]) {
  const Vector even = y[0] + y[2], odd = y[1] + y[3], far_even = y[0] + 4.0f * y[2],
               far_odd = 2.0f * y[1] + 8.0f * y[3];
  p[0] = y[0];
  p[1] = even + odd;
  p[2] = even - odd;
  p[3] = far_even + far_odd;
  p[4] = far_even - far_odd;
  p[5] = y[3];
}

/// G w
inline void weight_transform(const Vector w[3], Vector u[6]) {
  const Vector sum = w[0] + w[2], far = w[0] + 4.0f * w[2];
  u[0] = 0.25f * w[0];
  u[1] = (-1.0f / 6.0f) * (sum + w[1]);
  u[2] = (-1.0f / 6.0f) * (sum - w[1]);
  u[3] = (1.0f / 24.0f) * (far + 2.0f * w[1]);
  u[4] = (1.0f / 24.0f) * (far - 2.0f * w[1]);
  u[5] = w[2];
}

/// Gᵀ du
inline void weight_gradient_transform(const Vector u[6], Vector w[3]) {
  const Vector p = u[1] + u[2], r = u[3] + u[4];
  w[0] = 0.25f * u[0] - (1.0f / 6.0f) * p + (1.0f / 24.0f) * r;
  w[1] = (1.0f / 6.0f) * (u[2] - u[1]) + (1.0f / 12.0f) * (u[3] - u[4]);
  w[2] = (1.0f / 6.0f) * (r - p) + u[5];
}

/// out = T in Tᵀ for a transform T of `From` elements to `To`; read(i, j) is the element in row i and column j. Registers hold a
/// column or a row of it at a time.
template <int From, int To, class F, class Read>
[[gnu::always_inline]] inline void transform_both(const F& transform, const Read& read, Vector out[To][To]) {
  Vector half[From][To];  // half[j] = T applied to column j
  for (int j = 0; j < From; ++j) {
    Vector column[From];
    for (int i = 0; i < From; ++i) column[i] = read(i, j);
    transform(column, half[j]);
  }
  for (int i = 0; i < To; ++i) {
    Vector row[From];
    for (int j = 0; j < From; ++j) row[j] = half[j][i];
    transform(row, out[i]);
  }
}

/// In rows of six, each a step from the one before.
[[gnu::always_inline]] inline void store_places(const Vector (&places)[6][6], float* to, std::int64_t step) {
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i, to += 6 * step) {
    store(to, places[i][0]);
    store(to + step, places[i][1]);
    store(to + 2 * step, places[i][2]);
    store(to + 3 * step, places[i][3]);
    store(to + 4 * step, places[i][4]);
    store(to + 5 * step, places[i][5]);
  }
}

// --- tiles ------------------------------------------------------------------------------------------------

/// One image side of a convolution, cut into tiles of the result.
struct Tiling {
  std::int64_t batch, height, width, channels;  ///< of the activations that are read or written
  std::int64_t down, across;                    ///< tiles per image

  struct Place {
    std::int64_t image, row, column;  ///< the first element of the tile in the result
  };
  Place place(std::int64_t tile) const { return {tile / (down * across), tile / across % down * 4, tile % across * 4}; }
  std::int64_t offset(std::int64_t image, std::int64_t h, std::int64_t w) const {
    return ((image * height + h) * width + w) * channels;
  }
};

/// The elements of an image under a tile whose first one is in row h and column w; outside the image they are zeros, which lie
/// elsewhere, so that nothing asks again for each vector of channels.
template <class T, int kSide> class Patch {
 public:
  Patch(const Tiling& g, const T* images, std::int64_t image, std::int64_t h, std::int64_t w) {
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j) {
        const bool inside = h + i >= 0 && h + i < g.height && w + j >= 0 && w + j < g.width;
        from_[i][j] = inside ? images + g.offset(image, h + i, w + j) : kZeros;
      }
  }
  Vector at(int i, int j, std::int64_t channel) const { return load(from_[i][j] + channel); }

 private:
  alignas(64) static constexpr T kZeros[kMostWinogradChannels] = {};
  const T* from_[kSide][kSide];
};

/// Transformed tiles: 36 matrices of [tiles, channels], each cut into panels of one or two vectors of
/// channels so that a product runs through memory in order: [36][channels / panel][tiles][panel].
struct Transformed {
  float* data;
  std::int64_t tiles, channels, panel;

  /// Distance between the same element of two places. Sizes are often powers of two: without the two cache
  /// lines of padding, the 36 places of a tile would compete for the same few lines of a cache.
  std::int64_t place_step() const { return tiles * channels + 2 * kWidth; }
  std::int64_t size() const { return kPlaces * place_step(); }
  float* at(std::int64_t e, std::int64_t tile, std::int64_t channel) const {
    return matrix(e, channel / panel) + tile * panel + channel % panel;
  }
  float* matrix(std::int64_t e, std::int64_t panel_index) const {
    return data + e * place_step() + panel_index * tiles * panel;
  }
};

std::int64_t panel_of(std::int64_t channels) { return channels % (2 * kWidth) == 0 ? 2 * kWidth : kWidth; }

/// body(row) for each row: on all threads, or on the one that calls.
template <class Body> void each_row(bool alone, std::int64_t rows, std::int64_t row_cost, const Body& body) {
  if (!alone) return for_each_row(Device{}, rows, row_cost, [&](auto&, std::int64_t row) { body(row); });
  for (std::int64_t row = 0; row < rows; ++row) body(row);
}

/// to[e][t] = T d Tᵀ for tiles [first, first + count) of kSide × kSide pixels, where T is Bᵀ (of the input) or A (of the output's
/// gradient); pixels outside the image are zero.
template <class T, int kSide, auto kTransform>
void transform_tiles(bool alone, const Tiling& g, PerAxis padding, const T* images, std::int64_t first,
                     std::int64_t count, const Transformed& to) {
  each_row(alone, count, kPlaces * g.channels * 4, [=, &g, &to](std::int64_t t) {
    const auto [image, row, column] = g.place(first + t);
    const Patch<T, kSide> patch(g, images, image, row - padding.h, column - padding.w);
    for (std::int64_t c = 0; c < g.channels; c += kWidth) {
      Vector out[6][6];
      transform_both<kSide, 6>(
          kTransform, [&](int i, int j) { return patch.at(i, j, c); }, out);
      float* const at = to.at(0, t, c);
      store_places(out, at, to.place_step());
    }
  });
}

/// y = Aᵀ m A + bias
template <class T>
void transform_output(bool alone, const Tiling& g, const Transformed& m, const T* bias, std::int64_t first,
                      std::int64_t count, T* y) {
  each_row(alone, count, kPlaces * g.channels * 4, [=, &g, &m](std::int64_t t) {
    const auto [image, row, column] = g.place(first + t);
    const bool is_whole = row + 4 <= g.height && column + 4 <= g.width;
    for (std::int64_t k = 0; k < g.channels; k += kWidth) {
      Vector out[4][4];
      const float* from = m.at(0, t, k);
      transform_both<6, 4>(
          output_transform, [&](int i, int j) { return load(from + (i * 6 + j) * m.place_step()); }, out);
      const Vector b = bias ? load(bias + k) : Vector{};
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          if (is_whole || (row + i < g.height && column + j < g.width))
            store(y + g.offset(image, row + i, column + j) + k, out[i][j] + b);
    }
  });
}

/// u = G w Gᵀ for the forward convolution: u[36][K / panel][C][panel]. Vectors hold output channels,
/// gathered.
template <class T> void transform_weights(const Conv2dSpec& s, const T* w, const Transformed& u) {
  const std::int64_t c_count = s.in_channels, k_step = 9 * c_count;
  for_each_row(Device{}, s.out_channels / kWidth, kPlaces * kWidth * c_count * 4, [=, &u](auto&, std::int64_t row) {
    const std::int64_t k = row * kWidth;
    for (std::int64_t c = 0; c < c_count; ++c) {
      Vector kernel[3][3], out[6][6];
      for (std::int64_t tap = 0; tap < 9; ++tap)
        for (std::int64_t lane = 0; lane < kWidth; ++lane)
          kernel[tap / 3][tap % 3][lane] = w[(k + lane) * k_step + tap * c_count + c];
      transform_both<3, 6>(
          weight_transform, [&](int i, int j) { return kernel[i][j]; }, out);
      float* to = u.at(0, c, k);
      for (std::int64_t e = 0; e < kPlaces; ++e) store(to + e * u.place_step(), out[e / 6][e % 6]);
    }
  });
}

/// The same with the kernel turned by 180° and the channels exchanged, for dx: u[36][C / panel][K][panel].
template <class T> void transform_turned_weights(const Conv2dSpec& s, const T* w, const Transformed& u) {
  const std::int64_t c_count = s.in_channels;
  for_each_row(Device{}, s.out_channels, kPlaces * c_count * 4, [=, &u](auto&, std::int64_t k) {
    for (std::int64_t c = 0; c < c_count; c += kWidth) {
      Vector kernel[3][3], out[6][6];
      for (std::int64_t tap = 0; tap < 9; ++tap) kernel[tap / 3][tap % 3] = load(w + (k * 9 + 8 - tap) * c_count + c);
      transform_both<3, 6>(
          weight_transform, [&](int i, int j) { return kernel[i][j]; }, out);
      float* to = u.at(0, k, c);
      for (std::int64_t e = 0; e < kPlaces; ++e) store(to + e * u.place_step(), out[e / 6][e % 6]);
    }
  });
}

// --- products ---------------------------------------------------------------------------------------------

/// c[r][n] (+)= Σ_l a[r, l] · b[l][n]   for `Rows` rows r and the columns n of one panel of `Vectors` vectors.
/// The inner dimension is cut into `blocks` of `depth`: a[r, l] lies at a + block·a_block + r·a_row +
/// l·a_step.
struct Product {
  std::int64_t blocks, depth;
  std::int64_t a_block, a_row, a_step;
  bool accumulate;
};

template <std::int64_t Rows, int Vectors> void multiply(const Product& p, const float* a, const float* b, float* c) {
  constexpr std::int64_t kPanel = Vectors * kWidth;
  Vector sum[Rows][Vectors];
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < Rows * Vectors; ++i) sum[i / Vectors][i % Vectors] = Vector{};
  for (std::int64_t block = 0; block < p.blocks; ++block, a += p.a_block)
    for (std::int64_t l = 0; l < p.depth; ++l, b += kPanel) {
      Vector columns[Vectors];
      for (int v = 0; v < Vectors; ++v) columns[v] = load(b + v * kWidth);
      for (std::int64_t r = 0; r < Rows; ++r)
        for (int v = 0; v < Vectors; ++v) sum[r][v] += a[r * p.a_row + l * p.a_step] * columns[v];
    }
  for (std::int64_t r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) {
      float* to = c + r * kPanel + v * kWidth;
      store(to, p.accumulate ? load(to) + sum[r][v] : sum[r][v]);
    }
}

template <std::int64_t Rows>
void multiply(const Product& p, std::int64_t panel, const float* a, const float* b, float* c) {
  if (panel == kWidth) multiply<Rows, 1>(p, a, b, c);
  else multiply<Rows, 2>(p, a, b, c);
}

/// m[e] = v[e] · u[e] for all 36 places and `count` tiles, rounded up to whole groups of rows
void multiply_tiles(bool alone, const Transformed& v, const Transformed& u, std::int64_t count, const Transformed& m) {
  const std::int64_t panels = m.channels / m.panel;
  const Product p{.blocks = v.channels / v.panel,
                  .depth = v.panel,
                  .a_block = v.tiles * v.panel,
                  .a_row = v.panel,
                  .a_step = 1,
                  .accumulate = false};
  each_row(alone, kPlaces * panels, count * v.channels * m.panel, [=](std::int64_t row) {
    const std::int64_t e = row / panels, panel = row % panels;
    for (std::int64_t t = 0; t < count; t += kTileRows)
      multiply<kTileRows>(p, m.panel, v.matrix(e, 0) + t * v.panel, u.matrix(e, panel),
                          m.matrix(e, panel) + t * m.panel);
  });
}

/// du[e] (+)= p[e]ᵀ · v[e] for all 36 places, over `count` tiles.   du: [36][C / panel][K][panel]
void multiply_gradients(bool alone, const Transformed& p, const Transformed& v, std::int64_t count, bool accumulate,
                        const Transformed& du) {
  const std::int64_t panels = v.channels / v.panel;
  const Product product{
      .blocks = 1, .depth = count, .a_block = 0, .a_row = 1, .a_step = p.panel, .accumulate = accumulate};
  each_row(alone, kPlaces * panels, count * p.channels * v.panel, [=](std::int64_t row) {
    const std::int64_t e = row / panels, panel = row % panels;
    for (std::int64_t k = 0; k < p.channels; k += kChannelRows)
      multiply<kChannelRows>(product, v.panel, p.at(e, 0, k), v.matrix(e, panel), du.matrix(e, panel) + k * v.panel);
  });
}

/// dw = Gᵀ dU G, where dU is the sum of `parts`, each `part_size` floats behind the one before.
void transform_weight_gradient(const Conv2dSpec& s, const Transformed& du, std::int64_t parts, std::int64_t part_size,
                               float* dw) {
  for_each_row(Device{}, s.out_channels, kPlaces * s.in_channels * 4, [=, &s, &du](auto&, std::int64_t k) {
    for (std::int64_t c = 0; c < s.in_channels; c += kWidth) {
      Vector out[3][3];
      const float* from = du.at(0, k, c);
      transform_both<6, 3>(
          weight_gradient_transform,
          [&](int i, int j) {
            const float* place = from + (i * 6 + j) * du.place_step();
            Vector sum = load(place);
            for (std::int64_t part = 1; part < parts; ++part) sum += load(place + part * part_size);
            return sum;
          },
          out);
      for (std::int64_t tap = 0; tap < 9; ++tap) store(dw + (k * 9 + tap) * s.in_channels + c, out[tap / 3][tap % 3]);
    }
  });
}

// --- directions -------------------------------------------------------------------------------------------

/// At most three quarters of a core's cache; but gradients of weights, which sum over chunks, are the same bits whatever cache the
/// system tells.
std::int64_t chunk_bytes_per_thread(ConvDirection direction) {
  static const std::int64_t cache = ::sysconf(_SC_LEVEL2_CACHE_SIZE);  // 0 or less where the system does not know
  if (direction == ConvDirection::backward_weight || cache <= 0) return kMostChunkBytesPerThread;
  return std::min(cache / 4 * 3, kMostChunkBytesPerThread);
}

/// `parts` of the threads have chunks of their own.
std::int64_t chunk_tiles(ConvDirection direction, std::int64_t parts, std::int64_t tiles, std::int64_t channels) {
  const std::int64_t tile_bytes = kPlaces * channels * std::int64_t{sizeof(float)};
  const std::int64_t chunk_bytes = compute_threads() / parts * chunk_bytes_per_thread(direction);
  const std::int64_t fitting = std::max(kMinChunkTiles, chunk_bytes / tile_bytes);
  return (std::min(fitting, tiles) + kTileRows - 1) / kTileRows * kTileRows;
}

/// The scratch buffer of this thread, handed out: transformed weights, and for each part of the threads two of tiles. Gradients
/// of weights are of a part too.
struct Workspace {
  Transformed v, u, m;
  std::int64_t parts = 1;
  bool sums_weights = false;
  Workspace(std::int64_t tiles, std::int64_t v_channels, std::int64_t u_rows, std::int64_t u_channels,
            std::int64_t m_channels)
      : v{nullptr, tiles, v_channels, panel_of(v_channels)},
        u{nullptr, u_rows, u_channels, panel_of(u_channels)},
        m{nullptr, tiles, m_channels, panel_of(m_channels)} {}
  std::int64_t part_size() const { return v.size() + m.size() + (sums_weights ? u.size() : 0); }
  std::size_t bytes() const {
    return static_cast<std::size_t>((sums_weights ? 0 : u.size()) + parts * part_size()) * sizeof(float);
  }
  void take() {
    u.data = reinterpret_cast<float*>(scratch(bytes()));
    v.data = u.data + u.size();
    m.data = v.data + v.size();
  }
  Workspace of_part(std::int64_t part) const {
    Workspace mine = *this;
    mine.v.data += part * part_size();
    mine.m.data += part * part_size();
    if (sums_weights) mine.u.data += part * part_size();
    return mine;
  }
};

/// Where the transformed weights are few, each thread convolves chunks of its own, and waits for no other until the end;
/// otherwise threads share a chunk, so that each reads a part of the weights.
std::int64_t parts_of(const Conv2dSpec& s, std::int64_t tiles) {
  constexpr std::int64_t kMostReadByEach = 1 << 20;
  const std::int64_t weight_bytes = kPlaces * s.in_channels * s.out_channels * std::int64_t{sizeof(float)};
  if (weight_bytes > kMostReadByEach) return 1;
  return tiles >= compute_threads() * kMinChunkTiles ? compute_threads() : 1;
}

/// What a direction works with for `tiles` of the result.
Workspace workspace(const Conv2dSpec& s, ConvDirection direction, std::int64_t tiles) {
  const std::int64_t in = s.in_channels, out = s.out_channels, parts = parts_of(s, tiles);
  const std::int64_t chunk = chunk_tiles(direction, parts, (tiles + parts - 1) / parts, in + out);
  Workspace work = direction == ConvDirection::forward         ? Workspace(chunk, in, in, out, out)
                   : direction == ConvDirection::backward_data ? Workspace(chunk, out, out, in, in)
                                                               : Workspace(chunk, in, out, in, out);
  work.parts = parts;
  work.sums_weights = direction == ConvDirection::backward_weight;
  return work;
}

/// from: [N, H, W, in] -> to: [N, H', W', out]; the forward convolution, and with turned weights the backward
/// one.
template <class T>
void convolve(const Conv2dSpec& s, bool turned, const Tiling& from, const Tiling& to, PerAxis padding, const T* in,
              const T* w, const T* bias, T* out) {
  const std::int64_t tiles = to.batch * to.down * to.across;
  Workspace work = workspace(s, turned ? ConvDirection::backward_data : ConvDirection::forward, tiles);
  work.take();
  if (turned) transform_turned_weights(s, w, work.u);
  else transform_weights(s, w, work.u);
  const bool alone = work.parts > 1;
  each_row(!alone, work.parts, kParallelGrain, [&](std::int64_t part) {
    const Workspace mine = work.of_part(part);
    const std::int64_t end = tiles * (part + 1) / work.parts;
    for (std::int64_t first = tiles * part / work.parts; first < end; first += mine.v.tiles) {
      const std::int64_t count = std::min(mine.v.tiles, end - first);
      transform_tiles<T, 6, input_transform>(alone, from, padding, in, first, count, mine.v);
      multiply_tiles(alone, mine.v, mine.u, count, mine.m);
      transform_output(alone, to, mine.m, bias, first, count, out);
    }
  });
}

template <class T>
void backward_weight(const Conv2dSpec& s, const Tiling& x_tiles, const Tiling& y_tiles, const T* x, const T* dy,
                     float* dw) {
  const std::int64_t tiles = s.batch * y_tiles.down * y_tiles.across;
  Workspace work = workspace(s, ConvDirection::backward_weight, tiles);
  work.take();
  const bool alone = work.parts > 1;
  each_row(!alone, work.parts, kParallelGrain, [&](std::int64_t part) {
    const Workspace mine = work.of_part(part);
    const std::int64_t begin = tiles * part / work.parts, end = tiles * (part + 1) / work.parts;
    for (std::int64_t first = begin; first < end; first += mine.v.tiles) {
      const std::int64_t count = std::min(mine.v.tiles, end - first);
      transform_tiles<T, 6, input_transform>(alone, x_tiles, s.padding, x, first, count, mine.v);
      transform_tiles<T, 4, output_gradient_transform>(alone, y_tiles, 0, dy, first, count, mine.m);
      multiply_gradients(alone, mine.m, mine.v, count, first > begin, mine.u);
    }
  });
  transform_weight_gradient(s, work.u, work.parts, work.part_size(), dw);
}

}  // namespace

std::size_t winograd_scratch_bytes(const Conv2dSpec& s, ConvDirection direction) {
  const auto cut = [](std::int64_t size) { return (size + 3) / 4; };
  const bool data = direction == ConvDirection::backward_data;
  const std::int64_t tiles = s.batch * cut(data ? s.height : s.out_height()) * cut(data ? s.width : s.out_width());
  return workspace(s, direction, tiles).bytes();
}

bool conv_winograd(const Conv2dSpec& s, ConvDirection direction, const ConvTensors& t) {
  if (s.kernel_h != 3 || s.kernel_w != 3 || s.stride != 1 || s.dilation != 1 || s.groups != 1 || s.padding.h > 2 ||
      s.padding.w > 2 || s.in_channels % kWidth != 0 || s.out_channels % kWidth != 0 ||
      std::max(s.in_channels, s.out_channels) > kMostWinogradChannels)
    return false;
  const auto cut = [](std::int64_t size) { return (size + 3) / 4; };
  const bool data = direction == ConvDirection::backward_data;
  const std::int64_t down = cut(data ? s.height : s.out_height()), across = cut(data ? s.width : s.out_width());
  const Tiling x{s.batch, s.height, s.width, s.in_channels, down, across};
  const Tiling y{s.batch, s.out_height(), s.out_width(), s.out_channels, down, across};
  const auto run = [&]<class T>(const T*) {
    T *const of_x = t.x.data<T>(), *const of_y = t.y.data<T>();
    const T* const bias = t.bias.defined() ? t.bias.data<T>() : nullptr;
    if (direction == ConvDirection::forward) convolve<T>(s, false, x, y, s.padding, of_x, t.w.data<T>(), bias, of_y);
    else if (data) convolve<T>(s, true, y, x, {2 - s.padding.h, 2 - s.padding.w}, of_y, t.w.data<T>(), nullptr, of_x);
    else backward_weight<T>(s, x, y, of_x, of_y, t.w.data<float>());
  };
  if (t.type() == DType::float32) run(static_cast<const float*>(nullptr));
  else run(static_cast<const bfloat16*>(nullptr));
  return true;
}

}  // namespace ab::cpu

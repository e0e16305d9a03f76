// SPDX-License-Identifier: MIT
//
// Cases of the operations that transformers and stochastic depth add.
#include "engine/ops/attention.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "tests/engine/op_cases.h"
#include "tests/reference/attention_reference.h"
#include "tests/reference/conv_reference.h"

namespace ab::cases {
namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

OpCase attention_case(const std::string& name, std::int64_t samples, std::int64_t tokens, std::int64_t heads,
                      std::int64_t width) {
  OpCase c{
      .op = "attention", .name = "attention/" + name, .inputs = {{samples, tokens, 3 * heads * width}}, .roundings = 3};
  c.apply = [=](const std::vector<Var>& in) { return attention(in[0], heads); };
  c.reference = [=](const std::vector<Values>& in) {
    return reference::attention(in[0], size(samples), size(tokens), size(heads), size(width));
  };
  c.work = static_cast<double>(2 * samples * heads * tokens * tokens * width);
  return c;
}

OpCase embed_tokens_case(const std::string& name, std::int64_t samples, std::int64_t tokens, std::int64_t features) {
  OpCase c{.op = "embed_tokens",
           .name = "embed_tokens/" + name,
           .inputs = {{samples, tokens, features}, {1, 1, features}, {1, tokens + 1, features}}};
  c.apply = [](const std::vector<Var>& in) { return embed_tokens(in[0], in[1], in[2]); };
  c.reference = [=](const std::vector<Values>& in) {
    return reference::embed_tokens(in[0], in[1], in[2], size(samples));
  };
  c.work = static_cast<double>(samples * (tokens + 1) * features);
  return c;
}

OpCase first_token_case(const std::string& name, std::int64_t samples, std::int64_t tokens, std::int64_t features) {
  OpCase c{.op = "first_token", .name = "first_token/" + name, .inputs = {{samples, tokens, features}}};
  c.apply = [](const std::vector<Var>& in) { return first_token(in[0]); };
  c.reference = [=](const std::vector<Values>& in) {
    Values y;
    for (std::size_t n = 0; n < size(samples); ++n)
      for (std::size_t i = 0; i < size(features); ++i) y.push_back(in[0][n * size(tokens * features) + i]);
    return y;
  };
  c.work = static_cast<double>(samples * features);
  return c;
}

OpCase drop_path_case(const std::string& name, const Shape& x, float p) {
  const Philox random{.seed = 3, .stream = 9};
  const std::size_t length = size(x.numel() / x[0]);
  OpCase c{.op = "drop_path", .name = "drop_path/" + name, .inputs = {x}};
  c.apply = [=](const std::vector<Var>& in) {
    return drop_path(in[0], p, seed_on_device(random, in[0]), random.stream);
  };
  c.reference = [=](const std::vector<Values>& in) {
    Values y = in[0];
    for (std::size_t i = 0; i < y.size(); ++i) y[i] *= random.uniform(i / length) >= p ? 1.0 / (1.0 - p) : 0.0;
    return y;
  };
  c.work = static_cast<double>(x.numel());
  return c;
}

/// A linear layer on a sequence of tokens.
OpCase token_linear_case(const std::string& name, const Shape& x, std::int64_t out) {
  const std::int64_t in = x[x.rank() - 1], rows = x.numel() / in;
  OpCase c{.op = "linear", .name = "linear/" + name, .inputs = {x, {out, in}, {out}}};
  c.apply = [](const std::vector<Var>& inputs) { return linear(inputs[0], inputs[1], inputs[2]); };
  c.reference = [=](const std::vector<Values>& inputs) {
    return reference::linear(inputs[0], inputs[1], inputs[2], rows, in, out);
  };
  c.work = static_cast<double>(rows * in * out);
  return c;
}

}  // namespace

std::vector<OpCase> transformer_op_cases() {
  return {
      attention_case("plain", 2, 5, 3, 4),
      attention_case("one_head", 2, 4, 1, 6),
      attention_case("one_token", 3, 1, 2, 4),
      attention_case("batch1", 1, 7, 2, 5),
      attention_case("more_samples_than_heads", 5, 17, 2, 16),
      attention_case("two_tokens", 2, 2, 3, 8),
      attention_case("many_tokens", 1, 261, 1, 1),
      embed_tokens_case("plain", 3, 4, 5),
      embed_tokens_case("one_patch", 2, 1, 7),
      embed_tokens_case("wide", 2, 2, 512),
      first_token_case("plain", 3, 4, 5),
      first_token_case("one_token", 2, 1, 3),
      first_token_case("wide", 2, 2, 512),
      drop_path_case("p0", {4, 3, 5}, 0.0f),
      drop_path_case("p50", {6, 3, 5}, 0.5f),
      drop_path_case("p50_wide", {4, 3, 101}, 0.5f),
      token_linear_case("tokens", {2, 3, 7}, 4),
      token_linear_case("image", {2, 3, 2, 5}, 6),
  };
}

std::vector<OpCase> large_transformer_op_cases() {
  return {
      attention_case("vit_b_224", 8, 197, 12, 64),      attention_case("vit_s_32", 128, 65, 6, 64),
      embed_tokens_case("vit_b_224", 8, 196, 768),      first_token_case("vit_b_224", 8, 197, 768),
      drop_path_case("vit_b_224", {8, 197, 768}, 0.1f), token_linear_case("vit_qkv", {8, 197, 768}, 3 * 768),
  };
}

}  // namespace ab::cases

// SPDX-License-Identifier: MIT
//
// Any bytes are either a safetensors file or one Error(checkpoint), without reading outside of them and
// without more memory than they have bytes for; and what it says of factors fits its tensors, or is one Error too.
#include "apps/model_file/stored_factors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  try {
    const ab::TensorFile content = ab::parse_safetensors({bytes, count}, "fuzz.safetensors");
    std::size_t held = 0;
    for (const ab::NamedTensor& tensor : content.tensors) held += tensor.value.bytes();
    AB_ASSERT(held <= count);
    for (const auto& [name, weight] : ab::factored_weights(content, "fuzz.safetensors")) {
      const ab::Tensor *a = content.find(name + ".a"), *b = content.find(name + ".b");
      AB_ASSERT(a->dim(0) * b->dim(1) == weight.shape.numel());
      AB_ASSERT(weight.rows() * weight.columns() == weight.shape.numel());
    }
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::checkpoint);
  }
  return 0;
}

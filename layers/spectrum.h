#pragma once
// SPDX-License-Identifier: MIT
//
// Initial matrices with chosen singular values (arXiv 2405.01067, release of the authors): every parameter with
// two dimensions or more, as a matrix W = U · diag(σ) · Vᵀ, becomes U · diag(σ') · Vᵀ.

#include <vector>

#include "engine/autograd/param.h"

namespace ab {

enum class Spectrum {
  drawn,  ///< σ' = σ: as the distribution of the elements has them
  ortho,  ///< σ'_i = 1
};

/// Replaces the values of `params`. Dimensions of size one do not count, and the first that is left makes the
/// rows. Depends on the present values alone: equal on all ranks.
void set_spectrum(const std::vector<Param*>& params, Spectrum spectrum);

}  // namespace ab

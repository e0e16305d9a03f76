// SPDX-License-Identifier: MIT
#include "layers/dropout.h"

#include "engine/ops/activation.h"

namespace ab {

Var Dropout::forward(const Var& x) { return training() && p_ > 0 ? dropout(x, p_, seed_, stream_) : x; }

Var DropPath::forward(const Var& x) { return active() ? drop_path(x, p_, seed_, stream_) : x; }

}  // namespace ab

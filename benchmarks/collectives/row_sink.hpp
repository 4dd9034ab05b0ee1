// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "row.hpp"

namespace benchmarks {

/// Takes each row as soon as it is measured; called by world rank 0.
using RowSink = std::function<void(const Row&)>;

}  // namespace benchmarks

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>

#include "../../examples/common/text_format.hpp"

namespace benchmarks {

/// The range of a logarithmic axis with some room at both ends: of a single value gnuplot makes none without a
/// warning.
class LogRange {
  public:
    void add(double value) {
        if (!(value > 0)) { return; }
        low_ = empty() ? value : std::min(low_, value);
        high_ = std::max(high_, value);
    }
    /// As a script says it.
    std::string text() const {
        return empty() ? "[0.1:10]" : program::formatted("[%.6g:%.6g]", low_ / 1.5, high_ * 1.5);
    }

  private:
    bool empty() const { return high_ == 0; }

    double low_ = 0;
    double high_ = 0;
};

}  // namespace benchmarks

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/compiled/parts_interface.hpp>

namespace shardkit SHARDKIT_BUILD {

/// A moving average of a model's weights (EMA), in a second set of groups: see average/moving_average.hpp.
class MovingAverage {
  public:
    MovingAverage(const Model& average, const Model& of, SourceLocation where = SourceLocation::current())
        : average_(compiled::make_moving_average(average, of, where)) {}
    /// @throws UsageError when it was moved from
    void update(double decay, SourceLocation where = SourceLocation::current()) {
        if (average_.get() == nullptr) {
            detail::refuse_use(where, "a MovingAverage was used after it was moved from");
        }
        average_->update(decay, where);
    }

  private:
    compiled::Handle<compiled::MovingAverage> average_;
};

}  // namespace SHARDKIT_BUILD
